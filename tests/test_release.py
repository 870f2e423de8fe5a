"""What a release says of itself agrees, and the wheel does what the checkout does."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import yaml
from packaging.version import Version

import winobench

ROOT = pathlib.Path(__file__).resolve().parents[1]
KINDS = {"Added", "Changed", "Removed", "Fixed", "Security"}


RELEASE = re.compile(r"^## \[(\d[^\]]*)\] - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)


def _unreleased(changelog):
    return re.search(r"^## \[Unreleased\]\n(.*?)^## ", changelog, re.MULTILINE | re.DOTALL)[1].strip()


def test_the_changelog_and_the_citation_are_of_the_newest_release():
    """A release has no unreleased changes. Between two of them, the version is a later one with .dev."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    newest, date = RELEASE.search(changelog).groups()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert newest == citation["version"]
    assert date == str(citation["date-released"])
    version = Version(winobench.__version__)
    assert version.is_devrelease == bool(_unreleased(changelog))
    assert version > Version(newest) if version.is_devrelease else version == Version(newest)
    assert {*re.findall(r"^### (\w+)$", changelog, re.MULTILINE)} <= KINDS
    assert len(citation["references"]) == 3


def test_the_bibtex_of_the_readme_is_the_citation():
    """Titles, years and authors of winobench and of the papers, in the same order."""
    (block,) = re.findall(r"^```bibtex\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    entries = [dict(re.findall(r"^  (\w+) = \{(.*)\},?$", entry, re.MULTILINE)) for entry in block.split("\n@")]
    software = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    expected = [(software["title"], software["date-released"].year, "{The winobench authors}")]
    assert [author["name"] for author in software["authors"]] == ["The winobench authors"]
    for paper in software["references"]:
        names = [f"{author['family-names']}, {author['given-names']}" for author in paper["authors"]]
        expected.append((paper["title"], paper["year"], " and ".join(names)))
    assert [(entry["title"], int(entry["year"]), entry["author"]) for entry in entries] == expected


@pytest.mark.parametrize("version", ["7.0.0", "7.1.0.dev0"])
def test_one_command_gives_the_tree_a_version(tmp_path, version):
    for name in ("CHANGELOG.md", "CITATION.cff", "winobench/base/version.py", ".ci/release"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    before = (tmp_path / "CHANGELOG.md").read_text()
    run = subprocess.run([tmp_path / ".ci" / "release", version], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert f'\n__version__ = "{version}"\n' in (tmp_path / "winobench" / "base" / "version.py").read_text()
    changelog, citation = ((tmp_path / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    if version == "7.0.0":
        newest, date = RELEASE.search(changelog).groups()
        assert newest == version
        assert _unreleased(changelog) == ""
        assert _unreleased(before) in changelog
        citation = yaml.safe_load(citation)
        assert (citation["version"], str(citation["date-released"])) == (version, date)
    else:
        assert (changelog, citation) == (before, (ROOT / "CITATION.cff").read_text())


@pytest.mark.parametrize("words", [[], ["7"], ["v7.0.0"], ["7.0.0", "7.1.0"]])
def test_other_words_are_no_version(words):
    run = subprocess.run([ROOT / ".ci" / "release", *words], capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr.startswith("usage: ")


def test_hooks_and_templates_are_yaml_and_name_files_that_exist():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    for hook in hooks:
        for word in hook["entry"].split():
            assert not word.startswith("tests/") or (ROOT / word).is_file()
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir():
        assert yaml.safe_load(path.read_text())


def test_the_workflow_runs_scripts_that_exist_on_every_python():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())["jobs"]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    scripts = {name for line in lines for name in re.findall(r"\.ci/\w+", line)}
    assert scripts == {".ci/block", ".ci/matrix", ".ci/run"}
    assert all(os.access(ROOT / name, os.X_OK) for name in scripts)
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    pythons = {text.rpartition(" ")[2] for text in supported if re.fullmatch(r"Programming .* :: \d\.\d+", text)}
    assert {cell.partition(":")[0] for cell in jobs["wheel"]["strategy"]["matrix"]["cell"]} == pythons


@pytest.mark.parametrize(("name", "word"), [("tests", "pytest"), ("main job", "launch.eval")])
def test_the_blocks_of_the_readme_are_found(name, word):
    run = subprocess.run([ROOT / ".ci" / "block", name], capture_output=True, text=True, check=True)
    assert word in run.stdout
    assert "```" not in run.stdout


def test_a_block_that_the_readme_lacks_is_an_error():
    assert subprocess.run([ROOT / ".ci" / "block", "nothing"], capture_output=True).returncode == 1


def test_the_container_installs_what_is_there():
    text = (ROOT / "Containerfile").read_text()
    run = re.search(r"^RUN (set -eu;.*?)\nENV", text, re.MULTILINE | re.DOTALL)[1].replace("\\\n", "")
    assert subprocess.run(["sh", "-n"], input=run, text=True).returncode == 0
    assert "--require-hashes --requirement /tmp/requirements.lock" in run
    assert text.index("\nUSER 1000\n") < text.index('\nENTRYPOINT ["winobench"]\n')
    extras = re.search(r"cpu\) ;;\s*(.*?)\)", run)[1]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {one for word in extras.split("|") for one in word.strip().split(",")} <= set(known)


def test_the_matrix_is_a_script():
    assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / "matrix")]).returncode == 0


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """A source distribution of a copy of the tracked files, and its wheel."""
    folder = tmp_path_factory.mktemp("release")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no repository, whose files could be listed")
    for name in filter(None, listed.stdout.split("\0")):
        there = folder / "source" / name
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, there)
    make = "import sys, setuptools.build_meta as b; b.build_sdist('../out'); b.build_wheel('../out')"
    (folder / "out").mkdir()
    subprocess.run([sys.executable, "-c", make], cwd=folder / "source", check=True, capture_output=True)
    (sdist,), (wheel,) = ((folder / "out").glob(pattern) for pattern in ("*.tar.gz", "*.whl"))
    return sdist, wheel


@pytest.mark.slow  # builds
def test_the_source_distribution_has_the_docs_and_the_plug_in(distributions):
    with tarfile.open(distributions[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"README.md", "CHANGELOG.md", "CITATION.cff", "requirements.lock"}
    assert {name.partition("/")[0] for name in names if name.endswith(".md")} >= {"docs"}
    assert "tests/plugins/package/pyproject.toml" in names
    assert not [name for name in names if name.startswith("tests/test_")]


@pytest.mark.slow  # builds, and runs the main job
def test_the_wheel_alone_does_the_main_job(distributions, tmp_path):
    place, empty, home = (tmp_path / name for name in ("place", "empty", "home"))
    with zipfile.ZipFile(distributions[1]) as archive:
        archive.extractall(place)
    assert all(path.name.startswith("winobench") for path in place.iterdir())
    for name in (
        "py.typed",
        "launch/eval.py",
        "contrib/planning/launch/cloud/templates/slurm.sh.jinja",
        "configs/gdbench.py",
    ):
        assert (place / "winobench" / name).is_file()
    (metadata,) = place.glob("winobench-*.dist-info/METADATA")
    head, _, description = metadata.read_text().partition("\n\n")
    assert "Classifier: Typing :: Typed" in head
    assert not re.findall(r"\]\((?!\w+:)[^)]*\)", description)
    empty.mkdir()
    home.mkdir()
    words = ["eval", "--config=gdbench:debug", "--tasks=clevr"]
    environment = {**os.environ, "PYTHONPATH": str(place), "HOME": str(home), "HF_HUB_OFFLINE": "1"}

    def python(*words):
        words = [sys.executable, "-P", *words]
        return subprocess.run(words, env=environment, cwd=empty, capture_output=True, text=True)

    run = python("-m", "winobench", *words)
    assert run.returncode == 0, run.stderr
    (results,) = empty.glob("runs/*/results.json")
    assert "clevr" in json.loads(results.read_text())["tasks"]
    found = python(
        "-c", "import winobench, winobench.launch as l; print(winobench.__file__, l.__file__)"
    ).stdout.split()
    assert len(found) == 2
    assert all(path.startswith(str(place)) for path in found)
