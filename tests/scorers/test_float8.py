"""A scorer whose denoiser's products have factors of 8 bits."""

import jax
import numpy as np
import pytest

from tests.planning import small
from winobench import DiffusionITM, parallel
from winobench.base.errors import InputError
from winobench.planning import abstract, scoring


def test_a_scorer_in_8_bits_says_so_and_is_near():
    images, texts = [np.full((64, 64, 3), 90, np.uint8)], ["a red cube", "a blue sphere"]
    mesh = parallel.make_mesh(jax.devices()[:1])
    exact, rounded = (DiffusionITM.from_pretrained("clevr-flow", float8=how, mesh=mesh) for how in (False, True))
    errors, others = (scorer.errors(images, texts, num_samples=2) for scorer in (exact, rounded))
    assert 0 < np.abs(errors - others).max() / errors.max() < 0.05
    assert rounded.fingerprint() == exact.fingerprint() | {"float8": True}
    with pytest.raises(InputError, match="float8"):
        DiffusionITM.from_pretrained("clevr-flow", float8="yes", mesh=mesh)


def test_a_plan_has_the_smaller_weights():
    pipeline = abstract.make_pipeline(small.flux_description(double=1, single=1), "bfloat16")
    mesh = parallel.make_mesh(jax.devices()[:1])
    found = [scoring.make_scoring(pipeline, mesh, batch=2, float8=how) for how in (False, True)]
    assert found[1].weights["denoiser"] < 0.8 * found[0].weights["denoiser"]
    assert "f8E4M3FN" in found[1].step.lower().as_text()
