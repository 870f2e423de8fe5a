"""Plans as they are printed."""

import dataclasses
import io

import pytest
from rich.console import Console

from winobench.planning import table
from winobench.planning.compiling import Compiled
from winobench.planning.roofline import Sum


@pytest.mark.parametrize("staged", [False, True])
def test_memory_of_a_device(staged):
    """What staged encoders take is there without the denoiser, and the table says so."""
    step = Compiled("denoising step", "pass", 4, int(1.5e9), 0, 0, {"other": Sum(1, 0.0, 0.0, 0.5)}, {}, 1.0)
    texts = dataclasses.replace(step, name="text encoder", noun="text", temporaries=int(1.25e9), code=int(0.25e9))
    weights = {"denoiser": int(24e9), "autoencoder": int(0.3e9), "text encoders": 0 if staged else int(10e9)}
    plan = table.Plan(
        target="v6e:2x4",
        weights=weights,
        others=int(2e9),
        usable=int(33.5e9),
        programs=(step, texts),
        largest=None,
        durations=(),
        price=None,
        per_second="passes/s",
        staged=int(10e9) if staged else 0,
    )
    text = io.StringIO()
    table.print_plans([plan], details=True, console=Console(file=text, width=120))
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert ["text", "encoders", "staged" if staged else "10.00"] in rows
    assert ["tables", "2.00"] in rows
    assert ["sum", "27.80" if staged else "37.80"] in rows
    assert plan.fits == staged
    assert f"| v6e:2x4 | {'24.3, staged' if staged else '34.3'} |" in table.as_markdown([plan])
    # 0.3, 10, 2 and 1.5 GB.
    assert (["while", "texts", "are", "encoded,", "without", "the", "denoiser", "13.80"] in rows) == staged
    content = plan.as_json()
    sums = (content["while_scoring"], content["while_encoding"], content["total"])
    assert sums == ((27.8e9, 13.8e9, 27.8e9) if staged else (37.8e9, 0, 37.8e9))


def test_encoding_that_takes_more_than_scoring():
    """Of sd35-medium: 5 and 12 GB. What encoding needs for itself is not there while passes are scored."""
    step = Compiled("denoising step", "pass", 4, int(1.5e9), 0, 0, {"other": Sum(1, 0.0, 0.0, 0.5)}, {}, 1.0)
    texts = dataclasses.replace(step, name="text encoder", noun="text", temporaries=int(2.5e9))
    weights = {"denoiser": int(5e9), "autoencoder": int(0.5e9), "text encoders": 0}
    plan = table.Plan(
        "v5e:4x4", weights, int(2e9), int(16.9e9), (step, texts), None, (), None, "passes/s", (), int(12e9)
    )
    assert (plan.temporaries, plan.while_scoring, plan.total) == (1.5e9, 9e9, 17e9)
    assert not plan.fits
    assert "| 5.5, staged | 2.0 | 1.5 | 9.0 of 16.9; 17.0 while texts are encoded |" in table.as_markdown([plan])
