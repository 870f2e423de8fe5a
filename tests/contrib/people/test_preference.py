import pytest
import scipy.stats

from winobench.contrib.people import preference
from winobench.metrics import intervals


def test_the_papers_comparison():
    """DiffusionITM, App. B: 60 for HardNeg, 33 against it, 115 ties, of 208; here as if all were independent."""
    outcomes = [1] * 60 + [-1] * 33 + [0] * 115
    found = preference.summarize(outcomes, range(208))
    assert (found.first, found.second, found.equal) == (33, 60, 115)
    assert found.share == pytest.approx(intervals.wilson(60, 93))
    assert found.share.low > 0.5
    # Twice the tail of a fair coin's 60 or more heads of 93.
    assert found.p_value == pytest.approx(2 * scipy.stats.binom.sf(59, 93, 0.5))


def test_two_seeds_of_a_prompt_are_not_two_prompts():
    alone = preference.summarize([1] * 8 + [-1] * 2, range(10))
    doubled = preference.summarize(([1] * 8 + [-1] * 2) * 2, [*range(10), *range(10)])
    assert doubled.share.value == alone.share.value == 0.8
    assert doubled.share.low == pytest.approx(alone.share.low, abs=0.03)
    assert doubled.p_value == alone.p_value == pytest.approx(2 * (45 + 10 + 1) / 1024)


def test_clusters_that_are_level_do_not_count():
    found = preference.summarize([1, -1, 1, 1, 0], ["a", "a", "b", "c", "d"])
    assert (found.first, found.second, found.equal) == (1, 3, 1)
    assert found.p_value == pytest.approx(0.5)  # b and c: two of two
    assert preference.summarize([1, -1], ["a", "a"]).p_value is None


def test_nothing_decided_has_no_share():
    assert preference.summarize([0, 0], "ab") == preference.Preference(0, 0, 2, None, None)
    assert preference.summarize([], "") == preference.Preference(0, 0, 0, None, None)


def test_outcomes_are_signs():
    with pytest.raises(ValueError, match="outcomes"):
        preference.summarize([2], "a")
    with pytest.raises(ValueError, match="cluster"):
        preference.summarize([1], "ab")


def test_the_majority_of_votes():
    assert [preference.majority(votes) for votes in ([1, 1, -1], [1, -1], [-1, 0], [0], [])] == [1, 0, -1, 0, 0]
