"""Z-Image's transformer against torch diffusers: what other transformers do not have (see `test_transformers`)."""

import numpy as np
import pytest

from tests.parity.harness import call, check_close
from tests.parity.transformer_families import FAMILIES, TOLERANCE
from winobench.models.transformer_z_image import ZImageConditions

Z_IMAGE = FAMILIES["z_image"]


@pytest.mark.slow
def test_other_options():
    options = {"qk_norm": False, "rope_theta": 40.0, "t_scale": 30.0, "norm_eps": 1e-3, "n_refiner_layers": 2}
    network, ours = Z_IMAGE.pair(**options)
    arrays = Z_IMAGE.inputs(ours.config)
    check_close(call(ours, *arrays), Z_IMAGE.predict(network, *arrays), TOLERANCE)


@pytest.mark.slow
def test_what_is_behind_a_text_does_not_matter():
    """Neither its values, nor how much there is of it; rows do not matter to each other."""
    _, ours = Z_IMAGE.small_pair()
    sample, times, (states, lengths) = Z_IMAGE.inputs(ours.config, batch=3)
    expected = call(ours, sample, times, ZImageConditions(states, lengths))
    behind = np.where(np.arange(45)[:, None] < lengths[:, None, None], states, np.nan)
    longer = np.pad(behind, ((0, 0), (0, 50), (0, 0)), constant_values=np.nan)
    for changed in (behind, longer):
        check_close(call(ours, sample, times, ZImageConditions(changed, lengths)), expected, TOLERANCE)
    none = call(ours, sample, times, ZImageConditions(states, lengths * np.array([1, 0, 1], np.int32)))
    assert np.isfinite(none).all()
    np.testing.assert_allclose(none[::2], expected[::2], atol=1e-5)


@pytest.mark.parametrize("size", [(11, 8), (12, 200)])
def test_sizes_that_cannot_be(size):
    _, ours = Z_IMAGE.small_pair()
    with pytest.raises(ValueError, match=str(size[0] if size[0] % 2 else "axes_lens")):
        call(ours, *Z_IMAGE.inputs(ours.config, height=size[0], width=size[1]))
