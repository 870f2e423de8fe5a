"""Results in other formats, each read again by the library that it is for."""

import csv
import io
import json
import re
import shutil

import huggingface_hub
import pyarrow.parquet as pq
import pytest
import yaml

import winobench
from tests import wscplus_files
from tests.expectations import raises
from tests.report.conftest import HOSTILE
from winobench import report
from winobench.evaluation.questions import evaluate_questions
from winobench.report import exports
from winobench.responders.recorded import RecordedModel

REASON = f"{HOSTILE} | a & b\n- c"


@pytest.fixture(scope="module")
def odd_run(run_folders, tmp_path_factory):
    """A run of images of every kind whose names are hostile, with a task that failed."""
    folder = shutil.copytree(run_folders[0], tmp_path_factory.mktemp("odd") / "run")
    config, results = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "results"))
    config["model"] = config["config"]["model"] = results["config"]["model"] = f"{HOSTILE}: | $x$\\"
    results["failed"] = {"broken": REASON}
    for name, content in (("config", config), ("results", results)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return winobench.read_run(folder)


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    root = tmp_path_factory.mktemp("texts")
    model = RecordedModel(f"recorded:{wscplus_files.write(root / 'data', said=lambda number, answer: 0)}")
    how = {"protocol": "toe", "data_dir": str(root / "data"), "progress": False, "model": "gpt"}
    return winobench.read_run(evaluate_questions(model, "wscplus", root / "run", **how)["workdir"])


def test_runs_stand_side_by_side_or_one_under_the_other(run_folders, tmp_path):
    runs = [winobench.read_run(folder) for folder in run_folders[:2]]
    assert exports.export(runs[:1], "csv", groups=True) == runs[0].table("csv", groups=True)
    rows = list(csv.DictReader(io.StringIO(exports.export(runs, "csv"))))
    assert [row["run"] for row in rows] == [run.label for run in runs for _ in range(len(rows) // 2)]
    assert exports.export(runs, "parquet", tmp_path / "t.parquet") is None
    table = pq.read_table(tmp_path / "t.parquet")
    assert [
        {name: "" if cell is None else str(cell) for name, cell in row.items()} for row in table.to_pylist()
    ] == rows
    heading, _, first, *_ = exports.export(runs, "markdown").splitlines()
    for run in runs:
        assert f"{run.label}, value (95% interval)" in heading
        entry = run.tasks["clevr"].results["accuracy"]
        value, low, high = (f"{100 * entry[key]:.1f}" for key in ("value", "low", "high"))
        assert f"| {value}% ({low} to {high}) |" in first


def test_a_model_card_has_the_table_the_command_and_the_papers(odd_run, text_run):
    card = report.model_card(odd_run, "winobench eval --model='```x'")
    assert odd_run.table("markdown") in card
    assert "````bash\n" in card
    assert "arXiv:2305.16397" in card
    assert not re.search(r"(?<!\\)[<&]", card)
    assert str(odd_run.path) not in card
    (failed,) = (line for line in card.splitlines() if "gave no numbers" in line)
    assert r"\| a \& b - c" in failed
    assert "arXiv:2401.17703" in report.model_card(text_run)


@pytest.mark.parametrize("name", ["odd_run", "text_run"])
def test_the_hub_reads_its_metadata(request, name):
    run = request.getfixturevalue(name)
    text = report.eval_results(run)
    data = huggingface_hub.ModelCard(f"---\n{text}---\n").data
    assert data.model_name == run.label
    found = {
        (result.dataset_type.removeprefix("winobench-"), result.metric_type): result for result in data.eval_results
    }
    wanted = {(task, row): entry for task, record in run.tasks.items() for row, entry in record.results.items()}
    assert {key: result.metric_value for key, result in found.items()} == {
        key: entry["value"] for key, entry in wanted.items() if "/" not in key[1]
    }
    assert all(result.metric_args["low"] == wanted[key]["low"] for key, result in found.items())
    entries = huggingface_hub.parse_eval_result_entries(yaml.safe_load(report.eval_results(run, "owner/name")))
    assert {(entry.dataset_id, entry.task_id): entry.value for entry in entries} == {
        ("owner/name", task): record.results[record.shown[0]]["value"] for task, record in run.tasks.items()
    }


@pytest.mark.parametrize(
    ("code", "said", "arguments"),
    [
        ("unknown-name", "excel", {"format": "excel"}),
        ("nothing-named", "--out", {"format": "parquet"}),
        ("option-of-others", "eval-results", {"format": "csv", "dataset": "a/b"}),
        ("bad-name", "OWNER/NAME", {"format": "eval-results", "dataset": "a"}),
        ("too-many-runs", "2", {"format": "eval-results", "runs": 2}),
        ("cannot-write", "t.csv", {"format": "csv", "out": "/nowhere/t.csv"}),
    ],
)
def test_what_no_format_can_is_refused(text_run, code, said, arguments):
    arguments = dict(arguments)
    runs = [text_run] * arguments.pop("runs", 1)
    with raises(code, said):
        exports.export(runs, **arguments)


def with_private_paths(run_folder, folder):
    """A copy of a run with a folder of the machine in its settings, model, label and the reason of a failure."""
    shutil.copytree(run_folder, folder)
    secret = "/home/somebody/secret place"
    config, results = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "results"))
    for settings in (config, config["config"], results["config"]):
        settings |= {"model": f"{secret}/model", "data_dir": f"{secret}/data"}
    config["label"] = f"{secret}/model"
    results["failed"] = {"broken": f"{secret}/data/broken.jsonl has no line"}
    for name, content in (("config", config), ("results", results)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return winobench.read_run(folder)


def test_nothing_published_names_a_folder_of_the_machine(run_folders, tmp_path):
    """By the public functions as by the command."""
    run = with_private_paths(run_folders[0], tmp_path / "run")
    texts = [report.model_card(run, "winobench eval"), report.eval_results(run)]
    texts += [exports.export([run], format) for format in ("csv", "markdown", "latex", "model-card", "eval-results")]
    exports.export([run], "parquet", tmp_path / "table.parquet")
    texts.append(str(pq.read_table(tmp_path / "table.parquet").to_pylist()))
    for text in texts:
        assert "somebody" not in text
        assert "secret place" not in text


@pytest.mark.parametrize("few", [False, True])
def test_a_mark_of_a_small_n_is_exported(run_folders, tmp_path, few):
    folder = shutil.copytree(run_folders[0], tmp_path / "run")
    results = json.loads((folder / "results.json").read_text())
    for entry in results["tasks"]["mmbias"].values():
        entry["too_few"] = few
    (folder / "results.json").write_text(json.dumps(results))
    run = winobench.read_run(folder)
    assert ("n too small" in report.model_card(run)) == few
    assert ("n too small" in run.table()) == few
    rows = csv.DictReader(io.StringIO(exports.export([run], "csv")))
    assert next(row for row in rows if row["task"] == "mmbias")["too_few"] == str(few)
