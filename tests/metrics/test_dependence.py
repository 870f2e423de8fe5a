import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from winobench.metrics import Dependence, dependence

_SETS = st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=12)


def matrices(sets):
    shared = np.array([[float(bool(one & other)) for other in sets] for one in sets])
    alike = np.array([[len(one & other) / len(one | other) for other in sets] for one in sets])
    return shared, alike


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(_SETS, st.integers(1, 40))
def test_sums_are_those_over_all_pairs(sets, at_once):
    shared, alike = matrices(sets)
    values = np.random.default_rng(len(sets)).normal(size=(len(sets), 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dependence, "_PAIRS_AT_ONCE", at_once)  # in several blocks, kept or not
        found = Dependence.from_sets(sets)
        np.testing.assert_allclose(found.sums(values), shared @ values, atol=1e-12)
        np.testing.assert_allclose(found.alike(values), alike @ values, atol=1e-12)
        np.testing.assert_allclose(found.sums(values[:, 0]), shared @ values[:, 0], atol=1e-12)
    assert found.is_none == bool(shared.sum() == len(sets))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(_SETS, st.data())
def test_a_part_depends_as_the_whole_does(sets, data):
    rows = data.draw(st.lists(st.integers(0, len(sets) - 1), min_size=1, max_size=8))
    part = Dependence.from_sets(sets).take(np.array(rows))
    assert len(part) == len(rows)
    shared, alike = matrices([sets[row] for row in rows])
    values = np.arange(1.0, len(rows) + 1)
    np.testing.assert_allclose(part.sums(values), shared @ values)
    np.testing.assert_allclose(part.alike(values), alike @ values)
    assert part.is_none == bool(shared.sum() == len(rows))


def test_labels_are_clusters():
    found = Dependence.from_labels(["a", "b", "a", ("c", 1)])
    assert found.sums(np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [5, 2, 5, 8]
    assert found.alike(np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [5, 2, 5, 8]
    assert not found.is_none
    assert Dependence.from_labels(range(3)).is_none
    assert Dependence.from_labels("abca").take(np.array([0, 1])).is_none
    assert not Dependence.from_labels("abc").take(np.array([1, 1])).is_none  # a copy depends on its original


def test_sharing_is_not_handed_on():
    chain = Dependence.from_sets([{1, 2}, {2, 3}, {3, 4}])
    assert chain.sums(np.array([1.0, 10.0, 100.0])).tolist() == [11, 111, 110]


def test_a_set_without_a_unit_is_refused():
    with pytest.raises(ValueError, match="at least one unit"):
        Dependence.from_sets([{1}, set()])


def test_ten_thousand_questions_about_two_images_need_no_matrix_of_pairs():
    found = Dependence.from_sets([{0, 1}, {0, 2}] * 5_000)
    assert found.sums(np.ones(10_000)).tolist() == [10_000] * 10_000


def test_number_of_independent_outcomes_by_hand():
    labels = Dependence.from_labels("aabbbc")
    assert labels.num_independent(np.ones((6, 1))).tolist() == [3]
    assert labels.num_independent(np.array([[1, 1], [1, 0], [0, 1], [0, 1], [0, 1], [0, 0]])).tolist() == [1, 2]
    # A chain of four that shares an image with the next: 1/2 + 1/3 + 1/3 + 1/2 = 5/3, and no less than 1.
    chain = Dependence.from_sets([(0, 1), (1, 2), (2, 3), (3, 4)])
    assert chain.num_independent(np.ones((4, 1))).tolist() == [1]
    # Without the second of them the first shares nothing: 1 + 1/2 + 1/2.
    assert chain.num_independent(np.array([[1], [0], [1], [1]])).tolist() == [2]
