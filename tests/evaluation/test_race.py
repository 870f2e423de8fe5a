"""Races by hand, and against the decisions of the whole budget."""

import numpy as np
import pytest

from tests.evaluation import fakes
from winobench import metrics
from winobench.errors import InputError
from winobench.evaluation import evaluate, race
from winobench.evaluation.plan import make_plan
from winobench.evaluation.summary import question_scores

LEVEL = 0.01 / 6


def _ranking(candidates, tops=(1,)):
    return race.Ranking(np.arange(candidates)[:, None], np.array([-1]), tops)


def _errors(means, samples=64, spread=1.0, seed=0):
    """Errors with one common part for all candidates, as samples of noise have."""
    random = np.random.default_rng(seed)
    common = 50 * random.standard_normal((1, samples))
    return np.float32(np.asarray(means)[:, None] + common + spread * random.standard_normal((len(means), samples)))


def test_far_candidates_leave_at_once_and_close_ones_stay():
    errors = _errors([0.0, 100.0, 0.2])
    ranking = _ranking(3)
    assert ranking.needed().tolist() == [0, 1, 2]
    ranking.look(errors, 4, 64, LEVEL)
    assert ranking.needed().tolist() == [0, 2]
    assert ranking.num_samples.tolist() == [4, 4, 4]
    for n in (8, 16, 32, 64):
        ranking.look(errors, n, 64, LEVEL)
    assert ranking.decided
    assert ranking.num_samples[1] == 4
    assert np.argmax(ranking.scores(errors)) == np.argmin(errors[:, :64].mean(axis=1))


def test_what_is_not_needed_is_not_read():
    errors = _errors([0.0, 100.0, 0.2])
    errors[1, 4:] = np.nan
    ranking = _ranking(3)
    for n in (4, 8, 16, 32, 64):
        ranking.look(errors, n, 64, LEVEL)
    scores = ranking.scores(errors)
    assert np.isfinite(scores).all()
    # The winner's mean, less the mean difference on the four samples that both have.
    winner = int(np.argmax(scores))
    expected = -errors[winner].mean(dtype=np.float64) - (errors[1, :4] - errors[winner, :4]).mean(dtype=np.float64)
    assert scores[1] == pytest.approx(expected, rel=1e-6)


def test_the_five_best_are_a_race_of_their_own():
    errors = _errors([0, 3, 6, 9, 12, 100, 103, 106], spread=0.1)
    ranking = _ranking(8, (1, 5))
    ranking.look(errors, 4, 64, LEVEL)
    assert ranking.decided
    order = np.argsort(-ranking.scores(errors))
    assert order[0] == 0
    assert set(order[:5].tolist()) == {0, 1, 2, 3, 4}
    # The fifth and the sixth are close: only these two go on.
    close = _errors([0, 30, 60, 90, 120, 120.5, 150, 180], spread=1)
    ranking = _ranking(8, (1, 5))
    ranking.look(close, 4, 64, LEVEL)
    assert ranking.needed().tolist() == [4, 5]


def test_a_candidate_that_was_dropped_does_not_win_by_its_few_samples():
    """The first loses to the second at once; the third overtakes the second later, but is worse than the first on the
    samples that the first was judged on."""
    samples = np.arange(64)
    errors = np.float32(
        [
            10.0 + 0.01 * (samples % 3),
            9.0 + 0.01 * (samples % 2),
            np.where(samples < 4, np.where(samples % 2, 18.0, 3.0), 8.0),
        ]
    )
    ranking = _ranking(3)
    for n in (4, 8, 16, 32, 64):
        ranking.look(errors, n, 64, LEVEL)
    assert ranking.num_samples[0] == 4
    scores = ranking.scores(errors)
    assert np.argmax(scores) == 2
    assert scores[0] < scores[2]


def test_equal_candidates_end_in_a_tie():
    errors = np.float32(np.ones((2, 64)))
    ranking = _ranking(2)
    for n in (4, 8, 16, 32, 64):
        assert not ranking.decided
        ranking.look(errors, n, 64, LEVEL)
    scores = ranking.scores(errors)
    assert scores[0] == scores[1]


def test_a_single_candidate_has_a_score():
    ranking = _ranking(1)
    assert ranking.needed().tolist() == [0]
    ranking.look(np.float32([[1, 2, 3, 4]]), 4, 64, LEVEL)
    assert ranking.decided
    assert ranking.scores(np.float32([[1, 2, 3, 4]])).tolist() == [-2.5]


def _matching(errors):
    """Rows: (image 0, text 0), (image 0, text 1), (image 1, text 0), (image 1, text 1)."""
    return race.Matching(np.arange(4).reshape(2, 2, 1), np.array([-1]))


@pytest.mark.parametrize(
    ("means", "needs_more"),
    [
        ([0, 90, 90, 0], False),  # all four comparisons are won
        ([90, 0, 0, 0.1], False),  # one of each score is lost; the others do not matter
        ([0, 90, 0.1, 0], True),  # text: 0 < 90 and 0 ? 0.1 for the second image
    ],
)
def test_winogrounds_scores_are_decided_together(means, needs_more):
    errors = _errors(means)
    matching = _matching(errors)
    matching.look(errors, 4, 64, LEVEL)
    assert matching.decided != needs_more
    assert len(matching.needed()) == (4 if needs_more else 0)
    assert (matching.scores(errors) == -errors[:, :4].mean(axis=1, dtype=np.float64).reshape(2, 2)).all()


def _plan_and_tasks():
    tasks = [fakes.text_task(count=40), fakes.image_task(count=40)]
    return make_plan(tasks, data_dir=None, limit=None, normalize="auto"), tasks


def _known(plan, budget, effect):
    """Errors of every pair with a difficulty of its own."""
    random = np.random.default_rng(1)
    difficulty = effect * random.standard_normal((len(plan.pairs), 1))
    common = 20 * random.standard_normal((1, budget))
    return np.float32(100 + difficulty + common + random.standard_normal((len(plan.pairs), budget)))


def test_a_race_agrees_with_the_whole_budget_and_asks_only_for_what_it_needs():
    plan, tasks = _plan_and_tasks()
    budget = 128
    known = _known(plan, budget, effect=1.5)
    errors = np.full_like(known, np.nan)

    def score(pairs, first, end):
        assert np.isnan(errors[pairs, first:end]).all()
        assert (np.diff(pairs) > 0).all()
        errors[pairs, first:end] = known[pairs, first:end]

    outcome = race.Race(plan, tasks, budget).run(errors, score)
    assert outcome.passes == np.isfinite(errors).sum()
    assert outcome.fixed_passes == known.size
    assert outcome.passes < known.size / 3
    for task in tasks:
        of = outcome.tasks[task.name]
        assert of.questions == len(plan.questions[task.name])
        assert 0 < of.undecided < of.questions / 3
        assert 4 <= of.samples <= 32
    for task in tasks:
        targets = [question.target for question in plan.questions[task.name]]
        fixed = metrics.METRICS[task.metric](question_scores(plan, task.name, known), targets)["accuracy"]
        raced = metrics.METRICS[task.metric](outcome.scores[task.name], targets)["accuracy"]
        assert [scores.shape for scores in outcome.scores[task.name]] == [
            scores.shape for scores in question_scores(plan, task.name, known)
        ]
        assert (fixed.correct == raced.correct).mean() >= 0.98


def test_a_replay_of_recorded_errors_decides_the_same():
    plan, tasks = _plan_and_tasks()
    known = _known(plan, 64, effect=1.0)
    errors = np.full_like(known, np.nan)

    def score(pairs, first, end):
        errors[pairs, first:end] = known[pairs, first:end]

    first = race.Race(plan, tasks, 64).run(errors, score)
    again = race.Race(plan, tasks, 64).run(errors, lambda *_: None)
    assert first.passes == again.passes
    for task in tasks:
        for one, other in zip(first.scores[task.name], again.scores[task.name], strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_race_in_heats_decides_the_same():
    """Three images and eight texts at once: no heat needs more, unless a single question does."""
    plan, tasks = _plan_and_tasks()
    known = _known(plan, 64, effect=1.0)
    whole = race.Race(plan, tasks, 64).run(known, lambda *_: None)
    heats = []

    def score(pairs, first, end):
        if first == 0:
            heats.append(plan.pairs[pairs])

    outcome = race.Race(plan, tasks, 64, rows=(3, 8)).run(known, score)
    assert len(heats) > 30
    assert all(len(np.unique(heat[:, 0])) <= 3 and len(np.unique(heat[:, 1])) <= 8 for heat in heats)
    assert {**vars(outcome), "scores": None} == {**vars(whole), "scores": None}
    for task in tasks:
        np.testing.assert_array_equal(outcome.scores[task.name], whole.scores[task.name])


def test_shares_have_equally_many_pairs_and_every_question_once():
    plan, tasks = _plan_and_tasks()
    shares = [race.Race(plan, tasks, 64, process=process, num_processes=3)._entries for process in range(3)]
    assert sum(map(len, shares)) == sum(map(len, plan.questions.values()))
    pairs = [sum(len(entry.rows) for entry in share) for share in shares]
    assert max(pairs) - min(pairs) <= 8
    last = [max(int(entry.rows[0]) for entry in share) for share in shares]
    assert last == sorted(last)


def test_some_of_many_processes_have_nothing_to_race():
    tasks = [fakes.image_task(count=1)]
    plan = make_plan(tasks, data_dir=None, limit=None, normalize="auto")
    runs = [race.Race(plan, tasks, 8, process=process, num_processes=3) for process in range(3)]
    assert sorted(one.num_questions for one in runs) == [0, 0, 1]
    for one in runs:
        one.run(np.zeros((len(plan.pairs), 8), np.float32), lambda *_: None)


def test_without_differences_a_race_takes_the_whole_budget():
    plan, tasks = _plan_and_tasks()
    errors = _known(plan, 64, effect=0.0)
    outcome = race.Race(plan, tasks, 64, alpha=0.01).run(errors, lambda *_: None)
    assert all(of.undecided > 0.9 * of.questions for of in outcome.tasks.values())
    assert outcome.passes > 0.9 * outcome.fixed_passes


def test_the_error_rate_is_kept_over_all_looks_and_candidates():
    """2,000 races of five candidates without a difference, the worst case: decisions that the budget overturns."""
    random = np.random.default_rng(2)
    budget, level, wrong = 64, 0.05 / 4, 0
    for _ in range(2000):
        errors = random.standard_normal((5, budget)).astype(np.float32)
        ranking = _ranking(5)
        for n in (4, 8, 16, 32, 64):
            if ranking.decided:
                break
            ranking.look(errors, n, budget, level)
        wrong += np.argmax(ranking.scores(errors)) != np.argmin(errors.mean(axis=1, dtype=np.float64))
    assert wrong / 2000 <= 0.05 + 0.015


class Decided(fakes.FakeScorer):
    """Errors in which most texts and images differ by more than their noise."""

    def error_of(self, image, text, sample, salt):
        noise = super().error_of(image, text, sample, salt)
        of_pair = super().error_of(image, text, 0, "pair") if text else 0.5
        return np.float32(noise + 10 * of_pair)


def _evaluate(scorer, workdir, **changes):
    tasks = [fakes.text_task(), fakes.image_task(), fakes.square_task()]
    arguments = {"num_samples": 64, "mode": "race", "timesteps": "low_discrepancy", "reuse": False, "progress": False}
    arguments |= changes
    return evaluate.evaluate(scorer, tasks, workdir, **arguments)


def test_an_evaluation_by_race(tmp_path):
    scorer, fixed = Decided(), Decided()
    raced = _evaluate(scorer, tmp_path / "race")
    whole = _evaluate(fixed, tmp_path / "fixed", mode="fixed")
    assert len(scorer.scored) == len(set(scorer.scored)) == raced["passes"] == raced["computed_passes"]
    assert raced["race"]["passes"] == raced["passes"] < whole["passes"] / 2
    assert raced["race"]["fixed_passes"] == whole["passes"]
    assert "race" not in whole
    assert {name: of["questions"] for name, of in raced["race"]["tasks"].items()} == {
        "words": 12,
        "pictures": 6,
        "square": 6,
    }
    for task, entries in whole["tasks"].items():
        for metric, entry in entries.items():
            assert raced["tasks"][task][metric]["value"] == entry["value"], (task, metric)


def test_a_race_that_was_stopped_goes_on(tmp_path):
    whole = _evaluate(Decided(), tmp_path / "whole")
    stopped = Decided(stop_after=30)
    with pytest.raises(KeyboardInterrupt):
        _evaluate(stopped, tmp_path / "run")
    rest = Decided()
    results = _evaluate(rest, tmp_path / "run")
    assert not set(stopped.scored) & set(rest.scored)
    assert len(stopped.scored) + len(rest.scored) == whole["passes"]
    assert results["computed_passes"] == len(rest.scored)
    assert results["tasks"] == whole["tasks"]
    assert results["race"] == whole["race"]
    again = Decided()
    assert _evaluate(again, tmp_path / "run")["tasks"] == whole["tasks"]
    assert not again.scored


def test_races_and_fixed_budgets_share_their_errors(tmp_path):
    raced = _evaluate(Decided(), tmp_path / "race")
    fixed = Decided()
    whole = _evaluate(fixed, tmp_path / "fixed", mode="fixed", reuse=True)
    assert len(fixed.scored) == whole["passes"] - raced["passes"]
    again = Decided()
    results = _evaluate(again, tmp_path / "again", reuse=True)
    assert results["race"] == raced["race"]
    assert not again.scored


def test_bias_takes_all_of_its_samples(tmp_path):
    results = evaluate.evaluate(
        Decided(),
        [fakes.text_task(), fakes.bias_task()],
        tmp_path / "run",
        num_samples=64,
        num_bias_samples=6,
        mode="race",
        progress=False,
    )
    assert list(results["race"]["tasks"]) == ["words"]
    assert results["passes"] == results["race"]["passes"] + 8 * 4 * 6
    assert set(results["tasks"]) == {"words", "bias"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "sprint"}, "fixed, race, not 'sprint'"),
        ({"alpha": 0.7}, "alpha is 0.7"),
        ({"timesteps": "even"}, "importance, uniform, low_discrepancy, not 'even'"),
        ({"timesteps": [1, 2, 3, 4], "num_samples": None}, "importance, uniform, low_discrepancy"),
        ({"timesteps": "importance", "mode": "fixed"}, "for a race"),
    ],
)
def test_bad_input(tmp_path, arguments, words):
    with pytest.raises(InputError, match=words):
        _evaluate(Decided(), tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_a_scorer_without_samples_cannot_race(tmp_path):
    class Plain:
        def score(self, images, texts):
            return np.zeros((len(images), len(texts)))

    with pytest.raises(InputError, match="for diffusion models"):
        _evaluate(Plain(), tmp_path / "run")
