"""Plans as they are printed."""

import io

import pytest
from rich.console import Console

from winobench.planning import table
from winobench.planning.compiling import Compiled
from winobench.planning.roofline import Sum


@pytest.mark.parametrize("staged", [False, True])
def test_memory_of_a_device(staged):
    """What staged encoders take is not there while passes are scored, and the table says why."""
    step = Compiled("denoising step", "pass", 4, int(1.5e9), 0, 0, {"other": Sum(1, 0.0, 0.0, 0.5)}, {}, 1.0)
    weights = {"denoiser": int(24e9), "autoencoder": int(0.3e9), "text encoders": 0 if staged else int(10e9)}
    plan = table.Plan(
        target="v6e:2x4",
        weights=weights,
        others=int(2e9),
        usable=int(33.5e9),
        programs=(step,),
        largest=None,
        durations=(),
        price=None,
        per_second="passes/s",
        staged=staged,
    )
    text = io.StringIO()
    table.print_plans([plan], details=True, console=Console(file=text, width=120))
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert ["text", "encoders", "staged" if staged else "10.00"] in rows
    assert ["tables", "2.00"] in rows
    assert ["sum", "27.80" if staged else "37.80"] in rows
    assert plan.fits == staged
    assert f"| v6e:2x4 | {'24.3, staged' if staged else '34.3'} |" in table.as_markdown([plan])
    assert plan.as_json()["staged"] is staged
