"""A scorer whose denoiser's products have factors of 8 bits."""

import jax
import numpy as np
import pytest

from winobench import DiffusionITM, parallel
from winobench.base.errors import InputError


@pytest.mark.slow
def test_a_scorer_in_8_bits_says_so_and_is_near():
    images, texts = [np.full((64, 64, 3), 90, np.uint8)], ["a red cube", "a blue sphere"]
    mesh = parallel.make_mesh(jax.devices()[:1])
    exact, rounded = (DiffusionITM.from_pretrained("clevr-flow", float8=how, mesh=mesh) for how in (False, True))
    errors, others = (scorer.errors(images, texts, num_samples=2) for scorer in (exact, rounded))
    assert 0 < np.abs(errors - others).max() / errors.max() < 0.05
    assert rounded.fingerprint() == exact.fingerprint() | {"float8": True}
    with pytest.raises(InputError, match="float8"):
        DiffusionITM.from_pretrained("clevr-flow", float8="yes", mesh=mesh)
