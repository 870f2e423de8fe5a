"""The types of config.json and results.json: what is written fits them, and what does not fit is one sentence."""

import copy
import json
import pathlib
import runpy
import shutil
import typing

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.evaluation import fakes, text_fakes
from tests.expectations import raises
from tests.report.conftest import WithoutSamples
from winobench.base.errors import InputError
from winobench.evaluation import evaluate, questions
from winobench.report.sections import what_was_run
from winobench.runs import reading, schema

_KINDS = (fakes.text_task(), fakes.square_task(), fakes.bias_task())


def _scored(scorer=fakes.FakeScorer, tasks=_KINDS[:1], **options):
    return lambda folder: evaluate.evaluate(scorer(), tasks, folder, progress=False, label="mine", **options)


def _asked(responder):
    options = {"progress": False, "label": "mine"}
    return lambda folder: questions.evaluate_questions(responder, [text_fakes.text_task()], folder, **options)


RUNS = {
    "_images": _scored(tasks=_KINDS, num_samples=4, num_bias_samples=3),
    "_race": _scored(num_samples=16, mode="race"),
    "_timesteps": _scored(timesteps=[1, 5, 9], num_bias_samples=3),
    "_without_samples": _scored(WithoutSamples),
    "_texts": _asked(text_fakes.ScriptedResponder()),
    "_failing_calls": _asked(text_fakes.PaidResponder(failing=("The fruit 1",))),
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """Name in RUNS -> a finished run's folder, which tests must not change."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("runs") / name
            RUNS[name](made[name])
        return made[name]

    return get


def _load(folder):
    return [json.loads((folder / name).read_text()) for name in ("config.json", "results.json")]


@pytest.mark.parametrize("name", RUNS)
def test_what_is_written_fits_and_is_complete_and_the_json_schemas_say_the_same(run_folder, name):
    config, results = _load(run_folder(name))
    schema.check(config, schema.Config, "config.json", strict=True)
    schema.check(results, schema.Results, "results.json", strict=True)
    is_text = "protocol" in config["identity"]
    only_images = {"passes", "computed_passes"}
    only_texts = {"failed_calls", "protocols", "requests", "asked", "endings", "tokens", "cost"}
    left_out = (only_images if is_text else only_texts) | ({"race"} if name != "_race" else set())
    assert results.keys() == schema.Results.__annotations__.keys() - left_out
    left_out = {"rounds", "metrics"} if is_text else {"pictures", "files", "recorded"}
    assert config.keys() == schema.Config.__annotations__.keys() - left_out
    left_out = {"seeds"} if is_text else set()
    assert config["versions"].keys() == schema.Versions.__annotations__.keys() - left_out
    for content, expected in ((config, schema.Config), (results, schema.Results)):
        validator = jsonschema.Draft202012Validator(schema.json_schema(expected, "a file"))
        validator.check_schema(validator.schema)
        assert not list(validator.iter_errors(content))
        faults = {"tasks": 5, "schema": "two", "versions": [], "status": 1, "passes": 1.5, "metrics": {"a": {}}}
        for change in ({key: fault} for key, fault in faults.items()):
            changed = {**content, **change}
            fits = schema._problem(changed, expected, "", False) is None
            assert validator.is_valid(changed) == fits, change


def test_the_files_of_the_json_schemas_are_up_to_date():
    script = pathlib.Path(__file__).parents[2] / "docs" / "write_schemas.py"
    assert runpy.run_path(str(script))["main"](["--check"]) == 0, "run python docs/write_schemas.py"


def _places(value, path=()):
    """Every place in a JSON value but what is free in form: the launcher's config and fingerprints."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("config", "scorer"):
                yield from _places(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from _places(value[0], (*path, 0))


def _with(value, path, new):
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed


ODD = [None, True, 5, -1, 1.5, float("nan"), 1e400, "x", "", [], [1], ["x"], [None]]
ODD += [{}, {"x": 1}, {"x": None}, {"x": {}}]


@pytest.mark.parametrize("name", ["_images", "_race", "_failing_calls"])
@pytest.mark.parametrize("file", [0, 1])
def test_any_odd_value_is_read_or_refused_in_one_sentence(run_folder, tmp_path, name, file):
    folder = shutil.copytree(run_folder(name), tmp_path / "run")
    contents = _load(folder)
    path = folder / ("config.json", "results.json")[file]
    refused = []
    num_read = 0
    for number, place in enumerate(list(_places(contents[file]))[1:]):
        # Of the odd values a few for each place, other ones from place to place.
        for odd in ODD[number % 9 :: 9]:
            path.write_text(json.dumps(_with(contents[file], place, odd)))
            try:
                run = reading.read_run(folder)
                what_was_run.run_facts(run)
                what_was_run.summary_sentences(what_was_run.ReportData([run], 10, 0))
                num_read += 1
            except InputError as error:
                refused.append(str(error))
    assert len(refused) > num_read
    assert max(map(len, refused)) < 600
    assert not any("\n" in sentence for sentence in refused)


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        *((content, ("cannot-read", "cannot-read")) for content in ("", "{", "[" * 100_000)),
        ("[]", ("not-a-run", "not-a-run")),
        *((content, ("another-version", "empty-file")) for content in ('{"schema": 2}', '{"schema": "2"}')),
    ],
)
@pytest.mark.parametrize("file", ["config.json", "results.json"])
def test_damaged_files_are_refused_in_one_sentence(run_folder, tmp_path, content, codes, file):
    folder = shutil.copytree(run_folder("_images"), tmp_path / "run")
    (folder / file).write_text(content)
    with raises(codes[file == "results.json"], file):
        reading.read_run(folder)


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [
        ("_images", "id", lambda rows: pa.nulls(rows, pa.string())),
        ("_images", "images", lambda rows: pa.array([[]] * rows, pa.list_(pa.string()))),
        ("_images", "scores", lambda rows: pa.array([[[1.0]]] * rows)),
        ("_images", "target", lambda rows: pa.array([9] * rows)),
        ("_images", "correct", lambda rows: pa.array([[True]] * rows)),
        ("_texts", "answer", lambda rows: pa.nulls(rows, pa.int32())),
    ],
)
def test_example_tables_of_other_columns_are_refused(run_folder, tmp_path, kind, column, values):
    folder = shutil.copytree(run_folder(kind), tmp_path / "run")
    path = next((folder / "examples").glob("words*.parquet" if kind == "_images" else "*.parquet"))
    table = pq.read_table(path)
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, values(len(table))), path)
    with raises("damaged-examples", path.name):
        reading.read_run(folder)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 500])
def test_tasks_that_no_file_can_be_named_after(run_folder, tmp_path, name):
    folder = shutil.copytree(run_folder("_images"), tmp_path / "run")
    _, results = _load(folder)
    (folder / "results.json").write_text(json.dumps({**results, "tasks": {name: {}}}))
    with raises("damaged-file", "results.json"):
        reading.read_run(folder)


class _Inner(typing.TypedDict):
    known: typing.Required[int]
    other: typing.NotRequired[typing.Literal["a", "b"]]


@pytest.mark.parametrize(
    ("value", "expected", "problem"),
    [
        ({"known": 1}, _Inner, None),
        ({"known": 1, "more": 2}, _Inner, ("unknown-field", "file", "'more'")),
        ({"known": True}, _Inner, ("wrong-value", "known of file", "True")),
        ({"known": 1, "other": "c"}, _Inner, ("wrong-value", "other of file", "'c'", "'a'", "'b'")),
        ({}, _Inner, ("missing-field", "file", "'known'")),
        ([1, 2.0], list[int], ("wrong-value", "[1] of file", "2.0")),
        ({"a": {"b": [None]}}, dict[str, dict[str, list[float]]], ("wrong-value", "a.b[0] of file", "None")),
        ("x", int | None, ("wrong-value", "file", "'x'")),
        (1, bool, ("wrong-value", "file", "1", "true", "false")),
        ("y" * 500, int, ("wrong-value", "file", "…")),
    ],
)
def test_check(value, expected, problem):
    if problem is None:
        schema.check(value, expected, "file", strict=True)
    else:
        with raises(*problem) as caught:
            schema.check(value, expected, "file", strict=True)
        assert len(str(caught.value)) < 120
