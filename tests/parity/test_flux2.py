"""FLUX.2-klein and its base against torch diffusers: what others do not have (see `test_whole_pipelines`)."""

import diffusers
import numpy as np
import pytest
import torch
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu

from tests import tiny_flux2
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names
from tests.parity.harness import relative_error
from tests.parity.whole_pipelines import TEXTS
from tests.tiny_flux2 import CHANNELS, OUT_LAYERS
from winobench.base.errors import InputError
from winobench.diffusion import flux_2


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["klein", "klein-base"])
def test_text_states(kind, whole):
    """Of padding, too; and after other layers, the last of which is followed by the last norm."""
    ours, theirs, layers = whole(kind).ours, whole(kind).theirs, (4, 0, 2)
    other = ours.replace(text_encoder_out_layers=layers)
    assert ours.replace(text_encoder_out_layers=OUT_LAYERS).fingerprint == ours.fingerprint != other.fingerprint
    assert ours.text_encoder.config.out_layers == OUT_LAYERS
    short = other.replace(text_tokens=24)
    with torch.inference_mode():
        expected, _ = theirs.encode_prompt(TEXTS, max_sequence_length=24, text_encoder_out_layers=layers)
    assert relative_error(short.encode_texts(TEXTS), expected.numpy()) < 1e-5


def test_levels(whole):
    """4 x 4 positions; judged on the scheduler's own shift, drawn with that of the number of steps."""
    schedule = whole("klein").ours.schedule_at(SIZE)
    for steps, positions in ((4, 16), (50, 4096), (1000, 4300), (50, 4301)):
        assert flux_2.empirical_shift(positions, steps) == pytest.approx(compute_empirical_mu(positions, steps))
        sized = schedule.for_positions(positions)
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)
        scheduler.set_timesteps(
            sigmas=np.linspace(1.0, 1 / steps, steps), mu=compute_empirical_mu(positions, steps), device="cpu"
        )
        np.testing.assert_allclose(sized.sampling_levels(steps, evenly=True), scheduler.sigmas.numpy(), rtol=1e-5)
    own = compute_empirical_mu(16, 200)
    u = (np.arange(1000) + 1) / 1000
    np.testing.assert_allclose(schedule.noise_rates, np.exp(own) / (np.exp(own) + 1 / u - 1), rtol=1e-5)


def test_sizes_of_images_and_latents(whole):
    ours = whole("klein").ours
    with pytest.raises(InputError, match=names("36", "multiples of 8")):
        ours.encode_images(np.zeros((1, 36, 32, 3), np.uint8))
    with pytest.raises(InputError, match=names("[1, 7, 8, 4]", "multiples of 2")):
        ours.decode_latents(np.zeros((1, 7, 8, CHANNELS), np.float32))


def test_a_tokenizer_without_a_template_is_one_sentence(whole):
    bare = tiny_flux2.tokenizer()
    bare.chat_template = None
    with pytest.raises(InputError, match=names("chat template", "chat_template.jinja")):
        whole("klein").ours.replace(tokenizer=bare).encode_texts(["a photo"])
