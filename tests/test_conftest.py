import jax
import pytest

from winobench.models import AutoencoderKL, CLIPTextModel, UNet2DConditionModel


@pytest.mark.parametrize(
    ("network", "subfolder"), [(UNet2DConditionModel, "unet"), (AutoencoderKL, "vae"), (CLIPTextModel, "text_encoder")]
)
def test_tiny_pipeline_loads(tiny_pipeline, network, subfolder):
    network.from_pretrained(tiny_pipeline, subfolder=subfolder)


def test_tests_see_eight_devices():
    assert len(jax.devices()) == 8
