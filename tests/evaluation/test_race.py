"""Races by hand, and against the decisions of the whole budget."""

import dataclasses
import shutil

import numpy as np
import pytest

from tests.evaluation import fakes
from tests.expectations import names, raises
from winobench import metrics
from winobench.base.errors import InputError
from winobench.evaluation import decisions, evaluate, race
from winobench.evaluation.plan import make_plan
from winobench.evaluation.summary import question_scores
from winobench.metrics import sequential
from winobench.tasks import TASKS
from winobench.tasks.base import Example

LEVEL, SHARE, BUDGET = 0.01, 0.3, 64
LOOKS = sequential.looks(BUDGET, LEVEL, SHARE)


def _ranking(candidates, *tops):
    """With the default of the best one, where no tops are given."""
    return decisions.Ranking(np.arange(candidates)[:, None], np.array([-1]), *tops)


def _errors(means, samples=BUDGET, spread=1.0, seed=0):
    """Errors with one common part for all candidates, as samples of noise have."""
    random = np.random.default_rng(seed)
    common = 50 * random.standard_normal((1, samples))
    return np.float32(np.asarray(means)[:, None] + common + spread * random.standard_normal((len(means), samples)))


def _run(question, errors, looks=LOOKS):
    """Races a single question; what it does not ask for is not known."""
    known = np.full_like(errors, np.nan)
    for n in looks:
        known[question.needed(), :n] = errors[question.needed(), :n]
        question.interim_look(known, n, errors.shape[1], LEVEL, SHARE)
        if question.decided:
            break
    return question.scores(known)


def test_far_candidates_leave_soon_and_close_ones_stay():
    errors = _errors([0.0, 100.0, 0.2])
    ranking = _ranking(3)
    assert ranking.needed().tolist() == [0, 1, 2]
    scores = _run(ranking, errors)
    assert ranking.decided
    assert ranking.num_samples[1] <= BUDGET / 2
    assert ranking.num_samples[[0, 2]].tolist() == [BUDGET, BUDGET]
    assert np.argmax(scores) == np.argmin(errors.mean(axis=1))
    # The winner's mean, less the mean difference on the samples that both have.
    winner, n = int(np.argmax(scores)), int(ranking.num_samples[1])
    expected = -errors[winner].mean(dtype=np.float64) - (errors[1, :n] - errors[winner, :n]).mean(dtype=np.float64)
    assert scores[1] == pytest.approx(expected, rel=1e-6)


def test_the_five_best_are_a_race_of_their_own():
    errors = _errors([0, 3, 6, 9, 12, 100, 103, 106], spread=0.1)
    ranking = _ranking(8, (1, 5))
    order = np.argsort(-_run(ranking, errors))
    assert ranking.decided
    assert ranking.num_samples.max() < BUDGET
    assert order[0] == 0
    assert set(order[:5].tolist()) == {0, 1, 2, 3, 4}
    # Only the fifth and the sixth, which are close, go on.
    close = _errors([0, 30, 60, 90, 120, 120.3, 150, 180], spread=1)
    ranking = _ranking(8, (1, 5))
    _run(ranking, close)
    assert ranking.num_samples[[4, 5]].tolist() == [BUDGET, BUDGET]
    assert np.delete(ranking.num_samples, [4, 5]).max() < BUDGET


def test_a_candidate_that_was_dropped_does_not_win_by_its_few_samples():
    """The third, which overtakes the winner later, is worse than the first on the samples that it was judged on."""
    samples = np.arange(BUDGET)
    third = np.where(samples < 32, np.where(samples % 2, 18.0, 3.0), 6.0)
    errors = np.float32([10.0 + 0.01 * (samples % 3), 9.0 + 0.01 * (samples % 2), third])
    ranking = _ranking(3)
    scores = _run(ranking, errors)
    assert ranking.num_samples[0] <= 32
    assert np.argmax(scores) == 2
    assert scores[0] < scores[2]


def test_equal_candidates_end_in_a_tie():
    ranking = _ranking(2)
    scores = _run(ranking, np.ones((2, BUDGET), np.float32))
    assert ranking.num_samples.tolist() == [BUDGET, BUDGET]
    assert scores[0] == scores[1]


def test_a_single_candidate_has_a_score():
    ranking = _ranking(1)
    assert ranking.needed().tolist() == [0]
    ranking.interim_look(np.float32([[1, 2, 3, 4]]), 4, 64, LEVEL)
    assert ranking.decided
    assert ranking.scores(np.float32([[1, 2, 3, 4]])).tolist() == [-2.5]


def test_samples_are_met_in_the_given_order():
    errors = np.float32([np.arange(8.0), 3 * np.arange(8.0)])
    order = np.array([7, 1, 0, 2, 3, 4, 5, 6])
    ranking = decisions.Ranking(np.arange(2)[:, None], np.array([-1]), order=order, weights=np.arange(8.0))
    ranking.interim_look(errors, 2, 8, LEVEL)
    np.testing.assert_allclose(ranking.scores(errors), [-(49 + 1) / 2, -3 * (49 + 1) / 2])


def _matching(size=2):
    """Rows: (image 0, text 0), (image 0, text 1), ..."""
    return decisions.PairwiseQuestion(np.arange(size**2).reshape(size, size, 1), np.array([-1]))


@pytest.mark.parametrize(
    ("means", "needs_all"),
    [
        ([0, 90, 90, 0], False),  # all four comparisons are won
        ([90, 0, 0, 0.1], False),  # one of each score is lost; the others do not matter
        ([0, 90, 0.1, 0], True),  # text: 0 < 90 and 0 ? 0.1 for the second image
        ([0, 9, 9, 9, 0, 9, 0.1, 9, 0], True),  # of twelve comparisons, two are close
        ([0, 9, 9, 9, 9, 0, 9, 0, 9], False),  # the second image and the second text are lost
    ],
)
def test_the_diagonals_scores_are_decided_together(means, needs_all):
    errors = _errors(means)
    matching = _matching(int(np.sqrt(len(means))))
    assert len(matching.needed()) == len(means)
    scores = _run(matching, errors)
    n = int(matching.num_samples.max())
    assert matching.num_samples.min() == n
    assert (n == BUDGET) == needs_all
    assert not len(matching.needed())
    assert (scores == -errors[:, :n].mean(axis=1, dtype=np.float64).reshape(scores.shape)).all()


def test_a_verdict_that_the_means_have_left_does_not_end_the_race():
    """What is reported are means: where they no longer say what was sure, the race goes on."""
    for verdict, means in (("_won", [0.25, 0.0, 0.5, 0.25]), ("_lost", [0.0, 0.25, 0.25, 0.0])):
        matching, errors = _matching(), np.repeat(np.float32(means)[:, None], BUDGET, axis=1)
        setattr(matching, verdict, np.array([True, True]))
        matching.interim_look(errors, 8, BUDGET, LEVEL, SHARE)
        assert not matching.decided


@pytest.fixture(scope="module")
def planned():
    """A plan and its tasks, which tests must not change."""
    tasks = [fakes.text_task(count=40), fakes.image_task(count=40)]
    return make_plan(tasks, data_dir=None, limit=None, normalize="auto"), tasks


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    """The folder of a finished race, which tests must not change, its scorer and results."""
    folder, scorer = tmp_path_factory.mktemp("raced") / "race", Decided()
    return folder, scorer, _evaluate(scorer, folder)


def _known(plan, budget, effect):
    """Errors of every pair with a difficulty of its own."""
    random = np.random.default_rng(1)
    difficulty = effect * random.standard_normal((len(plan.pairs), 1))
    common = 20 * random.standard_normal((1, budget))
    return np.float32(100 + difficulty + common + random.standard_normal((len(plan.pairs), budget)))


def test_a_race_agrees_with_the_whole_budget_and_asks_only_for_what_it_needs(planned):
    """Also in heats of three images and eight texts at most, from errors that are recorded."""
    plan, tasks = planned
    budget = 128
    known = _known(plan, budget, effect=1.5)
    errors = np.full_like(known, np.nan)

    def score(pairs, first, end):
        assert np.isnan(errors[pairs, first:end]).all()
        assert (np.diff(pairs) > 0).all()
        errors[pairs, first:end] = known[pairs, first:end]

    outcome = race.Race(plan, tasks, budget).run(errors, score, share=0.2)
    assert outcome.passes == np.isfinite(errors).sum()
    assert outcome.fixed_passes == known.size
    assert outcome.passes < known.size / 1.8
    heats = []

    def again(pairs, first, end):
        if first == 0:
            heats.append(plan.pairs[pairs])

    of_heats = race.Race(plan, tasks, budget, rows=(3, 8)).run(errors, again, share=0.2)
    assert len(heats) > 30
    assert all(len(np.unique(heat[:, 0])) <= 3 and len(np.unique(heat[:, 1])) <= 8 for heat in heats)
    assert {**vars(of_heats), "scores": None} == {**vars(outcome), "scores": None}
    for task in tasks:
        np.testing.assert_array_equal(of_heats.scores[task.name], outcome.scores[task.name])
        of = outcome.tasks[task.name]
        assert of.questions == len(plan.questions[task.name])
        assert 0 < of.undecided < of.questions / 3
        assert 16 <= of.samples <= 64
        targets = [question.target for question in plan.questions[task.name]]
        whole = question_scores(plan, task.name, known)
        fixed = metrics.METRICS[task.metric](whole, targets)["accuracy"]
        raced = metrics.METRICS[task.metric](outcome.scores[task.name], targets)["accuracy"]
        assert [one.shape for one in outcome.scores[task.name]] == [one.shape for one in whole]
        assert (fixed.correct == raced.correct).mean() >= 0.98


def test_shares_have_equally_many_pairs_and_every_question_once(planned):
    plan, tasks = planned
    shares = [race.Race(plan, tasks, 64, part=(process, 3))._entries for process in range(3)]
    assert sum(map(len, shares)) == sum(map(len, plan.questions.values()))
    pairs = [sum(len(entry.rows) for entry in share) for share in shares]
    assert max(pairs) - min(pairs) <= 8
    last = [max(int(entry.rows[0]) for entry in share) for share in shares]
    assert last == sorted(last)
    # Some of many processes have nothing to race.
    few = [fakes.image_task(count=1)]
    plan = make_plan(few, data_dir=None, limit=None, normalize="auto")
    runs = [race.Race(plan, few, 8, part=(process, 3)) for process in range(3)]
    assert sorted(one.num_questions for one in runs) == [0, 0, 1]
    for one in runs:
        one.run(np.zeros((len(plan.pairs), 8), np.float32), lambda *_: None)


def test_without_differences_a_race_takes_the_whole_budget(planned):
    plan, tasks = planned
    errors = _known(plan, 64, effect=0.0)
    outcome = race.Race(plan, tasks, 64).run(errors, lambda *_: None, alpha=0.01)
    assert all(of.undecided > 0.9 * of.questions for of in outcome.tasks.values())
    assert outcome.passes > 0.9 * outcome.fixed_passes


class Decided(fakes.FakeScorer):
    """Errors in which most texts and images differ by more than their noise."""

    def error_of(self, image, text, sample, salt):
        noise = super().error_of(image, text, sample, salt)
        of_pair = super().error_of(image, text, 0, "pair") if text else 0.5
        return np.float32(noise + 10 * of_pair)


def _evaluate(scorer, workdir, **changes):
    tasks = [fakes.text_task(), fakes.image_task(), fakes.square_task()]
    arguments = {"num_samples": 64, "mode": "race", "timesteps": "low_discrepancy", "rare_share": 0.3}
    arguments |= {"reuse": False, "progress": False, **changes}
    return evaluate.evaluate(scorer, tasks, workdir, **arguments)


def test_an_evaluation_by_race(raced, tmp_path):
    _, scorer, raced = raced
    whole = _evaluate(Decided(), tmp_path / "fixed", mode="fixed")
    assert len(scorer.scored) == len(set(scorer.scored)) == raced["passes"] == raced["computed_passes"]
    assert raced["race"]["passes"] == raced["passes"] < whole["passes"] / 2
    assert raced["race"]["fixed_passes"] == whole["passes"]
    assert "race" not in whole
    counts = {name: of["questions"] for name, of in raced["race"]["tasks"].items()}
    assert counts == {"words": 12, "pictures": 6, "square": 6}
    for task, entries in whole["tasks"].items():
        for metric, entry in entries.items():
            assert raced["tasks"][task][metric]["value"] == entry["value"], (task, metric)


def test_races_and_fixed_budgets_share_their_errors(raced, tmp_path):
    folder, _, raced = raced
    shutil.copytree(folder, tmp_path / "race")
    fixed = Decided()
    whole = _evaluate(fixed, tmp_path / "fixed", mode="fixed", reuse=True)
    assert len(fixed.scored) == whole["passes"] - raced["passes"]
    again = Decided()
    results = _evaluate(again, tmp_path / "again", reuse=True)
    assert results["race"] == raced["race"]
    assert not again.scored


def test_bias_takes_all_of_its_samples(tmp_path):
    tasks, more = [fakes.text_task(), fakes.bias_task()], {"num_samples": 64, "num_bias_samples": 6}
    results = evaluate.evaluate(Decided(), tasks, tmp_path / "run", mode="race", progress=False, **more)
    assert list(results["race"]["tasks"]) == ["words"]
    assert results["passes"] == results["race"]["passes"] + 8 * 4 * 6
    assert set(results["tasks"]) == {"words", "bias"}


@pytest.mark.parametrize("rule", ["stratified", [100 * (i % 10) for i in range(64)]])
def test_any_rule_for_timesteps_can_race(tmp_path, rule):
    """Samples are met in random order, so that the first ones are samples of the whole range."""
    results = _evaluate(Decided(), tmp_path / "run", timesteps=rule, num_samples=64)
    assert results["race"]["passes"] < results["race"]["fixed_passes"]
    assert results["race"]["rare_share"] == 0.3


def test_a_metric_that_does_not_say_what_decides_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    for name, decision in (("plain", None), ("marked", metrics.Decision(tops=(1,)))):
        metric = dataclasses.replace(metrics.ACCURACY, name=name, decision=decision)
        monkeypatch.setitem(metrics.METRICS, name, metric)
    read = []
    task = fakes.text_task(metric="plain", load=lambda *_: read.append(1))
    with pytest.raises(InputError, match=names("'words'", "'plain'")):
        evaluate.evaluate(Decided(), [task], tmp_path / "run", mode="race", progress=False)
    assert not read
    assert not (tmp_path / "run").exists()
    task = fakes.text_task(metric="marked")
    options = {"mode": "race", "num_samples": 64, "rare_share": 0.3, "progress": False}
    results = evaluate.evaluate(Decided(), [task], tmp_path / "run", **options)
    assert results["race"]["passes"] < results["race"]["fixed_passes"]


@pytest.mark.parametrize(
    ("metric", "shape", "target", "words"),
    [
        ("accuracy", (2, 2), 0, ("2 images", "2 texts")),
        ("recall", (2, 2), None, ("2 images", "2 texts")),
        ("recall", (1, 2), None, ("target",)),
        ("winoground", (1, 2), 0, ("1 images", "2 texts")),
        ("winoground", (2, 2), 1, ("target 1",)),
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
def test_questions_that_a_metric_does_not_decide_are_refused(tmp_path, metric, shape, target, words, is_listed):
    """Whether the task says so or only its examples do: before anything is scored."""

    def load(data_dir, limit):
        images = tuple(fakes.image(number) for number in range(shape[0]))
        yield Example("odd", images, tuple(f"text {number}" for number in range(shape[1])), target)

    usual = (2, 2) if metric == "winoground" else (1, 2)
    task = fakes.make_task("odd", metric, shape if is_listed else usual, {}, load)
    scorer = Decided()
    with raises("cannot-race", "task 'odd'", *words, "mode='fixed'"):
        evaluate.evaluate(scorer, [task], tmp_path / "run", mode="race", progress=False)
    assert not scorer.scored


def test_every_task_here_can_race_or_is_of_bias():
    """But for those of metrics that no smaller set of comparisons decides, which are refused by name."""
    race.check([fakes.text_task(), fakes.image_task(), fakes.square_task(), fakes.bias_task()])
    undecided = {"all_true", "own_texts", "all_answers"}
    race.check(task for task in TASKS.values() if task.metric not in undecided)
    for metric in undecided:
        with raises("cannot-race", f"'{metric}'"):
            race.check([dataclasses.replace(fakes.image_task(), metric=metric)])
    with pytest.raises(InputError, match=names("'unheard of'")):
        race.check([dataclasses.replace(fakes.image_task(), metric="unheard of")])


def _questions(shape, metric, count):
    """A task of questions on images and texts of their own, without data, and its plan."""

    def load(data_dir, limit):
        for number in range(count):
            images = tuple(np.full((2, 2, 3), (number, i, 0), np.uint8) for i in range(shape[0]))
            texts = tuple(f"{number} {t}" for t in range(shape[1]))
            yield Example(f"{number}", images, texts, None if metric == "winoground" else 0)

    task = fakes.make_task("many", metric, shape, {}, load)
    return task, make_plan([task], data_dir=None, limit=None, normalize="none")


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("shape", "metric"), [((1, 2), "accuracy"), ((2, 2), "winoground"), ((3, 3), "winoground"), ((12, 1), "recall")]
)
@pytest.mark.parametrize("effect", [0.0, 2.0])
def test_races_agree_with_the_whole_budget(shape, metric, effect):
    """Rare samples that decide, and normal noise: of so few questions, one may be decided otherwise by chance."""
    count, budget = 20 if metric == "recall" else 60, 256
    task, plan = _questions(shape, metric, count)
    random = np.random.default_rng(0)
    pairs = len(plan.pairs)
    rare = np.where(random.random((pairs, budget)) < 0.1, 3.0, -0.25) * random.choice([-1, 1], (pairs, 1))
    errors = np.float32(rare + 0.05 * random.standard_normal((pairs, budget)) + effect * random.random((pairs, 1)))
    outcome = race.Race(plan, [task], budget).run(errors, lambda *_: None)
    targets = [question.target for question in plan.questions["many"]]
    raced = metrics.METRICS[metric](outcome.scores["many"], targets)
    whole = metrics.METRICS[metric](question_scores(plan, "many", errors), targets)
    agree = np.all([raced[part].correct == whole[part].correct for part in whole], axis=0)
    assert np.count_nonzero(~agree) <= 1
    assert outcome.passes < (0.75 if effect == 2 and metric == "accuracy" else 1) * outcome.fixed_passes


def end(one, errors, step=1):
    """Looks after so many samples until all is decided, with a level of 2% and few samples that hold much."""
    for n in range(4, errors.shape[1] + 1, step):
        if not one.decided:
            one.interim_look(errors, n, errors.shape[1], 0.02, 0.1)


@pytest.mark.parametrize(
    ("candidates", "tops", "gap", "num_samples", "ranking"),
    [
        (2, (1,), 1, [38, 38], [1, 0]),
        (3, (2,), 1, [51, 47, 51], [1, 0, 2]),
        (4, (1, 3), 1, [57, 55, 57, 55], [2, 0, 1, 3]),
        (7, (2, 3), 1, [62, 62, 76, 62, 76, 64, 66], [5, 6, 2, 4, 3, 1, 0]),
        (8, (6,), 1, [57, 55, 55, 57, 55, 55, 55, 57], [6, 1, 2, 4, 5, 0, 3, 7]),
        # Close races make later choices of whom to compare, each with its own share of the level.
        (3, (1,), 0.35, [137, 270, 270], [1, 2, 0]),
        (3, (1, 2), 0.25, [445, 501, 501], [1, 2, 0]),
    ],
)
def test_races_stop_where_they_did(candidates, tops, gap, num_samples, ranking):
    """How a level is shared between comparisons decides when a race stops: recorded runs rest on it."""
    random = np.random.default_rng(candidates)
    errors = random.exponential(size=(candidates, 200 if gap == 1 else 700))
    errors += gap * random.permutation(candidates)[:, None]
    one = _ranking(candidates, tops)
    end(one, errors, step=1 if gap == 1 else 7)
    assert one.num_samples.tolist() == num_samples
    assert [int(top.is_in.sum()) for top in one._tops] == [k for k in tops if k < candidates]
    assert np.argsort(-one.scores(errors)).tolist() == ranking


@pytest.mark.parametrize(("size", "effect", "one_is_wrong", "num_samples"), [(2, 1.0, False, 53), (3, 1.5, True, 59)])
def test_diagonals_stop_where_they_did(size, effect, one_is_wrong, num_samples):
    errors = np.random.default_rng(size).exponential(size=(size * size, 200))
    errors[np.arange(size) * (size + 1)] -= effect
    errors[1] -= 2 * effect * one_is_wrong
    one = _matching(size)
    end(one, errors)
    assert one.num_samples.tolist() == [[num_samples] * size] * size


def test_scores_are_told_from_the_winner():
    """Three candidates judged on 8, 4 and 2 samples, by hand."""
    errors = -np.array([[1, 1, 1, 1, 9, 9, 9, 9], [2, 4, 2, 4, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0, 0, 0]], np.float64)
    one = _ranking(3, (1, 2))
    one.num_samples[:] = [8, 4, 2]
    one._tops[0].is_in[:] = [False, True, False]
    one._tops[1].is_in[:] = [True, True, False]
    # The second one's mean of four is 3; the first is behind it by 2 on these, the third by 2 on the first two.
    np.testing.assert_allclose(one.scores(errors), [1, 3, np.nextafter(1, -np.inf)], rtol=0, atol=0)
    # Where none has entered, the one of the most samples counts as the winner: the first, whose mean of eight is 5.
    for top in one._tops:
        top.is_in[:] = False
    np.testing.assert_allclose(one.scores(errors), [5, 5 + 2, 5 + 0], rtol=1e-12)
