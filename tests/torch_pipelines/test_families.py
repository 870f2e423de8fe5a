"""Each checked pipeline class of diffusers equals its own run in torch, at rows of different times."""

import pytest

from tests.torch_pipelines import comparison
from winobench.torch_pipelines.families import FAMILIES, family_of

# Of the root mean square of what diffusers computes. Timesteps are float32 numbers up to 1,000.
TOLERANCE, STEP_TOLERANCE = 1e-4, 2e-3


@pytest.mark.parametrize(("name", "maker"), comparison.cases())
def test_equals_diffusers(name, maker):
    found = comparison.compare(maker)
    allowed = {"prediction": family_of(name).rounding, "step": STEP_TOLERANCE, "latents": TOLERANCE}
    for what, most in {**allowed, "decoder": TOLERANCE}.items():
        assert found[what] <= most, what


def test_every_class_on_the_list_is_tried():
    assert {name for name, _ in comparison.makers()} == set(FAMILIES)
