"""Plans as they are printed."""

import dataclasses
import io

import pytest
from rich.console import Console

from winobench.planning import scoring, table
from winobench.planning.plan import Plan
from winobench.planning.programs import Compiled
from winobench.planning.roofline import Sum


def plan_of(programs, weights, tables, usable, staged):
    """A plan of scoring with these programs."""
    load = scoring.Fit(scoring.Scoring(weights, tables, None, (), staged), programs[0], programs[1:]).load("m")
    return Plan("v6e:2x4", "TFLOP for a pass", usable, None, (load,), (), (), {})


STEP = Compiled("denoising step", "pass", 4, int(1.5e9), 0, 0, {"other": Sum(1, 0.0, 0.0, 0.5)}, {}, 1.0)
TEXTS = dataclasses.replace(STEP, name="text encoder", noun="text", temporaries=int(1.25e9), code=int(0.25e9))


@pytest.mark.parametrize("staged", [False, True])
def test_memory_of_a_device(staged):
    """What staged encoders take is there without the denoiser, and the table says so."""
    weights = {"denoiser": int(24e9), "autoencoder": int(0.3e9), "text encoders": 0 if staged else int(10e9)}
    plan = plan_of((STEP, TEXTS), weights, int(2e9), int(33.5e9), int(10e9) if staged else 0)
    text = io.StringIO()
    table.print_plans([plan], details=True, console=Console(file=text, width=120))
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert ["text", "encoders", "staged" if staged else "10.00"] in rows
    assert ["tables", "2.00"] in rows
    assert ["sum", "27.80" if staged else "37.80"] in rows
    assert plan.fits == staged
    # 0.3, 10, 2 and 1.5 GB.
    assert (["while", "texts", "are", "encoded,", "without", "the", "denoiser", "13.80"] in rows) == staged
    assert plan.as_json()["total"] == (27.8e9 if staged else 37.8e9)


def test_encoding_that_takes_more_than_scoring():
    """Of sd35-medium: 5 and 12 GB. What encoding needs for itself is not there while passes are scored."""
    texts = dataclasses.replace(TEXTS, temporaries=int(2.5e9), code=0)
    weights = {"denoiser": int(5e9), "autoencoder": int(0.5e9), "text encoders": 0}
    plan = plan_of((STEP, texts), weights, int(2e9), int(16.9e9), int(12e9))
    shown = plan.loads[0].memory
    assert (shown["temporaries, at most"], shown["sum"], shown[scoring.WHILE_ENCODING]) == (1.5e9, 9e9, 17e9)
    assert plan.total == 17e9
    assert not plan.fits
