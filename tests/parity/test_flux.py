"""FLUX.1-dev and -schnell against torch diffusers: what other pipelines do not have (see `test_whole_pipelines`)."""

import numpy as np
import pytest

from tests.parity.whole_pipelines import one_device

KINDS = pytest.mark.parametrize("kind", ["flux", "schnell"])


@pytest.mark.slow
@KINDS
def test_a_strength_of_guidance(kind, whole):
    case = whole(kind)
    guided, short = case.ours.replace(guidance_embedding=3.5), case.ours.replace(text_tokens=256)
    assert short.fingerprint != case.ours.fingerprint
    assert guided.fingerprint != case.ours.fingerprint
    expected = case.torch_errors(guidance=3.5)
    np.testing.assert_allclose(case.errors(guided), expected, rtol=1e-4)
    # It matters where it is embedded.
    assert np.allclose(expected, case.expected, rtol=1e-3) == (kind == "schnell")


@KINDS
def test_levels(kind, whole):
    scorer = one_device(whole(kind).ours)
    published = scorer.choose_timesteps(30, timesteps="published")
    np.testing.assert_allclose(published, 1 - (12 + 33 * np.arange(30)[::-1]) / 1000, rtol=1e-6)
    # 4 x 4 positions of 4 to 64: a shift by 0.5 + 0.65 x 12 / 60 of dev's, and none of schnell's.
    drawn = scorer.choose_timesteps(5, timesteps="even")
    u = (np.array([100, 300, 500, 700, 900]) + 1) / 1000
    factor = np.exp(0.63)
    expected = factor / (factor + 1 / u - 1) if kind == "flux" else u
    np.testing.assert_allclose(drawn, expected, rtol=1e-5)
