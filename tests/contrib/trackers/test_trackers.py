"""Experiment trackers of evaluations: what they are told, that they continue, and that none ends a run."""

import json
import sys
import types

import pytest

from tests import wscplus_files
from tests.evaluation import fakes
from tests.expectations import raises
from tests.training.test_writers import events, no_wandb_variables  # noqa: F401
from winobench.base import trackers
from winobench.evaluation.evaluate import evaluate
from winobench.evaluation.questions import evaluate_questions
from winobench.responders.recorded import RecordedModel
from winobench.runs import lifecycle


class Calls(list):
    """What a fake package is asked to do: (method, arguments)."""

    def of(self, name):
        return [arguments for method, arguments in self if method == name]


@pytest.fixture
def calls(monkeypatch):
    """Fake packages wandb and trackio, which write down every call. A progress report comes after every batch."""
    result = Calls()

    def recorder(name):
        return lambda *words, **named: result.append((name, (*words, named) if words else named))

    def init(*words, **named):
        result.append(("init", named))
        summary = types.SimpleNamespace(update=recorder("summary"))
        return types.SimpleNamespace(log=recorder("log"), finish=recorder("finish"), summary=summary)

    for name in ("wandb", "trackio"):
        module = types.ModuleType(name)
        module.init, module.Table = init, lambda *words, **named: (words, named)
        module.__spec__ = types.SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(trackers, "_SECONDS", 0.0)
    return result


def run(folder, scorer=None, **more):
    tasks = [fakes.text_task("words", 6), fakes.square_task()]
    how = {"num_samples": 4, "progress": False, "reuse": False, "log": "wandb", **more}
    return evaluate(scorer or fakes.FakeScorer(), tasks, folder, **how)


def test_an_evaluation_tells_config_progress_and_results(calls, tmp_path):
    results = run(tmp_path / "run")
    (init,) = calls.of("init")
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {name: recorded[name] for name in init["config"]} == init["config"]
    assert {"identity", "versions"} <= set(init["config"])
    progress = [(words[0], words[-1]["step"]) for words in calls.of("log") if "passes" in words[0]]
    assert [values["passes"] for values, _ in progress] == [step for _, step in progress]
    assert progress[-1][1] == results["passes"] == progress[-1][0]["passes_in_all"]
    assert all(values["passes_per_second"] > 0 for values, _ in progress[:-1])
    ((summary, _),) = calls.of("summary")
    entry = results["tasks"]["words"]["accuracy"]
    for end, key in (("", "value"), ("/low", "low"), ("/high", "high")):
        assert summary[f"words/accuracy{end}"] == entry[key]
    ((columns, rows), _) = calls.of("log")[-1][0]["results"]
    assert columns[:3] == ["task", "metric", "group"]
    assert len(rows) == sum(map(len, results["tasks"].values()))
    assert calls[-1] == ("finish", {})


def test_a_run_that_continues_is_the_same_run_there(calls, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(folder, fakes.FakeScorer(stop_after=3))
    assert calls[-1] == ("finish", {"exit_code": 1})
    results = run(folder)
    first, second = calls.of("init")
    assert first["id"] == second["id"]
    steps = [words[-1]["step"] for words in calls.of("log") if "step" in words[-1]]
    assert steps == sorted(steps)
    assert steps[-1] == results["passes"]
    assert run(folder)["tasks"] == results["tasks"]
    run(folder, overwrite=True)
    assert [call["id"] == first["id"] for call in calls.of("init")] == [True, True, True, False]


def test_trackers_change_neither_folder_nor_results(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    without = run(None, log=())
    again = run(None, log="trackio,tensorboard", overwrite=True)
    assert without["workdir"] == again["workdir"]
    assert without["tasks"] == again["tasks"]
    (init,) = calls.of("init")
    assert init["resume"] == "allow"
    scalars, _ = events(tmp_path / again["workdir"] / "tensorboard")
    result = {tag: value for _, _, tag, value in scalars}
    entry = again["tasks"]["words"]["accuracy"]
    assert result["words/accuracy"] == pytest.approx(entry["value"])
    assert result["passes"] == again["passes"]


def test_a_race_and_a_text_run_report_their_steps(calls, tmp_path):
    results = run(tmp_path / "race", mode="race", num_samples=40)
    steps = [words[-1]["step"] for words in calls.of("log") if "step" in words[-1]]
    assert steps == sorted(steps)
    assert 0 < steps[-1] <= results["passes"]
    calls.clear()
    model = RecordedModel(f"recorded:{wscplus_files.write(tmp_path / 'data')}")
    how = {"protocol": "toe", "data_dir": str(tmp_path / "data"), "progress": False, "log": ["wandb"]}
    results = evaluate_questions(model, "wscplus", tmp_path / "texts", **how)
    assert calls.of("summary")[0][0]["wscplus/accuracy"] == results["tasks"]["wscplus"]["accuracy"]["value"]
    assert [words[-1]["step"] for words in calls.of("log") if "requests" in words[0]][-1] == results["requests"]


@pytest.mark.parametrize("method", ["init", "log", "summary", "finish"])
def test_a_tracker_that_fails_costs_one_warning(calls, tmp_path, monkeypatch, caplog, method):
    def fail(*words, **named):
        raise ConnectionError("no route to the host")

    ready = sys.modules["wandb"].init
    if method == "init":
        sys.modules["wandb"].init = fail
    else:

        def init(**named):
            made = ready(**named)
            where, name = (made.summary, "update") if method == "summary" else (made, method)
            setattr(where, name, fail)
            return made

        sys.modules["wandb"].init = init
    results = run(tmp_path / "run", log="wandb,tensorboard")
    assert results["tasks"]
    warnings = [record.getMessage() for record in caplog.records if "wandb" in record.getMessage()]
    assert warnings == ["wandb fails and gets nothing more of this run: no route to the host"]
    assert events(tmp_path / "run" / "tensorboard")[0]


def test_what_is_not_there_is_refused_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "_is_installed", lambda name: False)
    with raises("missing-package", "winobench[trackio]"):
        run(tmp_path / "run", log="trackio")
    with raises("bad-value", "mlflow", "tensorboard"):
        run(tmp_path / "run", log=["mlflow"])
    assert not (tmp_path / "run").exists()
    assert trackers.read("tensorboard") == ["tensorboard"]


def test_only_the_first_process_reports(calls, tmp_path, monkeypatch):
    monkeypatch.setattr(lifecycle, "_is_first", lambda: False)
    run(tmp_path / "run")
    assert calls == []


def test_wandb_itself_takes_a_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run(tmp_path / "run")
    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    assert b"words/accuracy" in written.read_bytes()


def test_trackio_itself_takes_a_run(tmp_path, monkeypatch):
    trackio = pytest.importorskip("trackio")
    from trackio import utils
    from trackio.sqlite_storage import SQLiteStorage

    for module in (utils, sys.modules["trackio.sqlite_storage"]):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    del trackio
    results = run(tmp_path / "run", log="trackio")
    (name,) = SQLiteStorage.get_runs("winobench")
    assert name.startswith("run-")
    logged = SQLiteStorage.get_logs("winobench", name)
    assert logged[-1]["words/accuracy"] == results["tasks"]["words"]["accuracy"]["value"]
