"""The documentation site builds without a warning and without other hosts, and its tutorials run."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from unittest import mock

import pytest

import winobench
from tests import launching

DOCS = launching.ROOT / "docs"
# The tutorials run with no more than this.
MOST = {"num_scenes": 2, "batch_size": 4, "num_steps": 4, "warmup_steps": 1, "limit": 2, "num_samples": 2}
TUTORIALS = sorted(path.stem for path in (DOCS / "tutorials").glob("*.ipynb"))


def test_the_page_of_the_api_lists_every_public_name():
    groups = runpy.run_path(str(DOCS / "generate_reference.py"))["GROUPS"]
    assert sorted(name for names in groups.values() for name in names) == sorted({*winobench.__all__} - {"__version__"})


@pytest.mark.slow
def test_the_site_is_built_without_warnings_and_needs_no_other_host(tmp_path):
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, env=launching.environment())
    assert done.returncode == 0, done.stderr[-4000:]
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc="(https?:)?//|<link[^>]*\shref="(https?:)?//""")
    assert [page.name for page in pages if loaded.search(page.read_text())] == []
    assert "winobench.denoising_errors" in (tmp_path / "reference" / "api.html").read_text()
    linked = re.findall(r"\]\((\S+)\)", (tmp_path / "llms.txt").read_text())
    assert [address for address in linked if not (tmp_path / address).is_file()] == []
    assert (tmp_path / "searchindex.js").stat().st_size > 10_000


def test_the_gallery_links_to_what_its_commands_make():
    commands, links = runpy.run_path(str(DOCS / "make_gallery.py"))["read_page"]()
    assert all(line.startswith("winobench ") for line in commands.splitlines())
    first = {"report": "report.html", "view": "index.html"}
    made = re.findall(r"^winobench (report|view) .*--(?:out|bundle)=(\S+)$", commands, re.MULTILINE)
    assert [f"{folder}/{first[command]}" for command, folder in made] == links


@pytest.fixture(scope="module")
def llms():
    spec = importlib.util.spec_from_file_location("llms", DOCS / "llms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_list_for_language_models_by_hand(llms, tmp_path):
    (tmp_path / "howto").mkdir()
    contents = {
        "index.md": "# tool\n\nIt measures. More.\n\n```{toctree}\n:hidden:\n\nhowto/index\ngallery\n```\n",
        "gallery.md": "# Gallery\n\n## First\n\nText.\n",
        "howto/index.md": "# How-to\n\n```{toctree}\nrun\nbook\n```\n",
        "howto/run.md": "# Run it\n\n<!-- note -->\n\nSee [A. B. Author et al.](run.md#x) on\nv0.3.0. Then go.\n",
        "howto/book.ipynb": '{"cells": [{"source": ["# Book\\n", "\\n", "Is it short? Yes."]}]}',
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    assert llms.text(tmp_path) == (
        "# tool\n\n> It measures.\n\n## How-to\n\n- [Run it](howto/run.html): See A. B. Author et al. on v0.3.0.\n"
        "- [Book](howto/book.html): Is it short?\n\n## Optional\n\n- [Gallery](gallery.html)\n"
    )


def test_the_list_for_language_models_has_every_page(llms):
    pages = {path for ending in ("md", "ipynb") for path in DOCS.glob(f"[!_]*/*.{ending}") if path.stem != "index"}
    text = llms.text(DOCS)
    listed = set(re.findall(r"^- \[[^\]]+\]\((\S+)\.html\)", text, re.MULTILINE))
    assert {path.relative_to(DOCS).with_suffix("").as_posix() for path in pages} <= listed
    assert text.count(": ") > 0.8 * len(listed)


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_runs(name, tmp_path):
    spec = importlib.util.spec_from_file_location("run_notebooks", DOCS / "run_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (module.FOLDER / f"{name}.ipynb").read_text()
    options = rf"\b({'|'.join(MOST)})=(\d+)"
    small = re.sub(options, lambda found: f"{found[1]}={min(int(found[2]), MOST[found[1]])}", text)
    path = tmp_path / "small.ipynb"
    path.write_text(small)
    with mock.patch.dict(os.environ, launching.environment(devices=1)):
        module.run(path)


def test_the_tutorials_are_listed_and_have_outputs():
    listed = re.search(r"maxdepth: 1\n\n(.*?)```", (DOCS / "tutorials" / "index.md").read_text(), re.DOTALL)[1].split()
    assert sorted(listed) == TUTORIALS
    for name in TUTORIALS:
        text = (DOCS / "tutorials" / f"{name}.ipynb").read_text()
        assert '"output_type"' in text, f"run python docs/run_notebooks.py {name}"
        assert "Traceback" not in text
        assert r"\u001b" not in text  # a code of a colour
