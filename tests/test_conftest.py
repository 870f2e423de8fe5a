import jax
import pytest

from winobench.models.autoencoder_kl import AutoencoderKL
from winobench.models.clip import CLIPTextModel
from winobench.models.unet_2d_condition import UNet2DConditionModel


@pytest.mark.parametrize(
    ("network", "subfolder"), [(UNet2DConditionModel, "unet"), (AutoencoderKL, "vae"), (CLIPTextModel, "text_encoder")]
)
def test_tiny_pipeline_loads(tiny_pipeline, network, subfolder):
    network.from_pretrained(tiny_pipeline, subfolder=subfolder)


def test_tests_see_eight_devices():
    assert len(jax.devices()) == 8
