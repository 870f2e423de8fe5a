"""Mistakes in other people's tasks and scorers are one sentence, and never a number."""

import dataclasses

import numpy as np
import pytest

import winobench
from tests.evaluation import fakes
from tests.expectations import raises
from winobench.evaluation import contracts
from winobench.tasks.base import Example

_GOOD = Example("0", (fakes.image(0),), ("a", "b"))


def _evaluate(tmp_path, task=None, scorer=None, **arguments):
    return winobench.evaluate(
        scorer or fakes.FakeScorer(), [task or fakes.text_task()], tmp_path / "run", num_samples=2, **arguments
    )


def _but(**changes):
    return [dataclasses.replace(_GOOD, **changes)]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        (_but(id=5), ("bad-example", "id", "5")),
        (_but(id=""), ("bad-example", "id")),
        (_but(images=fakes.image(0)), ("bad-example", "images")),
        (_but(texts="ab"), ("bad-example", "texts", "'ab'")),
        (_but(texts=("a", b"b")), ("not-a-text", "text", "b'b'")),
        (_but(texts=("a", "\udfff")), ("lone-surrogate",)),
        (_but(groups="colour"), ("bad-example", "groups", "'colour'")),
        (_but(target=0.5), ("bad-example", "target", "0.5")),
        (_but(target=-1), ("target-not-among-candidates",)),
        (_but(texts=("a",)), ("nothing-to-choose",)),
        (_but(images=()), ("bad-example", "'0'", "'words'")),
        (_but(images=("/no/such.png",)), ("no-such-file", "/no/such.png")),
        ([], ("no-examples", "'words'")),
        ([_GOOD] * 2, ("repeated-id", "'0'")),
        ([None], ("bad-example", "'words'", "winobench.Example")),
        ([("0", (), ())], ("bad-example", "'words'", "winobench.Example")),
    ],
)
def test_examples_are_checked_when_they_are_loaded(tmp_path, examples, message):
    with raises(*message):
        _evaluate(tmp_path, fakes.text_task(load=lambda data_dir, limit: iter(examples)))


def test_targets_of_numpy_are_indices(tmp_path):
    example = dataclasses.replace(_GOOD, target=np.int64(1))
    results = _evaluate(tmp_path, fakes.text_task(load=lambda data_dir, limit: iter([example])))
    assert results["tasks"]["words"]["accuracy"]["n"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ".."}, ("bad-name", "name")),
        ({"name": "a/b"}, ("bad-name", "name", "'a/b'")),
        ({"name": 5}, ("bad-name", "name", "5")),
        ({"metric": "zzz"}, ("unknown-metric", "metric", "'zzz'")),
        ({"metric": ["accuracy"]}, ("unknown-metric", "metric")),
        ({"chance": {"accuracy": float("nan")}}, ("bad-chance-level", "level", "nan")),
        ({"chance": {"accuracy": 2}}, ("bad-chance-level", "level", "2")),
        ({"chance": 0.5}, ("bad-chance-level", "0.5")),
    ],
)
def test_a_declaration_is_checked_before_anything_is_loaded(tmp_path, changes, message):
    task = dataclasses.replace(fakes.text_task(), **changes)
    with raises(*message):
        _evaluate(tmp_path, task)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", ["0.5", float("nan"), True])
def test_a_threshold_is_a_number(tmp_path, value):
    class Deciding(fakes.FakeScorer):
        match_threshold = value

    with raises("bad-threshold", "Deciding.match_threshold", repr(value)):
        _evaluate(tmp_path, scorer=Deciding())


def test_a_task_is_called_by_a_text():
    with raises("wrong-type", "name"):
        winobench.get_task(["clevr"])


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (None, ("bad-scores", "None")),
        ([(np.arange(2),)], ("bad-scores", "yielded")),
        ([(np.arange(2), np.zeros(3))], ("bad-scores", "float64")),
        ([(np.arange(2), np.array(["1", "2"]))], ("bad-scores", "errors", "<U1")),
        ([(np.arange(2), np.zeros(2, bool))], ("bad-scores", "errors", "bool")),
        ([(np.array([0.0, 1.0]), np.zeros(2))], ("bad-scores", "float64")),
        ([(np.array([0, 3]), np.zeros(2))], ("score-of-another-triple", "3")),
        ([(np.array([0, 0]), np.zeros(2))], ("repeated-score",)),
        ([(np.arange(3), np.zeros(3)), (np.arange(1), np.zeros(1))], ("repeated-score",)),
        ([(np.arange(2), np.zeros(2))], ("missing-scores", "1", "3")),
    ],
)
def test_batches_of_errors_are_checked(batches, message):
    with raises(*message):
        list(contracts.batches(batches, 3, "the scorer"))


def test_good_batches_pass_in_any_order_and_type():
    given = [(np.array([2], np.int32), [1]), ([1, 0], np.array([2, 3], np.float16)), ([], np.zeros(0))]
    found = list(contracts.batches([(np.asarray(part, int), values) for part, values in given], 3, "the scorer"))
    assert [part.tolist() for part, _ in found] == [[2], [1, 0], []]
    assert [values.tolist() for _, values in found] == [[1.0], [2.0, 3.0], []]
    assert all(values.dtype == np.float32 for _, values in found)


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("fingerprint", None, ("bad-fingerprint", "None")),
        ("fingerprint", {"scorer": {1, 2}}, ("not-json", "FakeScorer.fingerprint")),
        ("error", 5, ("bad-kind-of-error",)),
        ("error", "", ("bad-kind-of-error",)),
        ("choose_timesteps", None, ("bad-timesteps", "None")),
        ("choose_timesteps", [[1, 2]], ("bad-timesteps", "choose_timesteps")),
        ("choose_timesteps", [1.5], ("bad-timesteps", "choose_timesteps")),
        ("choose_timesteps", [float("nan")], ("bad-timesteps", "choose_timesteps")),
    ],
)
def test_what_a_scorer_says_of_itself_is_checked(tmp_path, method, value, message):
    scorer = fakes.FakeScorer()
    setattr(scorer, method, value if method == "error" else lambda *arguments, **options: value)
    with raises(*message):
        _evaluate(tmp_path, scorer=scorer)


@pytest.mark.parametrize("scores", [[["x", "y"]], [[1j, 0]], [[True, False]], [[1.0]]])
def test_scores_of_a_plain_scorer_are_real_numbers(tmp_path, scores):
    class Plain:
        def score(self, images, texts):
            return scores

    with raises("bad-scores", "Plain.score"):
        _evaluate(tmp_path, scorer=Plain())
