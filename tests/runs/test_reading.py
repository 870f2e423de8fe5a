"""Run folders as arrays: what was recorded comes back, and what cannot be used is said in one sentence."""

import dataclasses
import json
import math
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.evaluation import fakes
from tests.expectations import raises
from tests.report.conftest import NUM_SAMPLES, Skilled, make_older, make_run
from winobench.base.errors import InputError
from winobench.metrics import normalization
from winobench.runs import error_store, reading, records
from winobench.runs.run import Run, TaskRun
from winobench.tasks.base import Example


def names_of(batch):
    return [term.name for term in batch.terms]


def write_examples(folder, task, change):
    path = folder / "examples" / f"{task}.parquet"
    pq.write_table(change(pq.read_table(path)), path)


def with_column(table, name, values):
    kept = table.schema.field(name).type
    return table.set_column(table.column_names.index(name), name, pa.array(values, kept))


def replaced(name, make):
    return lambda table: with_column(table, name, [make(value) for value in table[name].to_pylist()])


def copied(folder, tmp_path):
    return pathlib.Path(shutil.copytree(folder, tmp_path / "copy"))


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def changed(path, **fields):
    rewrite(path, lambda content: content.update(fields))


def test_errors_come_back_with_the_scores_that_were_made_from_them(run_folders):
    for folder in run_folders:
        run = reading.read_run(folder)
        assert list(run.tasks) == ["clevr", "pictures", "square", "retrieval", "relations", "mmbias"]
        for name, task in run.tasks.items():
            batches = run.batches(name)
            if task.is_bias:
                assert batches is None
                continue
            (batch,) = batches
            scores = np.stack(task.examples.scores)
            assert batch.own.shape == (*scores.shape, 1 if task.deterministic else NUM_SAMPLES)
            np.testing.assert_array_equal(error_store.mean_scores(batch), scores)
            is_normalised = name in ("pictures", "square", "retrieval") and not task.deterministic
            assert names_of(batch) == (["own", "unconditional"] if is_normalised else ["own"])


def test_a_run_says_how_it_sampled(run_folders):
    weak, _, direct = (reading.read_run(folder).tasks for folder in run_folders)
    assert (weak["clevr"].num_samples, weak["mmbias"].num_samples) == (NUM_SAMPLES, 3)
    assert weak["clevr"].timesteps.shape == (NUM_SAMPLES,)
    assert (weak["clevr"].deterministic, direct["clevr"].deterministic) == (False, True)
    assert direct["clevr"].timesteps is None


METRICS = {
    "clevr": ("accuracy", ("accuracy",)),
    "pictures": ("accuracy", ("accuracy",)),
    "square": ("winoground", ("text", "image", "group")),
    "retrieval": ("recall", ("recall@1",)),
    "relations": ("macro_accuracy", ("accuracy",)),
    "mmbias": ("effect_size", ("average_absolute_effect_size",)),
}


def test_metrics_are_those_that_the_run_names(run_folders, tmp_path):
    run = reading.read_run(run_folders[0])
    assert {name: (task.metric, task.shown) for name, task in run.tasks.items()} == METRICS
    assert {task.best for task in run.tasks.values()} == {1.0}
    # Runs of before do not name them: their rows do.
    old = shutil.copytree(run_folders[0], tmp_path / "old")
    rewrite(old / "config.json", lambda config: config.pop("metrics"))
    assert {name: (task.metric, task.shown) for name, task in reading.read_run(old).tasks.items()} == METRICS
    rewrite(
        old / "results.json",
        lambda content: content["tasks"].update(pictures={"odd": content["tasks"]["clevr"]["accuracy"]}, clevr={}),
    )
    odd = reading.read_run(old).tasks
    assert [(odd[name].metric, odd[name].shown) for name in ("pictures", "clevr")] == [("other", ("odd",)), (None, ())]


def test_gray_normalisation_is_reproduced(tmp_path):
    run = reading.read_run(make_run(Skilled(0.3), tmp_path / "run", chosen=[fakes.text_task()], normalize="gray_image"))
    (batch,) = run.batches("words")
    assert names_of(batch) == ["own", "gray_image"]
    scores = np.stack(run.tasks["words"].examples.scores)
    np.testing.assert_array_equal(error_store.mean_scores(batch), scores)
    assert np.abs(error_store.mean_scores(dataclasses.replace(batch, terms=(normalization.OWN,))) - scores).max() > 0.1


def test_an_older_run_lacks_parts_and_is_read_all_the_same(run_folders, tmp_path):
    folder = copied(run_folders[0], tmp_path)
    make_older(folder)
    run = reading.read_run(folder)
    assert run.label == "clevr-tiny"
    assert run.tasks["pictures"].timesteps is None
    assert run.images("pictures") == {}
    # Whether the scores are normalised is found by trying.
    assert [names_of(batch) for batch in run.batches("pictures")] == [["own", "unconditional"]]
    assert [names_of(batch) for batch in run.batches("clevr")] == [["own"]]
    # Between, runs said so in two columns.
    for path in (folder / "examples").glob("*.parquet"):
        table = pq.read_table(path)
        are = path.stem in ("pictures", "square", "retrieval")
        table = table.append_column("normalized_text", pa.array([are] * len(table)))
        pq.write_table(table.append_column("normalized_gray", pa.array([False] * len(table))), path)
    run = reading.read_run(folder)
    assert run.tasks["pictures"].examples.terms == ("own", "unconditional")
    assert run.tasks["clevr"].examples.terms == ("own",)


def test_scores_that_do_not_follow_from_the_errors_have_none(run_folders, tmp_path):
    folder = copied(run_folders[0], tmp_path)

    write_examples(folder, "clevr", replaced("scores", lambda rows: [[rows[0][0] + 1e-4, *rows[0][1:]], *rows[1:]]))
    run = reading.read_run(folder)
    assert run.batches("clevr") is None
    assert run.batches("pictures") is not None
    for part in (folder / "errors").glob("*.parquet"):
        part.unlink()
    assert reading.read_run(folder).batches("pictures") is None


def test_an_error_store_joins_stretches_of_samples():
    rows = [("i", "a", 0, [1.0, 2.0]), ("j", "a", 0, [5.0, 6.0, 7.0]), ("i", "a", 2, [3.0, 4.0]), ("j", "a", 2, [8.0])]
    columns = list(zip(*rows, strict=True))
    table = {"image": columns[0], "text": columns[1], "first_sample": pa.array(columns[2], pa.int32())}
    table = pa.table(table | {"errors": pa.array(columns[3], pa.list_(pa.float32()))})
    store = error_store.ErrorStore(table)
    # The pair (j, a) has its third sample twice: the later one counts.
    np.testing.assert_array_equal(store.pairs(["j", "i"], ["a", "a"], 3), [[5, 6, 8], [1, 2, 3]])
    np.testing.assert_array_equal(store.pairs(["j", "i"], ["a", "a"]), [[5, 6, 8], [1, 2, 3]])
    np.testing.assert_array_equal(store.pairs(["i"], ["a"]), [[1, 2, 3, 4]])
    np.testing.assert_array_equal(store.pairs(["i"], ["a"], 1), [[1]])
    assert store.pairs(["j"], ["a"], 4) is None
    assert store.pairs(["i"], ["b"]) is None
    assert store.pairs(["k"], ["a"]) is None


def refused(folder):
    with pytest.raises(InputError) as caught:
        reading.read_run(folder)
    return str(caught.value)


def test_what_is_no_finished_run_is_refused_in_a_sentence(run_folders, tmp_path):
    assert "does not exist" in refused(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in refused(tmp_path / "empty")
    with raises("nothing-named"):
        reading.read_runs([])
    with raises("named-twice"):
        reading.read_runs([run_folders[0], run_folders[0] / ".." / run_folders[0].name])

    folder = copied(run_folders[0], tmp_path)
    (folder / "results.json").unlink()
    changed(folder / "config.json", status="interrupted")
    assert "no results yet (status: interrupted)" in refused(folder)
    (folder / "results.json").write_text("{")
    assert "results.json cannot be read" in refused(folder)
    (folder / "results.json").write_text("{}")
    assert "has no tasks" in refused(folder)
    changed(folder / "config.json", schema=records.SCHEMA_VERSION + 1)
    assert f"has the layout {records.SCHEMA_VERSION + 1}" in refused(folder)
    (folder / "config.json").write_text("[]")
    assert "is not winobench's" in refused(folder)


def test_damaged_tables_are_named(run_folders, tmp_path):
    folder = copied(run_folders[0], tmp_path)
    (folder / "examples" / "clevr.parquet").write_bytes(b"PAR1")
    assert "clevr.parquet cannot be read" in refused(folder)
    pq.write_table(pa.table({"id": ["a"]}), folder / "examples" / "clevr.parquet")
    assert "clevr.parquet has no column groups" in refused(folder)
    (folder / "examples" / "clevr.parquet").unlink()
    run = reading.read_run(folder)
    assert run.tasks["clevr"].examples is None
    assert any("no table of the examples of clevr" in note for note in run.notes)
    next((folder / "errors").glob("*.parquet")).write_bytes(b"")
    with raises("cannot-read"):
        run.batches("pictures")


def test_a_run_that_is_being_extended_says_so(run_folders, tmp_path):
    folder = copied(run_folders[0], tmp_path)
    changed(folder / "config.json", status="running")
    assert any("running" in note for note in reading.read_run(folder).notes)


def named(model, folder="run", normalize="auto", num_samples=100, dtype="float32", **more):
    identity = {"normalize": normalize, "scorer": {"dtype": dtype}, "sampling": {"num_samples": num_samples}}
    identity |= {key: more.pop(key) for key in ("limit", "tasks") if key in more}
    config = {"config": {"model": model, **more.pop("config", {})}, "identity": identity, **more}
    task = TaskRun("pets", {}, "accuracy", ("accuracy",), 1.0, {}, None, num_samples, None, False)
    run = Run(pathlib.Path("/runs") / folder, "", config, {}, {"pets": task}, {}, [])
    run.label = reading.short_label(run)
    return run


@pytest.mark.parametrize(
    ("some", "labels"),
    [
        ([named("sd21-base"), named("openai/clip"), named("/a/b/tiny/")], ["sd21-base", "clip", "tiny"]),
        ([named("/a/b/tiny"), named("/a/c/tiny")], ["tiny (b)", "tiny (c)"]),
        ([named("sd", "r1"), named("sd", "r2", normalize="none")], ["sd (normalize auto)", "sd (normalize none)"]),
        ([named("sd"), named("sd", num_samples=1000)], ["sd (100 samples)", "sd (1,000 samples)"]),
        ([named("sd"), named("sd", dtype="bfloat16")], ["sd (float32)", "sd (bfloat16)"]),
        (
            [named("sd", num_samples=10), named("sd", dtype="bfloat16"), named("sd")],
            ["sd (10 samples, float32)", "sd (100 samples, bfloat16)", "sd (100 samples, float32)"],
        ),
        ([named("sd", "r1"), named("sd", "r2"), named("clip")], ["sd (r1)", "sd (r2)", "clip"]),
        ([named("sd"), named("sd")], ["sd 1", "sd 2"]),
        (
            [named("sd", limit=4), named("sd", limit=1000), named("sd")],
            ["sd (limit 4)", "sd (limit 1,000)", "sd (all questions)"],
        ),
        ([named("sd", tasks={"clevr": {}}), named("sd", tasks={"pets": {}})], ["sd (clevr)", "sd (pets)"]),
        # An option that no list knows, and at last the time: a digest tells nobody anything.
        (
            [named("sd", config={"sampling": {"alpha": 0.1}}), named("sd", config={"sampling": {"alpha": 0.2}})],
            ["sd (alpha 0.1)", "sd (alpha 0.2)"],
        ),
        (
            [
                named("sd", "gdbench-sd-0123abcd", started="2026-11-28T14:03:00+00:00"),
                named("sd", "gdbench-sd-4567abcd", started="2026-11-29T09:30:00+00:00"),
            ],
            ["sd (2026-11-28 14:03)", "sd (2026-11-29 09:30)"],
        ),
        # A run's own name comes first.
        ([named("sd", name="before"), named("sd", name="after"), named("sd")], ["before", "after", "sd"]),
        ([named("sd", name="mine"), named("clip", name="mine")], ["mine (sd)", "mine (clip)"]),
    ],
)
def test_equal_names_get_what_differs(some, labels):
    reading.make_labels_unique(some)
    assert [run.label for run in some] == labels
    for run in some:
        run.label = reading.short_label(run)


def test_names_of_any_length_are_short_and_their_own():
    some = [named(f"/models/{'x' * 60}{number}{'y' * 60}", "z" * 200) for number in range(3)]
    reading.make_labels_unique(some)
    assert len({run.label for run in some}) == 3
    assert max(len(run.label) for run in some) < 60
    assert some[1].model == f"/models/{'x' * 60}1{'y' * 60}"


@pytest.mark.parametrize("name", ["circle/run", "x/" * 3000])
def test_paths_that_lead_nowhere_are_one_sentence(tmp_path, name):
    (tmp_path / "circle").symlink_to("circle")
    with raises("no-such-folder"):
        reading.read_runs([tmp_path / name, tmp_path / "other"])


def in_config(change):
    return lambda folder: rewrite(folder / "config.json", change)


def in_results(change):
    return lambda folder: rewrite(folder / "results.json", change)


def in_clevr(change):
    """A change of the entries of the task clevr in ``results.json``."""
    return in_results(lambda content: change(content["tasks"]["clevr"]))


def entry(row, **changes):
    return in_clevr(lambda entries: entries[row].update(changes))


def added(row):
    return in_clevr(lambda entries: entries.update({row: entries["accuracy"]}))


def in_table(change):
    return lambda folder: write_examples(folder, "clevr", change)


def twice(table):
    ids = table["id"].to_pylist()
    return with_column(table, "id", [ids[0], *ids[:-1]])


def with_timesteps(timesteps):
    return in_config(lambda config: config["rounds"][0].update(timesteps=timesteps))


def with_round_of(task):
    return in_config(lambda config: config["rounds"][0]["tasks"].append(task))


def with_metric(**changes):
    return in_config(lambda config: config["metrics"]["clevr"].update(changes))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (entry("accuracy", low=0.9, high=0.1), ("damaged-results", "tasks.clevr.accuracy", "interval")),
        (entry("accuracy", n=17), ("damaged-results", "tasks.clevr.accuracy", "17", "16")),
        (entry("accuracy", ties=17), ("damaged-results", "tasks.clevr.accuracy", "17 ties")),
        (entry("accuracy", ties=1), ("damaged-results", "tasks.clevr.accuracy", "clevr.parquet")),
        (entry("accuracy", value=0.75, low=0, high=1), ("damaged-results", "tasks.clevr.accuracy", "0.75")),
        (entry("spatial/accuracy", n=7), ("damaged-results", "tasks.clevr.spatial/accuracy", "7", "8")),
        *(
            (entry("accuracy", **change), ("wrong-value", "tasks.clevr.accuracy", *change))
            for change in ({"value": 2}, {"n": -5}, {"n": 10**30}, {"value": math.nan})
        ),
        (in_clevr(lambda all: all["accuracy"].pop("ties")), ("missing-field", "tasks.clevr.accuracy", "'ties'")),
        (in_clevr(lambda entries: entries.pop("accuracy")), ("damaged-results", "results.json", "'accuracy'")),
        (added("ghost/accuracy"), ("damaged-results", "tasks.clevr.ghost/accuracy")),
        (added("odd"), ("damaged-results", "tasks.clevr.odd")),
        (in_results(lambda all: all["config"].update(model="another")), ("damaged-results", "another")),
        (in_results(lambda all: all.update(failed={"clevr": ""})), ("damaged-results", "clevr", "failed")),
        (
            in_results(lambda all: all["tasks"].update(more=all["tasks"]["clevr"])),
            ("damaged-results", "more", "identity.tasks"),
        ),
        (with_round_of("clevr"), ("damaged-results", "clevr", "rounds")),
        (with_round_of("nothing"), ("damaged-results", "nothing", "identity.tasks")),
        (with_metric(higher_is_better=False), ("damaged-results", "metrics.clevr.higher_is_better")),
        (with_metric(name="recall"), ("damaged-results", "clevr")),
        (with_timesteps([1, 2]), ("damaged-results", "rounds[0]", "2 timesteps")),
        *((with_timesteps([wrong]), ("wrong-value", "rounds[0].timesteps")) for wrong in (10**30, -1, 1.5, "1")),
        (in_config(lambda all: all.update(status="perhaps")), ("damaged-results", "perhaps")),
        (in_table(twice), ("damaged-examples", "clevr.parquet", "twice")),
        (in_table(replaced("correct", lambda is_correct: not is_correct)), ("damaged-results", "clevr.parquet")),
        (in_table(lambda table: table.slice(0, 0)), ("no-examples", "clevr.parquet")),
        (in_table(replaced("target", lambda _: None)), ("damaged-examples", "metric accuracy", "target")),
        (
            lambda folder: write_examples(folder, "square", replaced("target", lambda _: 0)),
            ("damaged-examples", "metric winoground"),
        ),
        (
            in_table(replaced("scores", lambda rows: [[math.nan for _ in row] for row in rows])),
            ("damaged-examples", "clevr.parquet", "NaN"),
        ),
        (in_table(lambda table: table.slice(1)), ("damaged-results", "tasks.clevr.accuracy", "16", "15")),
        *(
            (in_table(replaced("terms", lambda _, terms=terms: terms)), ("unknown-name", "clevr.parquet"))
            for terms in (["own", "magic"], ["unconditional"])
        ),
    ],
)  # fmt: skip
def test_files_that_contradict_each_other_are_told(run_folders, tmp_path, change, said):
    folder = copied(run_folders[0], tmp_path)
    change(folder)
    with raises(*said):
        reading.read_run(folder)


def _older_chance(folder, levels):
    """Takes from a run the number of independent examples, and gives each outcome one chance, as earlier versions."""

    def change(content):
        for name, entry in content["tasks"]["mixed"].items():
            entry.pop("independent")
            entry["chance"] = levels[name.rpartition("/")[2].removeprefix("macro_")]

    rewrite(folder / "results.json", change)


def _mixed_run(folder, **settings):
    """Four questions of 2, 2, 3 and 3 candidates."""

    def load(data_dir, limit):
        for number, (size, group) in list(enumerate(((2, "two"), (3, "three"), (2, "two"), (3, "both"))))[:limit]:
            groups = ("three", "both") if group == "both" else (group,)
            yield Example(f"{number}", (fakes.image(number, 5),), tuple(map(str, range(size))), 0, groups)

    task = fakes.make_task("mixed", "macro_accuracy", (1, 3), {}, load, chance_by_question=True)
    return make_run(Skilled(0.5), folder, chosen=[task], **settings)


def test_older_runs_get_the_chance_of_each_groups_own_questions(tmp_path):
    folder = _mixed_run(tmp_path / "run")
    right = {name: entry["chance"] for name, entry in reading.read_run(folder).tasks["mixed"].results.items()}
    assert right == pytest.approx(
        {
            "accuracy": 5 / 12,
            "macro_accuracy": (1 / 2 + 1 / 3 + 1 / 3) / 3,
            "two/accuracy": 1 / 2,
            "three/accuracy": 1 / 3,
            "both/accuracy": 1 / 3,
        }
    )
    _older_chance(folder, {"accuracy": 5 / 12})
    for read in (reading.read_run, reading.read_without_tables):
        found = {name: entry["chance"] for name, entry in read(folder).tasks["mixed"].results.items()}
        assert found == pytest.approx(right)
    # Without the questions nobody knows.
    shutil.rmtree(folder / "examples")
    found = {name: entry["chance"] for name, entry in reading.read_run(folder).tasks["mixed"].results.items()}
    assert found == {**dict.fromkeys(right), "accuracy": 5 / 12}


def test_an_older_chance_of_other_questions_is_left_out(tmp_path):
    # Of three questions, with the mean over all four: the file's, or what a task states. Nobody knows which.
    folder = _mixed_run(tmp_path / "run", limit=3)
    _older_chance(folder, {"accuracy": 5 / 12})
    found = reading.read_run(folder).tasks["mixed"].results
    assert {entry["chance"] for entry in found.values()} == {None}


def test_a_level_that_a_task_states_stays(tmp_path):
    folder = _mixed_run(tmp_path / "run")
    rewrite(
        folder / "results.json",
        lambda content: [entry.update(chance=0.4) for entry in content["tasks"]["mixed"].values()],
    )
    assert {entry["chance"] for entry in reading.read_run(folder).tasks["mixed"].results.values()} == {0.4}
