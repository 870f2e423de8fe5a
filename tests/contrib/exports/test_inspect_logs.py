"""Runs as logs of inspect_ai, which the library reads again."""

import json
import shutil
import sys
import zipfile

import pytest

import winobench
from tests.expectations import raises
from tests.report.conftest import HOSTILE
from tests.report.test_exports import REASON, with_private_paths
from winobench import report
from winobench.contrib.exports import inspect_logs
from winobench.report import exports


def test_logs_need_a_package(text_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with raises("missing-package", "winobench[inspect]"):
        report.inspect_log(text_run, tmp_path)


def test_logs_need_a_folder(text_run):
    with raises("nothing-named", "a folder", "--out"):
        exports.export([text_run], "inspect")


@pytest.fixture(scope="module")
def logs(odd_run, text_run, tmp_path_factory):
    """Task -> its log, read by the library."""
    read = pytest.importorskip("inspect_ai.log").read_eval_log
    folder = tmp_path_factory.mktemp("logs")
    paths = report.inspect_log(odd_run, folder) + report.inspect_log(text_run, folder)
    found = [read(str(path)) for path in paths]
    return {log.eval.task: log for log in found}


def test_a_log_has_the_numbers_and_the_samples(logs, odd_run, text_run):
    from inspect_ai.log import list_eval_logs

    assert set(logs) == {*odd_run.tasks, "broken", *text_run.tasks}
    folder = next(iter(logs.values())).location.rpartition("/")[0]
    assert {info.task for info in list_eval_logs(folder)} == {task.replace("_", "-") for task in logs}
    for run in (odd_run, text_run):
        for task, record in run.tasks.items():
            log = logs[task]
            assert {score.name: score.metrics["value"].value for score in log.results.scores} == {
                row: entry["value"] for row, entry in record.results.items()
            }
            assert {sample.id for sample in log.samples} == set(record.examples.ids)
            if record.has_answers:
                right = sum(sample.scores[record.shown[0]].value == "C" for sample in log.samples)
                assert right == record.examples.correct.sum()
    assert (logs["broken"].status, logs["broken"].error.message) == ("error", REASON)


def test_a_sample_has_what_was_asked_and_answered(logs, odd_run, text_run):
    by_id = {sample.id: sample for sample in logs["clevr"].samples}
    examples = odd_run.tasks["clevr"].examples
    for name, scores, target in zip(examples.ids, examples.scores, examples.targets, strict=True):
        sample = by_id[name]
        assert (sample.target, sample.scores["accuracy"].answer) == ("AB"[target], "AB"[scores.argmax()])
        assert sample.metadata["scores"] == scores.tolist()
        assert sample.choices == list(examples.texts[examples.ids.index(name)])
    questions = text_run.tasks["wscplus"].examples
    sample = next(one for one in logs["wscplus"].samples if one.id == questions.ids[0])
    assert sample.output.completion == questions.responses[0][0]
    assert sample.choices == list(questions.options[0])
    assert questions.named[0]["statement"] in sample.input
    assert logs["square"].samples[0].target == list(odd_run.tasks["square"].examples.texts[0])
    assert set(logs["square"].samples[0].scores) == {"text", "image", "group"}
    assert HOSTILE in logs["retrieval"].samples[0].messages[0].text
    assert len(logs["mmbias"].samples[0].scores["score"].value) == 4


def test_the_archive_is_like_the_librarys_own(logs, tmp_path):
    from inspect_ai.log import write_eval_log

    for task in ("relations", "broken", "wscplus"):
        write_eval_log(logs[task], str(tmp_path / "again.eval"))
        ours, theirs = (zipfile.ZipFile(path) for path in (logs[task].location, tmp_path / "again.eval"))
        names = {name for name in theirs.namelist() if not name.startswith("_journal/summaries")}
        assert set(ours.namelist()) == names
        for name in names:
            one, other = (json.loads(archive.read(name)) for archive in (ours, theirs))
            if isinstance(one, list):
                one, other = (sorted(some, key=lambda row: row["id"]) for some in (one, other))
            elif name == "header.json" or name.startswith("_journal"):
                other["eval"]["dataset"].pop("sample_ids", None)
            else:  # images are moved into attachments
                one, other = (
                    {key: row.get(key) for key in ("id", "target", "scores", "metadata")} for row in (one, other)
                )
            assert one == other


def test_no_log_names_a_folder_of_the_machine(run_folders, tmp_path):
    pytest.importorskip("inspect_ai")
    run = with_private_paths(run_folders[0], tmp_path / "run")
    exports.export([run], "inspect", tmp_path / "logs")
    texts = [
        archive.read(name).decode()
        for archive in map(zipfile.ZipFile, (tmp_path / "logs").iterdir())
        for name in archive.namelist()
    ]
    for text in texts:
        assert "somebody" not in text
        assert "secret place" not in text


@pytest.mark.parametrize("few", [False, True])
def test_a_mark_of_a_small_n_is_in_a_log(run_folders, tmp_path, few):
    pytest.importorskip("inspect_ai")
    folder = shutil.copytree(run_folders[0], tmp_path / "run")
    results = json.loads((folder / "results.json").read_text())
    for entry in results["tasks"]["mmbias"].values():
        entry["too_few"] = few
    (folder / "results.json").write_text(json.dumps(results))
    metrics = inspect_logs._header(winobench.read_run(folder), "mmbias").results.scores[0].metrics
    assert ("too_few" in metrics) == few


def test_logs_in_one_file_and_samples_of_odd_names(text_run, tmp_path):
    pytest.importorskip("inspect_ai")
    (path,) = report.inspect_log(text_run, tmp_path / "logs.zip")
    (name,) = zipfile.ZipFile(path).namelist()
    assert name.endswith(".eval")
    assert list(tmp_path.iterdir()) == [path]
    odd = ["a\0b", "../../up", "", "x" * 300]
    assert [inspect_logs._id(row, name) for row, name in enumerate(["fine/1", *odd])] == [
        "fine/1",
        *(f"row {row}" for row in range(1, 5)),
    ]
