import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.expectations import names
from tests.metrics.test_dependence import matrices
from winobench import metrics

Z = scipy.stats.norm.ppf(0.975)


def _matrices(sets, strata):
    shared, alike = matrices(sets)
    names = sorted(set(strata))
    member = np.array([[one == name for name in names] for one in strata], float)
    weights = member @ (1 / (len(names) * member.sum(axis=0)))
    residual = np.eye(len(sets)) - member @ np.diag(1 / member.sum(axis=0)) @ member.T
    return shared, alike, member, weights, residual


def _effective_number(sets, strata, values, of_one, of_stratum, telling):
    shared, alike, member, weights, residual = _matrices(sets, strata)
    scale = np.diag(weights)
    sizes, groups = member.sum(axis=0), member.shape[1]
    # Variances of independent outcomes and of outcomes as alike as their units.
    spread = scale @ np.sqrt(member @ of_stratum)
    least, most = spread @ spread, spread @ alike @ spread
    variance = least if groups == 1 and shared.sum() == len(sets) else most
    left = np.trace(residual @ scale @ shared @ scale)
    is_estimated = (groups > 1 or shared.sum() > len(sets)) and left > 1e-9 * (weights @ weights)
    if is_estimated:
        seen = scale @ residual @ values
        seen = np.where(np.abs(seen) < 1e-12, 0, seen)  # what rounding leaves of equal answers
        effect = np.trace(residual @ scale @ scale) / left
        effect *= seen @ shared @ seen / (seen @ seen if seen @ seen else 1)
        variance = max(least, (telling * effect * least + most) / (telling + 1))
    added = scale @ shared @ scale @ np.ones(len(sets))
    pairs = added - weights**2
    inverse = 0.0
    # Student's quantile is for a variance that the outcomes tell.
    if is_estimated and telling > 0 and pairs @ shared @ pairs > 1e-12 * added.sum() ** 2:
        inverse = 1 / max(2, added.sum() ** 2 / (pairs @ shared @ pairs) - 1)
    if groups > 1:
        shares = of_stratum / sizes
        inverse += np.sum(shares**2 / np.maximum(1, sizes - 1)) / shares.sum() ** 2
    student = scipy.stats.t.ppf(0.975, 1 / inverse) if inverse else Z
    return of_one / variance * (Z / student) ** 2, (1 / inverse if inverse else np.inf)


def _kish(weights, chosen):
    return (weights @ chosen) ** 2 / max(weights**2 @ chosen, 1e-300)


@st.composite
def _designs(draw):
    count = draw(st.integers(2, 14))
    sets = draw(st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=3), min_size=count, max_size=count))
    strata = draw(st.lists(st.sampled_from("abc"[: draw(st.integers(1, 3))]), min_size=count, max_size=count))
    answers = st.lists(st.booleans(), min_size=count, max_size=count)
    return sets, strata, np.array(draw(answers)), np.array(draw(answers))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(_designs())
def test_a_proportion_is_as_defined(design):
    sets, strata, right, _ = design
    _, _, member, weights, _ = _matrices(sets, strata)
    sizes = member.sum(axis=0)
    shrunk = (member.T @ right + 0.5) / (sizes + 1)
    telling = min(_kish(weights, right), _kish(weights, ~right))
    number, _ = _effective_number(
        sets, strata, right, shrunk.mean() * (1 - shrunk.mean()), shrunk * (1 - shrunk), telling
    )
    value = float(np.mean(member.T @ right / sizes))
    expected = metrics.wilson(min(number, value * number), number)
    result = metrics.clustered(right, metrics.Dependence.from_sets(sets), strata=strata)
    assert result.value == pytest.approx(value)
    np.testing.assert_allclose(result[1:], expected[1:], rtol=1e-7, atol=1e-9)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(_designs())
def test_a_difference_is_as_defined(design):
    sets, strata, first, second = design
    shared, _, member, weights, _ = _matrices(sets, strata)
    sizes = member.sum(axis=0)
    better, worse = second & ~first, first & ~second
    shares = [(member.T @ part + 0.5) / (sizes + 1) for part in (better, worse)]
    whole = [share.mean() for share in shares]
    number, freedom = _effective_number(
        sets,
        strata,
        better.astype(float) - worse,
        whole[0] + whole[1] - (whole[0] - whole[1]) ** 2,
        shares[0] + shares[1] - (shares[0] - shares[1]) ** 2,
        _kish(weights, better | worse),
    )
    gain, loss = (float(np.mean(member.T @ part / sizes)) for part in (better, worse))
    result = metrics.paired_difference(first, second, metrics.Dependence.from_sets(sets), strata=strata)
    assert result.value == pytest.approx(gain - loss, abs=1e-12)
    for end, sign in ((result.low, 1), (result.high, -1)):
        assert -1 <= end <= 1
        if abs(end) < 1 - 1e-6:
            assert _tango(gain, loss, number, end) == pytest.approx(sign * Z, rel=2e-3)
    before = number * (scipy.stats.t.ppf(0.975, freedom) / Z) ** 2 if np.isfinite(freedom) else number
    statistic = (gain - loss) * np.sqrt(before / (gain + loss)) if gain + loss else 0
    tail = scipy.stats.t.sf(abs(statistic), freedom) if np.isfinite(freedom) else scipy.stats.norm.sf(abs(statistic))
    assert result.p_value == pytest.approx(min(1, 2 * tail), rel=1e-4)
    assert (result.p_value < 0.05) == (result.low > 0 or result.high < 0) or abs(result.p_value - 0.05) < 1e-3
    apart = better | worse
    independent = sum(1 / (shared[row] @ apart) for row in np.flatnonzero(apart))
    assert result.num_apart == int(independent + 1e-9)


def _tango(gain, loss, number, tested):
    """The score statistic with the share of losses that makes the observed shares likeliest, found by search."""
    low, high = max(0.0, -tested), (1 - tested) / 2

    def unlikely(lost):
        logs = [
            share * np.log(max(1e-300, model))
            for share, model in ((gain, lost + tested), (loss, lost), (1 - gain - loss, 1 - 2 * lost - tested))
        ]
        return -sum(logs)

    lost = scipy.optimize.minimize_scalar(unlikely, bounds=(low, high), method="bounded", options={"xatol": 1e-13}).x
    return (gain - loss - tested) * np.sqrt(number / (2 * lost + tested - tested**2))


@pytest.mark.parametrize(("gained", "lost", "total"), [(12, 3, 60), (3, 12, 60), (1, 0, 9), (20, 20, 50), (30, 5, 35)])
def test_independent_examples_have_mcnemars_test_and_tangos_interval(gained, lost, total):
    first = np.repeat([False, True, True], [gained, lost, total - gained - lost])
    second = np.repeat([True, False, True], [gained, lost, total - gained - lost])
    found = metrics.paired_difference(first, second, range(total))
    assert found.p_value == pytest.approx(scipy.stats.chi2.sf((gained - lost) ** 2 / (gained + lost), 1))
    assert found.num_apart == gained + lost
    assert _tango(gained / total, lost / total, total, found.low) == pytest.approx(Z, rel=1e-4)
    assert _tango(gained / total, lost / total, total, found.high) == pytest.approx(-Z, rel=1e-4)
    swapped = metrics.paired_difference(second, first, range(total))
    np.testing.assert_allclose([swapped.low, swapped.high], [-found.high, -found.low], atol=1e-12)


def test_no_difference_at_all_has_an_interval_and_no_p_value():
    found = metrics.paired_difference([1, 0, 1] * 30, [1, 0, 1] * 30, range(90))
    assert (found.value, found.p_value, found.num_apart) == (0, 1, 0)
    # Tango's of no example apart: z^2 / (n + z^2), as Wilson's of none.
    assert found.high == pytest.approx(metrics.wilson(0, 90).high)
    assert found.low == pytest.approx(-found.high)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_levels(level):
    z = scipy.stats.norm.ppf(0.5 + level / 2)
    gained, lost, total = 9, 4, 40
    first, second = np.zeros(total, bool), np.zeros(total, bool)
    second[:gained], first[gained : gained + lost] = True, True
    result = metrics.paired_difference(first, second, range(total), level=level)
    assert _tango(gained / total, lost / total, total, result.low) == pytest.approx(z, rel=1e-4)
    even = np.arange(total) % 2.0
    means = metrics.Design(range(total)).means(even[:, None], level)
    half = scipy.stats.t.ppf(0.5 + level / 2, total - 1) * scipy.stats.sem(even)
    np.testing.assert_allclose([means[1][0], means[2][0]], [0.5 - half, 0.5 + half])
    assert result.p_value == pytest.approx(metrics.paired_difference(first, second, range(total)).p_value, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: metrics.Design(range(3), strata=[0, 1]), ("3 clusters", "2 strata")),
        (lambda: metrics.Design(range(3)).proportions(np.ones((2, 1))), ("(2, 1)", "3 clusters")),
        (lambda: metrics.Design(range(3)).proportions(np.ones(3)), ("(3,)", "3 clusters")),
        (lambda: metrics.paired_difference([1, 0], [1], [0, 1]), ("paired_difference", "(2,)", "(1,)")),
        (lambda: metrics.paired_difference([], [], []), ("paired_difference", "(0,)")),
        (lambda: metrics.Design(range(2), strata=[0, 1]).means(np.ones((2, 1))), ("means", "strata")),
    ],
)
def test_what_does_not_fit_is_refused(call, named):
    with pytest.raises(ValueError, match=names(*named)):
        call()


def test_p_values_lie_between_0_and_1():
    for wrong in ([1.5], [-0.1], [np.nan]):
        with pytest.raises(ValueError):  # noqa: PT011 (scipy's words)
            metrics.family_wise(wrong)
        with pytest.raises(ValueError):  # noqa: PT011
            metrics.false_discovery_rates(wrong)


def test_adjusted_p_values_by_hand():
    p_values = [0.01, 0.04, 0.03, 0.005, 1.0]
    # Sorted 0.005, 0.01, 0.03, 0.04, 1 times 5, 4, 3, 2, 1, never falling; and times 5/1 to 5/5, the least from above.
    assert metrics.family_wise(p_values) == pytest.approx([0.04, 0.09, 0.09, 0.025, 1.0])
    assert metrics.false_discovery_rates(p_values) == pytest.approx([0.025, 0.05, 0.05, 0.025, 1.0])
    assert metrics.family_wise([0.6, 0.7]) == [1.0, 1.0]
    assert metrics.family_wise([0.0]) == [0.0]
    assert metrics.family_wise([]) == metrics.false_discovery_rates([]) == []


@pytest.mark.parametrize(
    ("sizes", "correlation"), [([100] + [1] * 50, 0.5), ([60] * 4 + [3] * 36, 0.3), ([3] * 155, 0.6)]
)
def test_unequal_clusters_are_covered(sizes, correlation):
    """72% for the first of them, where degrees of freedom counted the clusters."""
    generator, value, repetitions = np.random.default_rng(1), 0.35, 400
    labels = np.repeat(np.arange(len(sizes)), sizes)
    spread = (1 - correlation) / correlation
    easy = generator.beta(value * spread, (1 - value) * spread, (len(sizes), repetitions))[labels]
    _, low, high = metrics.Design(labels).proportions(generator.random(easy.shape) < easy)
    assert np.mean((low <= value) & (value <= high)) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / repetitions)


@pytest.mark.parametrize(
    ("sizes", "values"),
    [
        ([1_000] * 9 + [8], [0.999] * 9 + [0.5]),
        ([100] * 9 + [8], [0.999] * 9 + [0.5]),
        ([200, 200, 10], [0.99, 0.99, 0.6]),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
def test_small_groups_that_are_the_hard_ones_are_covered(sizes, values, tied):
    """72%, 87% and 91% where the macro mean's variance was that of the mean proportion."""
    generator, repetitions = np.random.default_rng(2), 300
    strata = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.arange(len(strata))
    labels[1] = 0 if tied else 1
    right = generator.random((len(strata), repetitions)) < np.repeat(values, sizes)[:, None]
    _, low, high = metrics.Design(labels, strata).proportions(right)
    true = np.mean(values)
    assert np.mean((low <= true) & (true <= high)) >= 0.93 - 2 * np.sqrt(0.93 * 0.07 / repetitions)
