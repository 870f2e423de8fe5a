"""Which programs a config asks for, before anything is compiled."""

import types

import jax
import pytest

from launch import configuration
from tests.expectations import raises
from winobench.accelerators import ACCELERATORS
from winobench.planning import fit, plans

TARGET = types.SimpleNamespace(text="v6e:1x1", accelerator=ACCELERATORS["v6e"], devices=tuple(jax.devices()[:1]))


@pytest.fixture
def plan(monkeypatch):
    """Plans in which no program is compiled."""
    monkeypatch.setattr(fit, "fit_scorer", lambda scoring, *_, **__: fit.Fit(scoring, None, (), None))

    def make(*overrides):
        overrides = [("model", "sd3-medium"), ("dtype", "bfloat16"), *overrides]
        return plans.make_plan(configuration.load("gdbench:table1", overrides), TARGET)

    return make


def test_what_a_setting_leaves_out_is_not_counted(plan):
    """T5 v1.1 XXL's encoder has 4,762,310,656 parameters, of two bytes here."""
    usual, without = plan(), plan(("pipeline_options", "zero_t5=true"))
    assert usual.weights["text encoders"] - without.weights["text encoders"] == 2 * 4_762_310_656
    assert without.weights["text encoders"] > 0
    assert without.weights["denoiser"] == usual.weights["denoiser"]
    staged = plan(("pipeline_options", "zero_t5=true"), ("encoders", "staged"))
    assert (staged.weights["text encoders"], staged.staged) == (0, without.weights["text encoders"])
    with raises("unknown-name", "zero_t6"):
        plan(("pipeline_options", "zero_t6=true"))
