"""A run that ends at any moment leaves a folder that the same command, or --overwrite, can use."""

import contextlib
import shutil
import sys

import pytest

from tests.evaluation import fakes
from tests.evaluation.fakes import FakeScorer, config
from tests.expectations import raises
from winobench.base import files
from winobench.base.errors import InputError
from winobench.evaluation import evaluate

TASKS = (fakes.text_task(count=2),)
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "open")
_watched = {"folder": None, "left": None, "error": KeyboardInterrupt}


def _watch(event, arguments):
    """Raises at the given one of the operations that change something below a folder."""
    if _watched["folder"] is None or event not in _CHANGES or not str(arguments[0]).startswith(_watched["folder"]):
        return
    if event == "open" and (not isinstance(arguments[1], str) or not set(arguments[1]) & set("wax+")):
        return
    _watched["left"] -= 1
    if _watched["left"] < 0:
        _watched["folder"] = None
        raise _watched["error"]


@pytest.fixture(scope="module", autouse=True)
def _hook():
    sys.addaudithook(_watch)  # which cannot be taken back, and does nothing outside of these tests


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    """Hundreds of runs need not wait for a disk."""
    monkeypatch.setattr(files, "sync", lambda path: None)


def ends_at(number, folder, error, function):
    """Calls a function, in which the file operation of this number, from 0, fails; returns whether there was one."""
    _watched.update(folder=str(folder), left=number, error=error)
    with contextlib.suppress(KeyboardInterrupt, OSError, InputError):
        function(folder)
    ended, _watched["folder"] = _watched["folder"] is None, None
    return ended


def run(workdir, scorer=None, **changes):
    given = {"num_samples": 2, "reuse": False, "progress": False, **changes}
    return evaluate.evaluate(scorer or FakeScorer(), TASKS, workdir, **given)


def with_report(workdir):
    run(workdir)
    (workdir / "report").mkdir()
    (workdir / "report" / "report.html").write_text("a page")


def each_end(tmp_path, prepare, interrupted, error=KeyboardInterrupt):
    """The folders that a call leaves behind when it ends at its first, second, ... file operation."""
    for number in range(1000):
        folder = tmp_path / f"run-{number}"
        prepare(folder)
        ended = ends_at(number, folder, error, interrupted)
        yield folder
        if not ended:
            assert number > 5
            return
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_overwriting_may_end_anywhere(tmp_path, error):
    expected = run(tmp_path / "expected", num_samples=3)["tasks"]
    for folder in each_end(tmp_path, with_report, lambda folder: run(folder, num_samples=3, overwrite=True), error):
        assert (folder / "report" / "report.html").exists()
        is_new = config(folder)["identity"]["sampling"]["num_samples"] == 3
        copy = shutil.copytree(folder, tmp_path / "copy")
        # With the new settings the folder is taken where it is the new run's already, and with --overwrite always.
        if is_new:
            assert run(copy, num_samples=3)["tasks"] == expected
        else:
            with raises("another-run"):
                run(copy, num_samples=3)
            run(copy)  # and the old run goes on
        shutil.rmtree(copy)
        assert run(folder, num_samples=3, overwrite=True)["tasks"] == expected


def test_a_first_run_may_end_anywhere(tmp_path):
    expected = run(tmp_path / "expected")["tasks"]
    for folder in each_end(tmp_path, lambda folder: None, run):
        assert run(folder)["tasks"] == expected


@pytest.mark.slow
def test_a_finished_run_may_end_anywhere_when_it_is_summarised_again(tmp_path):
    """As it is without its results. With them, nothing is written."""
    expected = run(tmp_path / "expected")["tasks"]

    def without_results(folder):
        with_report(folder)
        (folder / "results.json").unlink()

    for folder in each_end(tmp_path, without_results, run):
        assert run(folder)["tasks"] == expected
    assert not ends_at(0, tmp_path / "expected", KeyboardInterrupt, run)


def test_before_the_first_error_an_overwritten_run_stays_one(tmp_path):
    with_report(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", FakeScorer(stop_after=0), num_samples=3, overwrite=True)
    assert config(tmp_path / "run")["status"] == "interrupted"
    run(tmp_path / "run", num_samples=3)
    with raises("another-run"):
        run(tmp_path / "run", num_samples=4)
    run(tmp_path / "run", num_samples=4, overwrite=True)


def test_what_earlier_versions_left_behind_is_taken(tmp_path):
    """A report without its run, or records without their config."""
    with_report(tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    with raises("not-a-run"):
        run(tmp_path / "run")
    run(shutil.copytree(tmp_path / "run", tmp_path / "overwritten"), overwrite=True)
    for name in ("errors", "examples", "gallery"):
        shutil.rmtree(tmp_path / "run" / name)
    (tmp_path / "run" / "results.json").unlink()
    run(tmp_path / "run")


def test_files_of_others_are_never_deleted(tmp_path):
    for name in ("notes.txt", "errors/notes.txt", "data/part-0-00000.parquet"):
        folder = tmp_path / name.replace("/", "-")
        file = folder / name
        file.parent.mkdir(parents=True)
        file.write_text("mine")
        for overwrite in (False, True):
            with raises("not-a-run"):
                run(folder, overwrite=overwrite)
        assert file.read_text() == "mine"
