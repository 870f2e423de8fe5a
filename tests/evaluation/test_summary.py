"""Scores, groups, macro means and clusters, by hand."""

import dataclasses

import numpy as np
import pytest

from tests.evaluation import fakes
from winobench import metrics
from winobench.data.images import GRAY_IMAGE, image_hash
from winobench.evaluation import example_rows, summary
from winobench.evaluation.plan import Plan, Question
from winobench.metrics import normalization
from winobench.runs.error_store import Batch, mean_scores
from winobench.scorers.diffusion_itm import DiffusionITM


def _question(number, images=(0,), texts=(0, 1), target=0, groups=()):
    return Question(str(number), images, texts, target, groups)


def _plan(questions, pairs, texts=("a", "b", ""), terms=(normalization.OWN,)):
    return Plan(
        images=[None] * 3,
        image_hashes=["x", "y", image_hash(GRAY_IMAGE)],
        texts=list(texts),
        text_hashes=[""] * len(texts),
        pairs=np.array(pairs, np.int32),
        questions={"task": questions},
        terms={"task": terms},
    )


_TWO = _question(0, images=(1, 0), texts=(0,), target=0)
_EMPTY, _GRAY = (normalization.UNCONDITIONAL,), (normalization.GRAY_IMAGE,)


@pytest.mark.parametrize(
    ("terms", "question", "pairs", "errors", "scores"),
    [
        ((), _question(0), [[0, 0], [0, 1]], [[1, 3], [4, 8]], [[-2.0, -6.0]]),
        # Image 1: 16 - 15; image 0: 5 - 2.
        (_EMPTY, _TWO, [[0, 0], [0, 2], [1, 0], [1, 2]], [[1, 3], [5, 5], [10, 20], [16, 16]], [[1], [3]]),
        # Text by text, minus (2 - 1) and minus (6 - 4).
        (_GRAY, _question(0), [[0, 0], [0, 1], [2, 0], [2, 1]], [[1, 3], [4, 8], [1, 1], [5, 3]], [[-1, -2]]),
    ],
)  # fmt: skip
def test_scores_by_hand(terms, question, pairs, errors, scores):
    plan = _plan([question], pairs, terms=(normalization.OWN, *terms))
    (found,) = summary.question_scores(plan, "task", np.float32(errors))
    assert found.tolist() == scores
    assert found.dtype == np.float64


def test_means_are_taken_finer_than_the_errors():
    """In float32 both means would be 4096: errors of that size are 2^-11 apart."""
    plan = _plan([_question(0)], [[0, 0], [0, 1]])
    step = np.spacing(np.float32(4096))
    errors = np.full((2, 64), 4096, np.float32)
    errors[1, 0] += step
    (scores,) = summary.question_scores(plan, "task", errors)
    assert scores[0, 0] - scores[0, 1] == step / 64


def _matrices(*right):
    return [np.array([[1.0, 0.0] if each else [0.0, 1.0]]) for each in right]


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([[[0.5, 0.5]], [[0.1, 0.1]]], "texts"),
        ([[[0.5, 0.5000001]], [[0.1, 0.1]]], "texts"),
        ([[[0.3, 0.3], [0.3, 0.3]]], "candidates"),
        ([[[0.3, 0.4], [0.2, 0.4]]], None),
        # The same texts about one image each: the image does not matter.
        ([[[0.3, 0.4, 0.5]], [[0.3, 0.4, 0.5]]], "images"),
        ([[[0.3, 0.4, 0.5]], [[0.3, 0.4, 0.6]]], None),
        ([[[0.3]], [[0.3]]], "images"),  # one image with one text, as people rate them
        ([[[0.5, 0.5]]] * 99 + [[[0.5, 0.4]]], None),
        ([[[0.5, 0.5]]] * 100 + [[[0.5, 0.4]]], "texts"),
    ],
)
def test_scores_that_do_not_tell_candidates_apart_are_found(scores, found):
    assert summary.constant_over([np.array(matrix, np.float64) for matrix in scores]) == found


def test_equal_scores_are_said_next_to_the_numbers():
    """On the rows of all examples, which are what they were otherwise."""
    questions = [_question(number, groups=("g",)) for number in range(3)]
    task = fakes.text_task()
    told, flat = (summary.task_results(task, questions, [np.array([pair])] * 3) for pair in ([0.4, 0.3], [0.3, 0.3]))
    told_apart = summary.task_results(task, questions, [np.array([[0.1 * n, 0.3]]) for n in range(3)])
    assert {name: row.get("constant") for name, row in flat.items() if "/" not in name} == {"accuracy": "candidates"}
    assert all("constant" not in row for name, row in flat.items() if "/" in name)
    assert told["accuracy"]["constant"] == "images"
    assert all("constant" not in row for row in told_apart.values())


def test_groups_and_clusters():
    questions = [
        _question(0, images=(0,), groups=("colour",)),
        _question(1, images=(0,), groups=("shape",)),
        _question(2, images=(1,), groups=("colour",)),
        _question(3, images=(1,), groups=("shape", "hard")),
    ]
    found = summary.task_results(fakes.text_task(), questions, _matrices(1, 1, 1, 0))
    assert list(found) == ["accuracy", "colour/accuracy", "shape/accuracy", "hard/accuracy"]
    assert [entry["n"] for entry in found.values()] == [4, 2, 2, 1]
    assert [entry["independent"] for entry in found.values()] == [2, 2, 2, 1]
    assert [entry["value"] for entry in found.values()] == [0.75, 1, 0.5, 0]
    expected = metrics.clustered([1, 1, 1, 0], [0, 0, 1, 1])
    assert (found["accuracy"]["low"], found["accuracy"]["high"]) == expected[1:]
    # Within a group every image occurs once: Wilson's interval.
    assert found["colour/accuracy"]["low"] == pytest.approx(metrics.wilson(2, 2).low)


def test_macro_mean_weighs_groups_alike():
    questions = [_question(number, images=(number,), groups=("big",)) for number in range(4)]
    questions += [_question(4, images=(4,), groups=("small",))]
    task = fakes.text_task(metric="macro_accuracy", chance={"accuracy": 0.5, "small/accuracy": 0.4})
    found = summary.task_results(task, questions, _matrices(1, 1, 1, 0, 0))
    assert list(found) == ["accuracy", "macro_accuracy", "big/accuracy", "small/accuracy"]
    assert found["accuracy"]["value"] == 3 / 5
    assert found["macro_accuracy"]["value"] == pytest.approx((3 / 4 + 0) / 2)
    assert found["macro_accuracy"]["chance"] == 0.5
    assert found["small/accuracy"]["chance"] == 0.4


def test_chance_is_over_the_questions_of_a_row():
    # Two, three and four candidates: the mean of 1/2, 1/3 and 1/4, and of each group's own.
    groups, sizes = (("two", "few"), ("few",), ("four",)), (2, 3, 4)
    questions = [_question(number, groups=some) for number, some in enumerate(groups)]
    scores = [np.eye(1, size) for size in sizes]
    task = fakes.text_task(metric="macro_accuracy", chance={"accuracy": 0.4}, chance_by_question=True)
    found = summary.task_results(task, questions, scores)
    assert {name: entry["chance"] for name, entry in found.items()} == pytest.approx(
        {
            "accuracy": 13 / 36,
            "macro_accuracy": (1 / 2 + 5 / 12 + 1 / 4) / 3,
            "two/accuracy": 1 / 2,
            "few/accuracy": 5 / 12,
            "four/accuracy": 1 / 4,
        },
        abs=1e-12,
    )
    # A subset has its own. A level that a task states holds for all rows.
    assert summary.task_results(task, questions[:1], scores[:1])["accuracy"]["chance"] == 1 / 2
    stated = summary.task_results(dataclasses.replace(task, chance_by_question=False), questions, scores)
    assert {entry["chance"] for entry in stated.values()} == {0.4}


@pytest.mark.parametrize(("given", "chance"), [({"accuracy": None}, None), ({}, 0.5)])
def test_a_chance_level_may_be_unknown_or_that_of_guessing(given, chance):
    found = summary.task_results(fakes.text_task(chance=given), [_question(0)], _matrices(1))
    assert found["accuracy"]["chance"] == chance


@pytest.mark.parametrize(
    ("images", "targets", "tied"),
    [
        # By an image whether it is right or not.
        ([(0, 9), (9, 1), (0, 5), (7, 6)], (0, 1, 0, 0), [(0, 1), (0, 2)]),
        # By either of two right images.
        ([(0, 1), (2, 3), (3, 4), (4, 5)], (None,) * 4, [(1, 2), (2, 3)]),
    ],
)
def test_questions_that_share_an_image_depend_on_each_other(images, targets, tied):
    numbered = zip(images, targets, strict=True)
    questions = [_question(0, images=some, texts=(0,), target=target) for some, target in numbered]
    expected = np.eye(4, dtype=bool)
    for one, other in tied:
        expected[one, other] = expected[other, one] = True
    found = summary.image_dependence(questions).sums(np.eye(4)).astype(bool)
    np.testing.assert_array_equal(found, expected)


def test_descriptions_of_one_image_set_are_one_cluster():
    """ImageCoDe's: ten images in common, each description of another one."""
    sets = [tuple(range(10 * number, 10 * number + 10)) for number in range(40)]
    questions = [_question(10 * n + t, images=sets[n], texts=(0,), target=t) for n in range(40) for t in range(4)]
    found = summary.task_results(
        fakes.text_task(), questions, [np.eye(10)[[q.target if int(q.id) % 3 else 0]].T for q in questions]
    )["accuracy"]
    right = [bool(int(q.id) % 3) or q.target == 0 for q in questions]
    expected = metrics.clustered(right, np.repeat(np.arange(40), 4))
    assert (found["value"], found["low"], found["high"]) == pytest.approx(tuple(expected))
    assert found["high"] - found["low"] > 1.01 * (lambda i: i.high - i.low)(metrics.wilson(sum(right), len(right)))


def test_example_rows():
    questions = [_question("e1", groups=("g",)), _question("e2", target=1), _question("e3")]
    plan = _plan(questions, [[0, 0], [0, 1]])
    task = dataclasses.replace(fakes.text_task(), name="task")
    rows = example_rows.example_table(task, plan, [np.array([[2.0, 1.0]]), np.array([[2.0, 1.0]]), np.ones((1, 2))])
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("e1", ["g"], ["x"], ["a", "b"], 0, [[2.0, 1.0]], 0, True, False, ["own"]),
        ("e2", [], ["x"], ["a", "b"], 1, [[2.0, 1.0]], 0, False, False, ["own"]),
        ("e3", [], ["x"], ["a", "b"], 0, [[1.0, 1.0]], None, False, True, ["own"]),
    ]


def test_example_rows_of_recall_have_a_column_a_part():
    task = dataclasses.replace(fakes.text_task(), name="task", metric="recall")
    plan = _plan([_question(0)], [[0, 0], [0, 1]])
    names = example_rows.example_table(task, plan, _matrices(1)).column_names
    assert names[-4:] == ["correct_recall_at_1", "tie_recall_at_1", "correct_recall_at_5", "tie_recall_at_5"]


@pytest.mark.parametrize("normalize", ["none", "unconditional", "gray_image"])
def test_a_score_is_the_same_of_an_evaluation_a_report_and_a_call(normalize):
    """Two images and three texts, among them the empty one; errors of the gray image, too."""
    errors = np.random.default_rng(4).uniform(5, 6, size=(3, 3, 6)).astype(np.float32)  # gray and empty: the last ones
    rows = [[image, text] for image in range(3) for text in range(3)]
    question = _question(0, images=(0, 1), texts=(0, 1), target=None)
    terms = normalization.NORMALIZATIONS[normalize]
    plan = _plan([question], rows, terms=terms)
    (evaluated,) = summary.question_scores(plan, "task", errors.reshape(9, 6))
    of_terms = {"own": errors[:2, :2], "unconditional": errors[:2, 2:], "gray_image": errors[2:, :2]}
    batch = Batch(np.arange(1), {name: values[None] for name, values in of_terms.items()}, terms)
    np.testing.assert_array_equal(mean_scores(batch)[0], evaluated)

    class Scorer(DiffusionITM):
        def __init__(self):
            pass

        def errors(self, images, texts, **options):
            return errors[[0, 1, 2][: len(images)]][:, [0, 1, 2][: len(texts)]]

    called = Scorer().score([np.zeros((8, 8, 3), np.uint8)] * 2, ["a", "b"], normalize=normalize)
    np.testing.assert_allclose(called, evaluated, rtol=0, atol=1e-12)
