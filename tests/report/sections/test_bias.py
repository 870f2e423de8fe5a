"""Effect sizes as the page says them."""

from winobench.report.sections import bias


def test_a_star_is_one_sided():
    assert bias.is_starred({"p_one_sided": 0.0099, "p_two_sided": 0.02})
    assert not bias.is_starred({"p_one_sided": 0.01, "p_two_sided": 0.001})
    assert not bias.is_starred({"value": 1.0})
