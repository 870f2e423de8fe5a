"""Which programs a config asks for, before anything is compiled."""

import types

import jax
import pytest

from launch import configuration
from tests.expectations import raises
from tests.planning import small
from winobench.base.accelerators import ACCELERATORS
from winobench.diffusion import families
from winobench.planning import fit, plans

TARGET = types.SimpleNamespace(text="v6e:1x1", accelerator=ACCELERATORS["v6e"], devices=tuple(jax.devices()[:1]))


@pytest.fixture
def plan(monkeypatch):
    """Plans of a Stable Diffusion 3 with few layers, in which no program is compiled."""
    described = small.sd3_description()
    monkeypatch.setattr(families, "released", lambda name: described)
    monkeypatch.setattr(fit, "fit_scorer", lambda scoring, *_, **__: fit.Fit(scoring, None, (), None))

    def make(*overrides):
        overrides = [("model", "sd3-medium"), ("dtype", "bfloat16"), *overrides]
        return plans.make_plan(configuration.load("gdbench:table1", overrides), TARGET)

    return make


def test_what_a_setting_leaves_out_is_not_counted(plan):
    """Of T5 v1.1 XXL's encoder: embedding, projections of attention, three of the feed-forward, norms, distances."""
    of_t5 = 32_128 * 4_096 + 4 * 4_096 * 4_096 + 3 * 4_096 * 10_240 + 3 * 4_096 + 32 * 64
    usual, without = plan(), plan(("pipeline_options", "zero_t5=true"))
    assert usual.weights["text encoders"] - without.weights["text encoders"] == 2 * of_t5
    assert without.weights["text encoders"] > 0
    assert without.weights["denoiser"] == usual.weights["denoiser"]
    staged = plan(("pipeline_options", "zero_t5=true"), ("encoders", "staged"))
    assert (staged.weights["text encoders"], staged.staged) == (0, without.weights["text encoders"])
    with raises("unknown-name", "zero_t6"):
        plan(("pipeline_options", "zero_t6=true"))
