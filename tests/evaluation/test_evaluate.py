"""The flow with a scorer that needs no model: once each, recorded, resumed, summarised."""

import dataclasses
import json
import pathlib

import ml_dtypes
import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.changed_files import change_a_byte
from tests.evaluation import fakes
from tests.evaluation.fakes import FakeScorer, config, examples, recorded
from tests.expectations import names, raises
from winobench import metrics
from winobench.base.errors import InputError
from winobench.base.texts import text_hash
from winobench.evaluation import evaluate, runner
from winobench.runs import provenance
from winobench.runs.reading import read_run
from winobench.scorers import samples

TASKS = (fakes.text_task(), fakes.image_task(), fakes.square_task())
# 5 scenes: images 0-4 with 4 texts for the words (colour, no colour, shape, no shape), of which "colour n" serves the
# others too, and "other n" and "" for the square; images 100-104 with "colour n", "other n" and "".
NUM_PAIRS, NUM_SAMPLES = 5 * 6 + 5 * 3, 5


def run(scorer, workdir, tasks=TASKS, **changes):
    return evaluate.evaluate(
        scorer, tasks, workdir, progress=False, **{"num_samples": NUM_SAMPLES, "limit": 5, "reuse": False, **changes}
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, which tests must not change: its scorer, folder and results."""
    scorer, folder = FakeScorer(), tmp_path_factory.mktemp("finished") / "run"
    return scorer, folder, run(scorer, folder)


def numbers(results):
    return {key: value for key, value in results.items() if key not in ("seconds", "computed_passes", "workdir")}


def test_results_are_as_documented(finished):
    scorer, folder, results = finished
    assert len(scorer.scored) == len(set(scorer.scored)) == len(recorded(folder)) == NUM_PAIRS * NUM_SAMPLES
    assert sum(text == "" for _, text, _ in scorer.scored) == 10 * NUM_SAMPLES
    results = dict(results)
    assert results.pop("workdir") == str(folder)
    assert json.loads((folder / "results.json").read_text()) == results
    assert results["failed"] == {}
    assert results["passes"] == results["computed_passes"] == NUM_PAIRS * NUM_SAMPLES
    assert list(results["tasks"]) == ["words", "pictures", "square"]
    assert list(results["tasks"]["words"]) == ["accuracy", "colour/accuracy", "shape/accuracy"]
    assert list(results["tasks"]["square"]) == ["text", "image", "group"]
    for task in results["tasks"].values():
        for entry in task.values():
            assert 0 <= entry["low"] <= entry["value"] <= entry["high"] <= 1
            assert entry["low"] < entry["high"]
    colour = results["tasks"]["words"]["colour/accuracy"]
    assert (results["tasks"]["words"]["accuracy"]["n"], colour["n"], colour["chance"]) == (10, 5, 0.5)
    assert results["tasks"]["square"]["group"]["chance"] == pytest.approx(1 / 6)
    assert results["config"] == {
        "tasks": ["words", "pictures", "square"],
        "data_dir": None,
        "limit": 5,
        "normalize": "auto",
        "sampling": {"num_samples": 5, "num_bias_samples": 20, "seed": 0, "timesteps": "uniform"},
    }
    versions = results["versions"]
    assert (versions["weights"], versions["data"]["words"], versions["device"]["platform"]) == ("0", "words 5", "cpu")
    assert results["seconds"] > 0
    described = config(folder)
    assert (described["status"], described["config"]) == ("finished", results["config"])
    (one,) = described["rounds"]
    assert (one["tasks"], one["num_samples"]) == (["words", "pictures", "square"], NUM_SAMPLES)
    assert one["timesteps"] == samples.choose_timesteps("uniform", NUM_SAMPLES, seed=0).tolist()


@pytest.mark.parametrize("at_once", [2**22, 14])
def test_an_interrupted_run_goes_on(finished, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(runner, "_TRIPLES_A_CALL", at_once)
    _, _, whole = finished
    with pytest.raises(KeyboardInterrupt):
        run(FakeScorer(stop_after=4), tmp_path / "run")
    assert config(tmp_path / "run")["status"] == "interrupted"
    assert not (tmp_path / "run" / "results.json").exists()
    before = recorded(tmp_path / "run")
    assert len(before) == 4 * 7
    rest = FakeScorer()
    assert numbers(run(rest, tmp_path / "run")) == numbers(whole)
    assert len(rest.scored) == NUM_PAIRS * NUM_SAMPLES - len(before)
    after = recorded(tmp_path / "run")
    assert len(after) == len(set(after)) == NUM_PAIRS * NUM_SAMPLES
    again = FakeScorer()
    assert numbers(run(again, tmp_path / "run")) == numbers(whole)
    assert again.scored == []


# What happens to a finished run -> whether its next call plans it again, and then computes errors.
_AFTERWARDS = {
    "nothing": (lambda folder, commit: None, False, False),
    "another commit": (lambda folder, commit: commit.update(commit="2"), True, False),
    "uncommitted changes": (lambda folder, commit: commit.update(dirty=True), True, False),
    "a lost part": (lambda folder, commit: (folder / "errors" / "part-0-00000.parquet").unlink(), True, True),
    "a damaged part": (lambda folder, commit: change_a_byte(folder / "errors/part-0-00000.parquet"), True, True),
    "a damaged table": (lambda folder, commit: change_a_byte(folder / "examples" / "words.parquet"), True, False),
    "a lost gallery": (lambda folder, commit: (folder / "gallery" / "words.parquet").unlink(), True, False),
    "lost results": (lambda folder, commit: (folder / "results.json").unlink(), True, False),
}


@pytest.mark.parametrize("event", _AFTERWARDS)
def test_a_finished_run_is_planned_again_only_where_something_has_changed(tmp_path, monkeypatch, event):
    happen, plans, computes = _AFTERWARDS[event]
    commit, folder, loads = {"commit": "1", "dirty": False}, tmp_path / "run", []
    monkeypatch.setattr(provenance, "software", lambda: {"winobench": dict(commit)})

    def load(*args):
        loads.append(args)
        return TASKS[0].load(*args)

    arguments = {"tasks": [dataclasses.replace(TASKS[0], load=load)]}
    first = run(FakeScorer(), folder, **arguments)
    happen(folder, commit)
    loads.clear()
    scorer = FakeScorer()
    again = run(scorer, folder, **arguments)
    assert (bool(loads), bool(scorer.scored)) == (plans, computes)
    assert again["computed_passes"] == len(scorer.scored)
    assert all(again[name] == first[name] for name in ("tasks", "passes", "workdir"))
    if not plans:
        assert (again | {"computed_passes": first["computed_passes"]}) == first
    assert config(folder)["status"] == "finished"


def test_a_finished_run_of_another_packages_metric_is_judged_again(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "software", lambda: {"winobench": {"commit": "1", "dirty": False}})
    monkeypatch.setitem(metrics.METRICS, "mine", dataclasses.replace(metrics.ACCURACY, name="mine"))
    task = dataclasses.replace(TASKS[0], metric="mine")
    assert run(FakeScorer(), tmp_path / "run", tasks=[task])["tasks"]["words"]["accuracy"]["value"] > 0

    def judge(scores, targets):
        return {"accuracy": metrics.Outcome(*np.zeros((2, len(scores)), bool))}

    mine = dataclasses.replace(metrics.ACCURACY, name="mine", judge=judge)
    monkeypatch.setitem(metrics.METRICS, "mine", mine)
    assert run(FakeScorer(), tmp_path / "run", tasks=[task])["tasks"]["words"]["accuracy"]["value"] == 0


def other_task(**changes):
    return {"tasks": (dataclasses.replace(TASKS[0], **changes), *TASKS[1:])}


_CHANGES = {
    "weights": (lambda: FakeScorer(weights="1"), {}, "scorer.model"),
    "another option of the scorer": (lambda: FakeScorer(dtype="bfloat16"), {}, "scorer.dtype"),
    "seed": (FakeScorer, {"seed": 1}, "sampling.seed"),
    "number of samples": (FakeScorer, {"num_samples": 6}, "sampling.num_samples"),
    "timesteps": (FakeScorer, {"timesteps": "even"}, "sampling.timesteps"),
    "data": (FakeScorer, other_task(data_fingerprint=lambda data_dir, limit: "new"), "tasks.words.data"),
    "task version": (FakeScorer, other_task(version=2), "tasks.words.version"),
    "tasks": (FakeScorer, {"tasks": TASKS[:2]}, "tasks.square"),
    "limit": (FakeScorer, {"limit": 4}, "limit"),
    "normalisation": (FakeScorer, {"normalize": "none"}, "normalize"),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_another_run_is_refused(finished, change):
    """What can change a number is part of the run."""
    make, arguments, name = _CHANGES[change]
    folder = finished[1]
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with raises("another-run", name):
        run(make(), folder, **arguments)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files


def test_another_run_has_another_default_folder_and_overwriting_scores_everything_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(FakeScorer(), None)
    (first,) = pathlib.Path("runs").iterdir()
    elsewhere, over = FakeScorer(), FakeScorer()
    run(elsewhere, None, seed=1)
    assert len(list(pathlib.Path("runs").iterdir())) == 2
    run(over, first, overwrite=True, seed=1)
    assert len(elsewhere.scored) == len(over.scored) == len(set(over.scored)) == NUM_PAIRS * NUM_SAMPLES


def test_published_timesteps_may_be_another_number(tmp_path):
    results = run(FakeScorer(), tmp_path / "run", tasks=TASKS[:1], num_samples=64, timesteps="published")
    samples = {sample for _, _, sample in recorded(tmp_path / "run")}
    assert samples == set(range(66))
    assert results["config"]["sampling"]["num_samples"] == 64


def test_errors_that_are_no_numbers_stop_the_run(tmp_path):
    scorer = FakeScorer(bad_text="no shape")
    with raises("not-finite", "'no shape'", "float32"):
        run(scorer, tmp_path / "run")
    assert not (tmp_path / "run" / "results.json").exists()
    errors = list(recorded(tmp_path / "run").values())
    assert np.isfinite(errors).all()
    assert len(errors) == 7 * (scorer.batches - 1)


def test_a_run_that_fails_before_its_first_error_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(FakeScorer(stop_after=0), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(KeyboardInterrupt):
        run(FakeScorer(stop_after=0), tmp_path / "mine")
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_a_damaged_part_is_computed_again_and_a_neighbours_is_left_alone(tmp_path, caplog):
    first = run(FakeScorer(), tmp_path / "run")
    part = tmp_path / "run" / "errors" / "part-0-00000.parquet"
    part.write_bytes(part.read_bytes()[:-1000])
    beside, again = FakeScorer(), FakeScorer()
    run(beside, tmp_path / "beside", num_samples=NUM_SAMPLES - 1, reuse=True)
    assert len(beside.scored) == NUM_PAIRS * (NUM_SAMPLES - 1)
    assert part.exists()
    assert not caplog.messages
    assert run(again, tmp_path / "run", reuse=False)["tasks"] == first["tasks"]
    assert len(again.scored) == NUM_PAIRS * NUM_SAMPLES
    assert f"{part} is damaged" in caplog.text


def test_progress_is_told_in_lines_where_there_is_no_terminal(tmp_path, capsys):
    evaluate.evaluate(FakeScorer(), TASKS, tmp_path / "run", num_samples=2, limit=2)
    printed = capsys.readouterr()
    assert "36 passes" in printed.err
    assert str(tmp_path / "run") in printed.err.replace("\n", "")
    assert printed.out == ""


def test_progress_names_the_runs_whose_errors_serve_again(tmp_path, capsys):
    run(FakeScorer(), tmp_path / "a Ä", num_samples=2, limit=2)
    run(FakeScorer(), tmp_path / "more", num_samples=3, limit=2)
    capsys.readouterr()
    evaluate.evaluate(FakeScorer(), TASKS, tmp_path / "run", num_samples=4, limit=2)
    assert "54 of 72 errors are from a Ä, more\n" in capsys.readouterr().err
    evaluate.evaluate(FakeScorer(), TASKS, tmp_path / "run", num_samples=4, limit=2, overwrite=True, reuse=False)
    assert "errors are from" not in capsys.readouterr().err


def test_a_second_look_at_the_same_errors_needs_no_pass(tmp_path):
    """Fewer samples, another normalisation, another kind of error, fewer tasks: all of it is recorded already."""
    run(FakeScorer(), tmp_path / "first")
    seconds = [{"num_samples": 3}, {"normalize": "none"}, {"tasks": TASKS[:1], "limit": 2}]
    for number, (options, changes) in enumerate([*(({}, second) for second in seconds), ({"error": "l2"}, {})]):
        reused, fresh = FakeScorer(**options), FakeScorer(**options)
        results = run(reused, tmp_path / f"second-{number}", reuse=True, **changes)
        assert results["computed_passes"] == 0
        assert reused.scored == []
        expected = run(fresh, tmp_path / "apart" / f"{number}", **changes)
        assert results["tasks"] == expected["tasks"]
        assert len(fresh.scored) == results["passes"] == expected["computed_passes"]
        # The folder stands by itself: the errors are in it, whatever becomes of the first run.
        assert len(recorded(tmp_path / f"second-{number}")) == results["passes"]
    more = FakeScorer()
    results = run(more, tmp_path / "more", reuse=True, num_samples=NUM_SAMPLES + 2)
    assert len(more.scored) == NUM_PAIRS * 2 == results["computed_passes"]
    assert results["passes"] == NUM_PAIRS * (NUM_SAMPLES + 2)
    for changes in ({"seed": 1}, {"timesteps": "even"}):
        other = FakeScorer()
        assert run(other, tmp_path / str(changes), reuse=True, **changes)["computed_passes"] == len(other.scored) > 0


def test_weights_of_timesteps_need_no_pass(tmp_path):
    """Learned weights, with a file: what is recorded are errors without them, and the identity has what they say."""
    plain, weights = run(FakeScorer(), tmp_path / "plain"), {"edges": [500.0], "weights": [0.0, 1.0]}
    path = tmp_path / "weights.json"
    path.write_text(json.dumps(weights))
    scorer = FakeScorer()
    results = run(scorer, tmp_path / "weighted", reuse=True, timestep_weights=str(path))
    assert scorer.scored == []
    assert config(tmp_path / "weighted")["identity"]["sampling"]["timestep_weights"] == weights
    (described,) = config(tmp_path / "weighted")["rounds"]
    late = np.array(described["timesteps"]) >= 500
    assert 0 < late.sum() < NUM_SAMPLES
    np.testing.assert_allclose(described["weights"], late / late.mean())
    errors = recorded(tmp_path / "plain")
    for row in examples(tmp_path / "weighted", "words"):
        pairs = [(row["images"][0], text_hash(text)) for text in row["texts"]]
        mine = [-np.mean([errors[(*pair, sample)] for sample in np.flatnonzero(late)]) for pair in pairs]
        np.testing.assert_allclose(row["scores"][0], mine, rtol=1e-12)
    assert results["tasks"] != plain["tasks"]
    # The same weights under another file's name are the same run; without them it is another one.
    assert run(FakeScorer(), tmp_path / "weighted", timestep_weights=weights)["computed_passes"] == 0
    with pytest.raises(InputError, match=names("timestep_weights")):
        run(FakeScorer(), tmp_path / "weighted")


def test_rounding_needs_no_pass_and_makes_ties(tmp_path):
    """The errors of the fake are multiples of 2**-24 below 1: float16 keeps 11 bits of them, bfloat16 eight."""
    plain = run(FakeScorer(), tmp_path / "plain", num_samples=1, limit=None)
    ties = [plain["tasks"]["words"]["accuracy"]["ties"]]
    for dtype in ("float16", "bfloat16"):
        scorer = FakeScorer()
        results = run(scorer, tmp_path / dtype, num_samples=1, limit=None, reuse=True, reduce_dtype=dtype)
        assert scorer.scored == []
        described = config(tmp_path / dtype)
        assert described["identity"]["sampling"]["reduce_dtype"] == described["rounds"][0]["reduce_dtype"] == dtype
        ours, exact = ([row["scores"] for row in examples(tmp_path / name, "words")] for name in (dtype, "plain"))
        rounded = np.float32(exact).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)
        np.testing.assert_array_equal(np.float64(ours), rounded.astype(np.float64))
        ties.append(results["tasks"]["words"]["accuracy"]["ties"])
    assert ties[0] == 0


def test_rounding_that_overflows_is_refused(tmp_path):
    class Large(FakeScorer):
        def error_of(self, *about):
            return 1e5 + super().error_of(*about)

    with pytest.raises(InputError, match=names("float16", "100,001", "error=l2")):
        run(Large(), tmp_path / "run", tasks=TASKS[:1], reduce_dtype="float16")


def test_a_metric_that_cannot_judge_is_told_before_anything_is_scored(tmp_path, monkeypatch):
    def judge(scores, targets):
        return {"odd": metrics.Outcome(scores[:, 0, 0] > 1, np.zeros(7, bool))}

    odd = metrics.Metric("odd", judge, headline="odd")
    monkeypatch.setitem(metrics.METRICS, "odd", odd)
    silent = metrics.Metric("silent", metrics.ACCURACY.judge, headline="other")
    monkeypatch.setitem(metrics.METRICS, "silent", silent)
    for metric, task, message in (
        ("odd", fakes.text_task(), ("bad-metric", "'words'", "ValueError")),
        ("silent", fakes.text_task(), ("bad-metric", "'other'")),
        ("accuracy", fakes.square_task(), ("bad-metric",)),
    ):
        scorer = FakeScorer()
        with raises(*message):
            run(scorer, tmp_path / metric, tasks=[dataclasses.replace(task, metric=metric, chance={})])
        assert not scorer.scored
        assert not (tmp_path / metric).exists()


def test_a_task_with_bad_data_does_not_stop_the_others(tmp_path):
    def broken(data_dir, limit):
        yield from fakes.text_task().load(data_dir, limit)
        raise InputError("row 11 of broken.json has no caption: get the file again.")

    tasks = (dataclasses.replace(fakes.text_task("broken"), load=broken), *TASKS)
    scorer = FakeScorer()
    results = run(scorer, tmp_path / "run", tasks=tasks)
    assert results["failed"] == {"broken": "row 11 of broken.json has no caption: get the file again."}
    assert results["tasks"] == run(FakeScorer(), tmp_path / "without")["tasks"]
    assert len(scorer.scored) == NUM_PAIRS * NUM_SAMPLES
    with pytest.raises(InputError, match=names("11", "broken.json")):
        run(FakeScorer(), tmp_path / "alone", tasks=tasks[:1])
    assert not (tmp_path / "alone").exists()


class ByTheBook:
    """The least that a scorer may be: the sum of a picture's bytes and the length of the text decide."""

    def __init__(self):
        self.calls = []

    def score(self, images, texts):
        self.calls.append((len(images), list(texts)))
        return np.array([[np.asarray(image).sum() % 7 - 0.1 * len(text) for text in texts] for image in images])


def test_anything_with_score_can_be_evaluated(tmp_path):
    scorer = ByTheBook()
    results = run(scorer, tmp_path / "run", num_samples=50)
    assert results["passes"] == NUM_PAIRS - 10  # one sample, and no unconditional pass
    assert sum(len(texts) for _, texts in scorer.calls) == results["passes"]
    assert len(scorer.calls) == 10  # an image at a time
    rows = examples(tmp_path / "run", "words")
    for example, row in zip(TASKS[0].load(None, 5), rows, strict=True):
        np.testing.assert_allclose(row["scores"], scorer.score(example.images, example.texts), rtol=1e-6)
    described = config(tmp_path / "run")
    assert described["rounds"] == [{"tasks": [task.name for task in TASKS], "num_samples": 1, "timesteps": None}]
    with pytest.raises(InputError, match=names("'unconditional'")):
        run(ByTheBook(), tmp_path / "other", normalize="unconditional")
    # Without a fingerprint it is never taken for another, and the refusal names the remedy.
    with raises("no-fingerprint", "ByTheBook", "fingerprint()") as caught:
        run(ByTheBook(), tmp_path / "run")
    assert "instance" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_scorer_with_a_fingerprint_resumes(tmp_path):
    class Mine(ByTheBook):
        def fingerprint(self):
            return {"scorer": "mine", "version": 1}

    whole = run(Mine(), tmp_path / "run")
    again = run(Mine(), tmp_path / "run")
    assert (again["computed_passes"], again["tasks"]) == (0, whole["tasks"])


def test_pairs_are_handed_over_together_where_a_scorer_can(tmp_path):
    class Together(ByTheBook):
        def fingerprint(self):
            return {"scorer": "together", "model": "1"}

        def iter_scores(self, images, texts, pairs):
            for start in range(0, len(pairs), 4):
                part = pairs[start : start + 4]
                scores = [self.score([images[i]], [texts[t]])[0, 0] for i, t in part]
                yield start + np.arange(len(part)), np.array(scores, np.float32)

    together = run(Together(), tmp_path / "together")
    assert together["tasks"] == run(ByTheBook(), tmp_path / "alone")["tasks"]
    again = Together()
    assert run(again, tmp_path / "together")["computed_passes"] == 0
    assert again.calls == []


def test_bias_tasks_have_samples_of_their_own(tmp_path):
    scorer = FakeScorer()
    results = run(scorer, tmp_path / "run", tasks=(TASKS[0], fakes.bias_task()), num_bias_samples=3)
    assert results["passes"] == 5 * 4 * NUM_SAMPLES + 8 * 4 * 3
    assert not any(text == "" for _, text, _ in scorer.scored)
    described = config(tmp_path / "run")
    assert [(one["tasks"], one["num_samples"]) for one in described["rounds"]] == [(["words"], 5), (["bias"], 3)]
    timesteps = samples.choose_timesteps("uniform", 3, seed=0).tolist()

    def score(image, text):
        return -np.mean([scorer.error_of(image, text, i, (0, t)) for i, t in enumerate(timesteps)], dtype=np.float64)

    psi = [
        np.mean([score(fakes.image(n), text) for text in fakes.PHRASES[:2]])
        - np.mean([score(fakes.image(n), text) for text in fakes.PHRASES[2:]])
        for n in range(8)
    ]
    expected = (np.mean(psi[:4]) - np.mean(psi[4:])) / np.std(psi)
    assert results["tasks"]["bias"]["left-right"]["value"] == pytest.approx(expected, rel=1e-6)
    rows = examples(tmp_path / "run", "bias")
    assert all(row["correct"] is None and row["prediction"] is None for row in rows)


def test_tables_and_pictures_of_telling_examples(finished):
    _, folder, _ = finished
    table = pq.read_table(folder / "examples" / "square.parquet")
    assert table.column_names == [
        *("id", "groups", "images", "texts", "target", "scores", "prediction", "correct", "tie"),
        "terms",
        *("correct_text", "tie_text", "correct_image", "tie_image", "correct_group", "tie_group"),
    ]
    for row in table.to_pylist():
        assert (row["target"], row["correct"], np.shape(row["scores"])) == (None, row["correct_group"], (2, 2))
    for task in TASKS:
        shown = pq.read_table(folder / "gallery" / f"{task.name}.parquet").to_pylist()
        asked = {image for row in examples(folder, task.name) for image in row["images"]}
        assert {row["image"] for row in shown} <= asked
        assert len(shown) == len({row["image"] for row in shown}) > 0
        assert all(row["jpeg"][:2] == b"\xff\xd8" for row in shown)


def test_a_label_is_no_part_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "software", lambda: {"winobench": {"commit": "1", "dirty": False}})
    folder = tmp_path / "run"
    first = run(FakeScorer(), folder, label="mine")
    assert config(folder)["name"] == "mine"
    # Another label, or none, computes nothing. The run has the last one that was given.
    for label, name in ((None, "mine"), ("yours", "yours"), (None, "yours")):
        scorer = FakeScorer()
        again = run(scorer, folder, label=label)
        assert (again["tasks"], again["workdir"], scorer.scored) == (first["tasks"], first["workdir"], [])
        assert config(folder)["name"] == name
    # A run that is planned again keeps its name, and one that is overwritten does not.
    (folder / "results.json").unlink()
    run(FakeScorer(), folder)
    assert config(folder)["name"] == "yours"
    run(FakeScorer(), folder, overwrite=True)
    assert "name" not in config(folder)
    named = read_run(run(FakeScorer(), folder, label="ours")["workdir"])
    assert named.label == "ours"
