"""Cohen's kappa on tables that are small enough to check by hand."""

import pytest

from tests.expectations import names
from winobench.contrib.people.wscplus_items.agreement import compare

LABELS = ("valid", "semi-valid", "invalid")


def test_a_table_of_two_labels():
    # 20 both yes, 5 yes and no, 10 no and yes, 15 both no: p = 0.7, e = 0.5 x 0.6 + 0.5 x 0.4 = 0.5.
    first = ["valid"] * 25 + ["invalid"] * 25
    second = ["valid"] * 20 + ["invalid"] * 5 + ["valid"] * 10 + ["invalid"] * 15
    found = compare(first, second, LABELS)
    assert (found.n, found.agreed) == (50, 0.7)
    assert found.kappa == pytest.approx(0.4)
    assert found.table["invalid"]["valid"] == 10
    assert compare(second, first, LABELS).kappa == pytest.approx(0.4)


def test_the_ends():
    assert compare(LABELS, LABELS, LABELS).kappa == 1
    assert compare(["valid", "invalid"], ["invalid", "valid"], LABELS).kappa == -1
    same = compare(["valid"] * 3, ["valid"] * 3, LABELS)
    assert (same.agreed, same.kappa) == (1, None)
    for first, second in (([], []), (["valid"], [])):
        with pytest.raises(ValueError, match=names(f"{len(first)} and {len(second)}")):
            compare(first, second, LABELS)
