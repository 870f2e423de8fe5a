"""FLUX.1's transformer against torch diffusers: what other transformers do not have (see `test_transformers`)."""

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline

from tests.expectations import names
from tests.parity.harness import call, relative_error
from tests.parity.transformer_families import FAMILIES, TOLERANCE
from winobench.models import flux_blocks

FLUX = FAMILIES["flux"]


@pytest.fixture(scope="module")
def told_guidance():
    return FLUX.pair(guidance_embeds=True)


@pytest.mark.slow
def test_network_with_guidance(told_guidance):
    network, ours = told_guidance
    arrays, guidance = FLUX.inputs(ours.config), np.array([3.5, 1.0], np.float32)
    expected = FLUX.predict(network, *arrays, guidance)
    assert relative_error(call(ours, *arrays, guidance=guidance), expected) < TOLERANCE
    assert relative_error(FLUX.predict(network, *arrays, guidance[::-1].copy()), expected) > 1e-3


def test_patches_and_back():
    latents = np.random.default_rng(0).normal(size=(2, 6, 4, 3)).astype(np.float32)
    packed = FluxPipeline._pack_latents(torch.from_numpy(latents.transpose(0, 3, 1, 2).copy()), 2, 3, 6, 4)
    patches = flux_blocks.to_patches(latents)
    np.testing.assert_array_equal(np.asarray(patches).reshape(2, 6, 12), packed.numpy())
    np.testing.assert_array_equal(flux_blocks.from_patches(patches), latents)


def test_what_it_is_not_given(told_guidance):
    _, untold = FLUX.small_pair()
    sample, times, conditions = FLUX.inputs(untold.config)
    with pytest.raises(ValueError, match=names("guidance_embeds=True")):
        told_guidance[1](sample, times, conditions)
    with pytest.raises(ValueError, match=names("guidance_embeds=False")):
        untold(sample, times, conditions, guidance=times)
    with pytest.raises(ValueError, match=names("11", "8")):
        untold(sample[:, 1:], times, conditions)
