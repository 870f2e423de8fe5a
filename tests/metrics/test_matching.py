import json

import numpy as np
import pytest

from tests.expectations import names
from winobench import metrics
from winobench.metrics import Decision, recall, recall_chance, winoground


def test_recall_by_hand():
    scores = [[3, 2, 1], [1, 3, 2], [1, 2, 3]]
    assert recall(scores, [0, 0, 0], 1).correct.tolist() == [True, False, False]
    assert recall(scores, [0, 0, 0], 2).correct.tolist() == [True, False, False]
    assert recall(scores, [0, 2, 1], 2).correct.tolist() == [True, True, True]
    assert recall(scores, [0, 0, 0], 3).correct.all()
    assert not recall(scores, [0, 0, 0], 1).tie.any()


def test_a_tie_is_wrong_unless_the_right_answer_wins_outright():
    scores = [
        [2, 2, 1],  # tied with the right one at the top
        [1, 2, 2],  # tied above the right one
        [2, 1, 1],  # tied below the right one, which wins outright
        [1, 1, 1],
    ]
    result = recall(scores, [0, 0, 0, 0], 1)
    assert result.correct.tolist() == [False, False, True, False]
    assert result.tie.tolist() == [True, True, False, True]
    # Of two: the first is in whatever the order; the second hangs on it in no order; the last may or may not be.
    result = recall(scores, [0, 0, 0, 0], 2)
    assert result.correct.tolist() == [True, False, True, False]
    assert result.tie.tolist() == [False, False, True, True]


def test_an_answer_is_never_right_by_its_position():
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 3, (200, 5)).astype(float)
    targets = generator.integers(0, 5, 200)
    for k in (1, 2, 5):
        expected = recall(scores, targets, k)
        order = generator.permutation(5)
        shuffled = recall(scores[:, order], np.argsort(order)[targets], k)
        assert (shuffled.correct == expected.correct).all()
        assert (shuffled.tie == expected.tie).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="no example"):
        winoground(np.zeros((0, 2, 2)))
    with pytest.raises(ValueError, match=names("NaN")):
        recall([[bad, 1.0]], [0])
    with pytest.raises(ValueError, match=names("NaN")):
        winoground([[[bad, 1.0], [0.0, 1.0]]])


@pytest.mark.parametrize(("targets", "k"), [([2], 1), ([-1], 1), ([0, 0], 1), ([0.5], 1), ([0], 0), ([0], 1.5)])
def test_recall_refuses_what_does_not_fit(targets, k):
    with pytest.raises(ValueError, match=names("recall")):
        recall([[1.0, 2.0]], targets, k)


def test_winoground_by_hand():
    scores = np.array(
        [
            [[2, 1], [1, 2]],  # all right
            [[2, 1], [3, 4]],  # texts right for each image; image 1 is better for both texts
            [[2, 3], [1, 4]],  # images right for each text; text 1 is better for both images
            [[1, 2], [2, 1]],  # all wrong
            [[2, 2], [1, 3]],  # image 0 cannot choose its text
            [[2, 1], [2, 3]],  # text 0 cannot choose its image
            [[2, 2], [2, 3]],  # neither of the two
        ]
    )
    result = winoground(scores)
    assert result["text"].correct.tolist() == [True, True, False, False, False, True, False]
    assert result["image"].correct.tolist() == [True, False, True, False, True, False, False]
    assert result["group"].correct.tolist() == [True, False, False, False, False, False, False]
    assert result["text"].tie.tolist() == [False] * 4 + [True, False, True]
    assert result["image"].tie.tolist() == [False] * 4 + [False, True, True]
    assert result["group"].tie.tolist() == [False] * 4 + [True, True, True]


def test_chance_is_what_random_scores_reach():
    """Tolerance: five standard errors of 40,000 examples."""
    generator = np.random.default_rng(1)
    for name, outcome in winoground(generator.random((40_000, 2, 2))).items():
        assert outcome.correct.mean() == pytest.approx(metrics.WINOGROUND_CHANCE[name], abs=0.011)
    for size, k in [(2, 1), (5, 1), (10, 1), (10, 5), (37, 1)]:
        found = recall(generator.random((40_000, size)), np.zeros(40_000, int), k)
        assert found.correct.mean() == pytest.approx(recall_chance(size, k), abs=0.0125)
    assert recall_chance(3, 5) == 1


def test_metrics_take_examples_of_either_direction_and_several_sizes():
    scores = [np.array([[1.0, 2.0, 0.0]]), np.array([[3.0], [1.0]]), np.array([[1.0], [2.0], [0.0]])]
    assert metrics.METRICS["accuracy"](scores, [1, 0, 0])["accuracy"].correct.tolist() == [True, True, False]
    found = metrics.METRICS["recall"](scores, [1, 0, 0])
    assert list(found) == ["recall@1", "recall@5"]
    assert found["recall@5"].correct.all()


@pytest.mark.parametrize(
    ("name", "shape", "targets", "named"),
    [
        ("accuracy", (2, 2), [0], ("target", "(2, 2)")),
        ("accuracy", (1, 2), [None], ("target", "(1, 2)")),
        ("winoground", (2, 3), [None], ("winoground", "(2, 3)")),
        ("winoground", (2, 2), [None, 0], ("target", "None")),
    ],
)
def test_metrics_refuse_examples_of_the_wrong_shape(name, shape, targets, named):
    with pytest.raises(ValueError, match=names(*named)):
        metrics.METRICS[name]([np.zeros(shape)] * len(targets), targets)


def test_shapes_and_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=names("2")):
        recall(np.zeros(2), [0])
    for targets in ([0], [0, 0, 0]):
        with pytest.raises(ValueError, match=r"shorter|longer"):
            metrics.METRICS["accuracy"]([np.zeros((1, 2))] * 2, targets)


@pytest.mark.parametrize(
    "name", ["flickr30k", "flickr30k_text", "imagecode", "clevr", "vg_relation", "pets", "coco_order"]
)
def test_recall_against_the_published_functions(reference_data, name):
    """Equal wherever the published result does not hang on the order of equal scores, which ours never does."""
    recorded = json.loads((reference_data / "reference_runs" / "metrics.json").read_text())[name]
    scores, targets = np.array(recorded["scores"]), np.array(recorded["target"])
    result = recall(scores, targets, 1)
    assert result.tie.sum() == recorded["ties"]
    clear = ~result.tie
    assert clear.sum() >= 15
    assert (result.correct == np.array(recorded["correct"], bool))[clear].all()
    assert not result.correct[~clear].any()
    if "r5" in recorded:
        result = recall(scores, targets, 5)
        clear = np.array(recorded["r5_independent_of_tie_order"])
        assert clear.sum() >= 15
        assert (result.correct == np.array(recorded["r5"], bool))[clear].all()


def test_winoground_against_the_published_functions(reference_data):
    recorded = json.loads((reference_data / "reference_runs" / "metrics.json").read_text())["winoground"]
    assert recorded["columns"] == ["c0_i0", "c0_i1", "c1_i0", "c1_i1"]
    scores = np.array(recorded["scores"]).reshape(-1, 2, 2).transpose(0, 2, 1)  # to [n, images, texts]
    for name, outcome in winoground(scores).items():
        assert outcome.correct.tolist() == np.array(recorded[name], bool).tolist()
        assert outcome.tie.any()


def judge(name, scores, targets=None):
    return metrics.METRICS[name].judge(np.asarray(scores, np.float64), targets)[name]


@pytest.mark.parametrize(
    ("name", "scores", "correct", "tie"),
    [
        (
            "own_texts",
            [
                [[3, 1, 2, 0], [0, 5, 4, 1]],  # both find theirs
                [[3, 1, 2, 0], [6, 5, 4, 1]],  # the second one prefers the first text
                [[3, 1, 2, 0], [0, 5, 4, 6]],  # a text that belongs to neither
                [[3, 1, 3, 0], [0, 5, 4, 1]],  # a tie is wrong
                [[3, 1, 2, 0], [0, 0, 4, 0]],  # wrong, and tied besides
            ],
            [True, False, False, False, False],
            [False, False, False, True, True],
        ),
        # Two questions' answers: the first image's are the first ones, the second image's the others.
        (
            "all_answers",
            [[[2, 1, 2, 1], [1, 2, 1, 2]], [[2, 1, 1, 2], [1, 2, 1, 2]], [[2, 1, 2, 1], [1, 2, 2, 2]]],
            [True, False, False],
            [False, False, True],
        ),
        ("all_answers", [[[2, 1, 2, 1]], [[2, 1, 1, 2]]], [True, False], [False, False]),
        (
            "all_true",
            [[[3, 2, 1]], [[3, 1, 2]], [[1, 3, 1]], [[1, 1, 2]], [[2, 2, 1]]],
            [True, False, False, False, True],
            [False, False, True, False, False],
        ),
    ],
)
def test_metrics_of_several_images_or_captions_by_hand(name, scores, correct, tie):
    outcome = judge(name, scores, np.zeros(len(scores), int) if name == "all_true" else None)
    assert (outcome.correct.tolist(), outcome.tie.tolist()) == (correct, tie)


def test_the_four_forms_of_naturalbench_are_the_published_scores():
    """Q_Acc, I_Acc, Acc and G_Acc of the answers "yes", where each answer of an image is right by itself or wrong."""
    scores = np.random.default_rng(0).integers(0, 9, (400, 2, 2, 2)) + 0.25 * np.arange(2)  # image, question, answer
    says_first = scores[..., 0] > scores[..., 1]
    right = says_first == (np.arange(2)[:, None] == np.zeros(2))  # the first answer is that of the first image
    np.testing.assert_array_equal(judge("all_answers", scores.reshape(400, 2, 4)).correct, right.all(axis=(1, 2)))
    for number in (0, 1):
        own_first = scores[:, number, :, :: 1 if number == 0 else -1].reshape(400, 1, 4)
        np.testing.assert_array_equal(judge("all_answers", own_first).correct, right[:, number].all(axis=1))
        np.testing.assert_array_equal(judge("own_texts", scores[:, :, number]).correct, right[:, :, number].all(axis=1))
        result = judge("accuracy", scores[:, number, :1], np.full(400, number)).correct
        np.testing.assert_array_equal(result, right[:, number, 0])
    pairs = metrics.METRICS["all_answers"].pairs((2, 4))
    assert pairs.tolist() == [[True, False, True, False], [False, True, False, True]]


@pytest.mark.parametrize(
    ("name", "shape", "chance"),
    [("own_texts", (2, 4), 1 / 16), ("all_answers", (2, 4), 1 / 16), ("all_true", (1, 3), 1 / 3)],
)
def test_chance_of_several_and_many_sets_of_scores_at_once(name, shape, chance):
    scores = np.random.default_rng(1).normal(size=(20_000, *shape))
    targets = np.zeros(20_000, int) if name == "all_true" else None
    assert metrics.METRICS[name].chance(shape) == {name: chance}
    found = judge(name, scores, targets).correct
    assert found.mean() == pytest.approx(chance, abs=3.5 * np.sqrt(chance / 20_000))
    at_once = judge(name, np.stack([scores, -scores], axis=-1), targets).correct
    np.testing.assert_array_equal(at_once, np.stack([found, judge(name, -scores, targets).correct], axis=-1))


@pytest.mark.parametrize(
    ("name", "shape", "target"),
    [
        *(("own_texts", shape, None) for shape in ((1, 3, 2), (1, 1, 1), (1, 2))),
        ("own_texts", (2, 2, 4), 0),
        *(("all_answers", shape, None) for shape in ((1, 3, 4), (1, 2, 3))),
        ("all_answers", (1, 2, 4), 0),
        *(("all_true", shape, 0) for shape in ((2, 2, 3), (2, 1, 1))),
        ("all_true", (2, 1, 3), 2),
    ],
)
def test_questions_of_another_form_are_refused(name, shape, target):
    with pytest.raises(ValueError, match=name):
        judge(name, np.zeros(shape), None if target is None else np.full(shape[0], target))
    good = {"own_texts": (1, 2, 4), "all_answers": (1, 2, 4), "all_true": (1, 1, 3)}[name]
    with pytest.raises(ValueError, match="finite"):
        judge(name, np.full(good, np.nan), np.zeros(1, int) if name == "all_true" else None)


@pytest.mark.parametrize(
    ("levels", "published", "ties"),
    [
        (None, (0.44666666666666666, 0.48, 0.4266666666666667, 0.4533333333333333, 0.4266666666666667), (0, 0, 0)),
        (3, (0.38666666666666666, 0.2866666666666667, 0.36, 0.3233333333333333, 0.2866666666666667), (66, 116, 102)),
    ],
)
def test_texts_judged_alone_as_the_published_codes_count_them(levels, published, ties):
    """Pairwise accuracy, p_c, p_f, acc and min(p_c, p_f): ``cal_valse_score`` of EqBen's toolkit, ties included.

    VALSE's own lxmert_valse_eval.py gave the same four numbers after the first, up to 1e-16, without foils that are at
    the threshold, which it leaves out. Its pairwise accuracy compares the logits of a match alone.
    """
    generator = np.random.default_rng(0)
    every = {None: generator.normal(size=(300, 2, 2)), 3: generator.integers(0, 3, (300, 2, 2)).astype(float)}
    odds = every[levels][..., 1] - every[levels][..., 0]
    for scores, threshold in ((odds, 0.0), (1 / (1 + np.exp(-odds)), 0.5)):
        metric = metrics.METRICS["accuracy"].at(threshold)
        result = metric(list(scores[:, None]), [0] * 300)
        answers = {name: outcome.correct for name, outcome in result.items()}
        values = {name: right.mean() for name, right in answers.items()}
        values |= {
            row: np.concatenate([answers[name] for name in outcomes]).mean()
            for row, outcomes in metric.combined(answers).items()
        }
        assert values == pytest.approx(dict(zip(("accuracy", "p_c", "p_f", "acc", "min_p"), published, strict=True)))
        assert [int(outcome.tie.sum()) for outcome in result.values()] == list(ties)
        assert metric.described()["threshold"] == threshold
        assert set(metric.chance((1, 2)).values()) == {1 / 2}


def test_only_accuracy_judges_texts_alone():
    assert metrics.METRICS["accuracy"].at(None) is metrics.METRICS["accuracy"]
    assert metrics.METRICS["winoground"].at(0.5) is metrics.METRICS["winoground"]
    assert "threshold" not in metrics.METRICS["accuracy"].described()
    # Wherever the right one stands, and all others must be rejected.
    found = metrics.METRICS["accuracy"].at(1.0)([np.array([[0.0, 2.0, 1.5]]), np.array([[0.5, 0.9, 0.0]])], [1, 2])
    assert [found[name].correct.tolist() for name in ("p_c", "p_f")] == [[True, False], [False, True]]


def test_what_decides_the_metrics():
    top, diagonal = Decision(tops=(1,)), Decision()
    assert [top.fits(shape) for shape in ((1, 1), (1, 9), (9, 1), (2, 2), (2, 3))] == [True, True, True, False, False]
    assert [diagonal.fits(shape) for shape in ((1, 1), (2, 2), (3, 3), (2, 3), (3, 2))] == [
        False, True, True, False, False,
    ]  # fmt: skip
    assert "one image" in top.asks_for
    assert "as many images as texts" in diagonal.asks_for


def test_recall_of_one_by_default():
    np.testing.assert_array_equal(recall(np.array([[1.0, 2.0]]), [0]).correct, [False])
    assert recall_chance(4) == 1 / 4
    assert recall_chance(1) == 1
    for candidates, k in ((0, 1), (4, 0), (5, "1"), (2.5, 1)):
        with pytest.raises(ValueError, match=names("recall_chance", f"{candidates!r} and {k!r}")):
            recall_chance(candidates, k)


def test_winoground_of_three_by_hand():
    scores = np.array(
        [[[3, 1, 1], [2, 3, 1], [0, 0, 3]], [[3, 1, 1], [2, 3, 1], [0, 4, 3]], [[3, 0, 4], [0, 3, 0], [0, 0, 5]]]
    )
    found = winoground(scores)
    assert found["text"].correct.tolist() == [True, False, False]
    assert found["image"].correct.tolist() == [True, False, True]
    assert found["group"].correct.tolist() == [True, False, False]
    assert not found["group"].tie.any()


@pytest.mark.parametrize(
    ("levels", "size", "ours", "published"),
    [
        (None, 6, (0.1775, 0.4975, 0.8175, 1), (0.1775, 0.4975, 0.8175, 1)),
        (None, 14, (0.0675, 0.2075, 0.3425, 0.6775), (0.0675, 0.2075, 0.3425, 0.6775)),
        (6, 6, (0.0875, 0.405, 0.705, 1), (0.2725, 0.5525, 0.8925, 1)),
        (6, 14, (0.02, 0.145, 0.255, 0.6425), (0.175, 0.2825, 0.44, 0.815)),
    ],
)
def test_recalls_of_crepe_against_its_published_code(levels, size, ours, published):
    """``published``: ``get_one2many_metrics`` of RAIVNLab/CREPE, with the right candidate first.

    It sorts the right one before its equals, a tie is wrong here: its numbers are ours where there is no tie, and in
    all four cases once the right score is a hair lower.
    """
    generator = np.random.default_rng(0)
    every = {
        (step, many): generator.random((400, many)) if step is None else generator.integers(0, step, (400, many))
        for step in (None, 6)
        for many in (6, 14)
    }
    scores = every[levels, size].astype(float)
    result = metrics.METRICS["recall_1_3_5_10"]([row[None] for row in scores], [0] * 400)
    assert list(result) == ["recall@1", "recall@3", "recall@5", "recall@10"]
    assert [outcome.correct.mean() for outcome in result.values()] == list(ours)
    assert (ours == published) == (levels is None)
    at_best = [recall(scores + 1e-9 * np.eye(1, size), [0] * 400, k).correct.mean() for k in (1, 3, 5, 10)]
    assert at_best == list(published)
    assert metrics.METRICS["recall_1_3_5_10"].chance((1, 6)) == {
        "recall@1": 1 / 6, "recall@3": 1 / 2, "recall@5": 5 / 6, "recall@10": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 2), {"p_c": 1 / 2, "p_f": 1 / 2, "acc": 1 / 2, "min_p": 1 / 2}),
        # A coin for each of three texts: both wrong ones are refused in one case of four.
        ((1, 3), {"p_c": 1 / 2, "p_f": 1 / 4, "acc": 3 / 8, "min_p": 1 / 4}),
    ],
)
def test_chance_of_texts_judged_alone(shape, expected):
    metric = metrics.METRICS["accuracy"].at(0.0)
    assert {name: metric.mean_chance(name, [shape]) for name in expected} == expected
    scores = np.array(np.meshgrid(*[(-1.0, 1.0)] * shape[1])).reshape(shape[1], -1).T[:, None]
    outcomes = metric(scores, [0] * len(scores))
    assert all(outcomes[name].correct.mean() == expected[name] for name in ("p_c", "p_f"))
