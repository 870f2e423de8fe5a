"""A bundle has what the server answers, whole or not at all, and nothing else of a run's folder."""

import json
import os
import re
import shutil

import numpy as np
import PIL.Image
import PIL.PngImagePlugin
import pyarrow.parquet as pq
import pytest

from tests import launching
from tests.expectations import raises
from tests.report.conftest import draw_nothing
from winobench.base.errors import InputError
from winobench.contrib.bundles import writing
from winobench.generation.collecting import collect_images
from winobench.prompts.prompt_files import Prompt
from winobench.viewer import documents, library, site, tasks

HOSTILE = "<img src=x onerror=alert(1)> & `~"


class InThisProcess:
    """A worker without its process, which takes seconds to start."""

    def __init__(self, functions):
        self._made = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def find(self, function, arguments, version, wait=0.0):
        content = getattr(tasks, function)(**arguments)
        if not isinstance(content, str | bytes):
            content = json.dumps(content, allow_nan=False)
        self._made += 1
        path = self.folder / str(self._made)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(InThisProcess, "folder", tmp_path_factory.mktemp("made"), raising=False)
    monkeypatch.setattr(writing, "Worker", InThisProcess)
    draw_nothing(monkeypatch)


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_a_bundle_is_what_the_server_answers(viewed, tmp_path):
    """Of runs of every kind, one of which was killed."""
    folder = tmp_path / "new" / "site"
    chosen = [viewed[place] for place in (0, 2, 3, 5, 6)]
    writing.write(chosen, folder)
    found = site.Site(library.Library(chosen))
    data = folder / "data"
    assert load(data / "site.json") == found.find("site.json").value | {"bundle": True}
    runs = {run["slug"]: run for run in load(data / "runs.json")["runs"]}
    assert {slug: run["status"] for slug, run in runs.items()} == {
        **dict.fromkeys(("weak", "direct", "text-first", "drawn"), "finished"),
        "killed": "interrupted",
    }
    expected = [run | {"folder": run["slug"]} for run in found.find("runs.json").value["runs"]]
    assert list(runs.values()) == expected
    assert load(data / "leaderboard.json") == found.find("leaderboard.json").value
    names = {name for name in files_of(data) if not name.startswith("runs/")}
    together = "~".join(slug for slug in runs if slug in ("weak", "direct"))
    reports = {f"report/{slugs}.html" for slugs in ("weak", "direct", "text-first", together)}
    assert names == {"site.json", "runs.json", "leaderboard.json", "pairs/direct~weak.json"} | reports
    labels = [runs[slug]["label"] for slug in ("direct", "weak")]
    assert (data / "report" / f"{together}.html").read_text() == documents.report_page(
        [next(path for path in chosen if path.name == slug) for slug in together.split("~")],
        [runs[slug]["label"] for slug in together.split("~")],
    )
    assert load(data / "pairs" / "direct~weak.json") == documents.pair_document(viewed[2], viewed[0], labels)
    weak, run = data / "runs" / "weak", found.find("runs/weak/run.json").value
    assert load(weak / "run.json") == run | {
        "exports": [name for name in run["exports"] if name != "inspect.zip" or (weak / "export" / name).exists()],
        "facts": [fact for fact in run["facts"] if fact[0] != "folder"],
    }
    for name in ("config.json", "results.json", "examples/clevr.parquet", "gallery/clevr.parquet"):
        assert (weak / name).read_bytes() == (viewed[0] / name).read_bytes()
    assert {name for name in files_of(weak / "errors")} == {
        f"{name}.parquet" for name in run["tasks"] if name != "mmbias"
    }
    table = documents.errors_table(tasks.read_run(viewed[0]), "square")
    assert pq.read_table(weak / "errors" / "square.parquet").to_pylist() == table.to_pylist()
    drawn = load(data / "runs" / "drawn" / "drawn.json")
    assert drawn == documents.images_document(viewed[5], "drawn")
    assert {image["file"] for image in drawn["images"]} | {"config.json", "drawn.json"} == files_of(
        data / "runs" / "drawn"
    )
    assert files_of(data / "runs" / "killed") == {"config.json"}


def test_the_application_is_there(viewed, tmp_path):
    writing.write([viewed[5]], tmp_path / "site")
    app = {name for name in files_of(writing.APP) if not name.startswith("data/")}
    assert {name for name in files_of(tmp_path / "site") if not name.startswith("data/")} == app | {".nojekyll"}
    assert all((tmp_path / "site" / name).read_bytes() == (writing.APP / name).read_bytes() for name in app)
    assert os.listdir(tmp_path) == ["site"]
    assert os.stat(tmp_path / "site").st_mode & 0o777 == 0o777 & ~_umask()


def _umask():
    now = os.umask(0)
    os.umask(now)
    return now


def test_a_bundle_replaces_a_bundle_and_nothing_else(viewed, tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    writing.write([viewed[5]], folder)
    (folder / "data" / "left.json").touch()
    writing.write([viewed[5]], folder)
    assert not (folder / "data" / "left.json").exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    (other / "data").mkdir()
    (other / "data" / "site.json").write_text("[]")
    for place in (other, other / "thesis.tex", viewed[0]):
        before = files_of(tmp_path)
        with raises("not-empty"):
            writing.write([viewed[5]], place)
        assert files_of(tmp_path) == before
    with raises("nothing-named"):
        writing.write([tmp_path / "other"], tmp_path / "new")


def test_nothing_is_left_of_a_bundle_that_fails(viewed, tmp_path, monkeypatch):
    folder = tmp_path / "site"
    writing.write([viewed[5]], folder)
    before = files_of(folder)
    monkeypatch.setattr(writing._Bundle, "_write_run", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with raises("cannot-write", "No space left"):
        writing.write([viewed[5]], folder)
    assert files_of(folder) == before
    assert os.listdir(tmp_path) == ["site"]


def test_runs_that_cannot_be_read(viewed, tmp_path, capsys):
    """They are in the table of runs with a sentence, and each document of theirs is one. The others are written."""
    root = tmp_path / "runs"
    shutil.copytree(viewed[0], root / "good")
    shutil.copytree(viewed[0], root / "broken")
    (root / "broken" / "examples" / "clevr.parquet").write_bytes(b"PAR1 cut")
    shutil.copytree(viewed[0], root / "lost")
    (root / "lost" / "results.json").write_text("{}")
    writing.write([root], tmp_path / "site")
    data = tmp_path / "site" / "data"
    runs = {run["slug"]: run for run in load(data / "runs.json")["runs"]}
    assert {slug: run["status"] for slug, run in runs.items()} == {
        "good": "finished",
        "broken": "finished",
        "lost": "unreadable",
    }
    assert runs["lost"]["reason"]
    assert "clevr.parquet" in load(data / "pairs" / "broken~good.json")["error"]
    assert re.search(r'<p role="alert">clevr\.parquet.*\.</p>', (data / "report" / "broken.html").read_text())
    assert (data / "report" / "good.html").read_text().count("<section") > 3
    assert "clevr.parquet" in capsys.readouterr().err
    broken = load(data / "runs" / "broken" / "run.json")
    assert broken["tasks"]["clevr"]["rows"] is None
    assert broken["exports"] == []


def test_hostile_folders(viewed, tmp_path):
    """Names become safe, and links do not lead out of a run's folder."""
    root = tmp_path / "runs"
    run = shutil.copytree(viewed[0], root / HOSTILE)
    shutil.copytree(viewed[0], root / "..weak")
    secret = tmp_path / "secret.parquet"
    secret.write_text("secret")
    for name in ("examples/clevr.parquet", "gallery/clevr.parquet"):
        (run / name).unlink()
        (run / name).symlink_to(secret)
    (run / "gallery" / "square.parquet").unlink()
    os.mkfifo(run / "gallery" / "square.parquet")
    writing.write([root], tmp_path / "site")
    data = tmp_path / "site" / "data"
    slugs = os.listdir(data / "runs")
    assert len(slugs) == 2
    assert all(site._SLUGS.fullmatch(slug) and slug.strip(".") for slug in slugs)
    assert not [path for path in (tmp_path / "site").rglob("*") if path.is_symlink()]
    assert not [path for path in data.rglob("*") if path.is_file() and path.read_bytes() == b"secret"]
    (slug,) = (slug for slug in slugs if slug.startswith("-img"))
    assert not {"examples/clevr.parquet", "gallery/clevr.parquet", "gallery/square.parquet"} & files_of(
        data / "runs" / slug
    )
    assert any(HOSTILE.split()[0] in run["folder"] for run in load(data / "runs.json")["runs"])


def test_a_function_that_makes_the_command(viewed, tmp_path):
    writing.write([viewed[0]], tmp_path / "site", f"{__name__}:command_of")
    assert load(tmp_path / "site" / "data" / "runs" / "weak" / "run.json")["command"] == "again clevr-tiny"


def command_of(run):
    return f"again {run.label}"


def test_what_takes_too_long_has_a_sentence(viewed, tmp_path, monkeypatch):
    monkeypatch.setattr(InThisProcess, "find", lambda *_, **named: None)
    writing.write([viewed[0]], tmp_path / "site")
    assert '<p role="alert">It took too long.</p>' in (tmp_path / "site/data/report/weak.html").read_text()
    with pytest.raises(InputError):
        writing.write([tmp_path / "nothing"], tmp_path / "another")


def _copied(viewed, folder, name, **settings):
    shutil.copytree(viewed[0], folder / name)
    path = folder / name / "config.json"
    path.write_text(json.dumps({**load(path), **settings}))
    return folder / name


def test_no_path_of_the_computer_is_published(viewed, tmp_path, monkeypatch):
    """Neither in files nor in the tables and archives among them. Files have the mode of the user's umask."""
    home, private = tmp_path / "unique-home", tmp_path / "unique-data"
    monkeypatch.setenv("HOME", str(home))
    settings = {**load(viewed[0] / "config.json")["config"], "data_dir": f"{private}/sets"}
    _copied(viewed, home / "runs", "one", config=settings)
    _copied(viewed, home / "runs", "two", config=settings, status=f"failed: {private}/x is not there")
    before = os.umask(0o027)
    try:
        writing.write([home / "runs"], tmp_path / "site")
    finally:
        os.umask(before)
    assert load(tmp_path / "site/data/runs/one/config.json")["config"]["data_dir"] == "sets"
    for path in (tmp_path / "site").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640)
        if path.is_dir():
            continue
        content = path.read_bytes()
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            content += repr((table.schema.metadata, table.to_pylist())).encode()
        assert b"unique-" not in content, path


def test_texts_in_images_are_not_published(tmp_path):
    """The run keeps them in its copies. The pixels stay the same."""
    (folder := tmp_path / "in").mkdir()
    texts = PIL.PngImagePlugin.PngInfo()
    texts.add_text("prompt", "a unique prompt")
    texts.add_text("workflow", "/unique/path", zip=True)
    texts.add_itxt("parameters", "/unique/path")
    texts.add(b"prVt", b"/unique/path")
    exif = PIL.Image.Exif()
    exif[0x010E] = "/unique/path"
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    PIL.Image.fromarray(pixels).save(folder / "a.png", pnginfo=texts, exif=exif)
    run = collect_images(folder, [Prompt("a", "A cube")], tmp_path / "runs" / "one", progress=False)
    (copy,) = (run.path(record) for record in run.records)
    assert copy.read_bytes().count(b"unique") > 2
    writing.write([run.folder], tmp_path / "site")
    (published,) = (tmp_path / "site" / "data").rglob(copy.name)
    content = published.read_bytes()
    assert not re.search(rb"unique|tEXt|zTXt|iTXt|eXIf|prVt", content)
    with PIL.Image.open(published) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)
        assert image.info == {}


@pytest.mark.parametrize("started", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "soon"])
def test_an_odd_date_keeps_no_run_from_the_bundle(viewed, tmp_path, started):
    for name, settings in (("good", {}), ("odd", {"started": started})):
        _copied(viewed, tmp_path / "runs", name, **settings)
    writing.write([tmp_path / "runs"], tmp_path / "site")
    for name in ("good", "odd"):
        assert "<section" in (tmp_path / f"site/data/report/{name}.html").read_text()


def test_what_fails_has_a_sentence_and_the_others_are_there(viewed, tmp_path, monkeypatch):
    for name in ("bad", "good"):
        _copied(viewed, tmp_path / "runs", name)
    run = tasks.run

    def fails(path, *arguments):
        return 1 / 0 if path.endswith("bad") else run(path, *arguments)

    monkeypatch.setattr(tasks, "run", fails)
    writing.write([tmp_path / "runs"], tmp_path / "site")
    status = {run["slug"]: run["status"] for run in load(tmp_path / "site/data/runs.json")["runs"]}
    assert status == {"bad": library.UNREADABLE, "good": library.FINISHED}


def test_a_name_that_is_too_long_is_refused(viewed, tmp_path):
    with raises("cannot-write"):
        writing.write([viewed[0]], tmp_path / ("a" * 300))


def test_folders_without_a_run_are_refused_at_the_command_line(tmp_path):
    launching.refuse("launch.view", ".", "--bundle=site", cwd=tmp_path, named=["hold no run"])
    assert not (tmp_path / "site").exists()
