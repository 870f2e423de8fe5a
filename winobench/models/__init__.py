"""Networks in Flax NNX with the attribute names, configs and weights of their published torch originals."""

from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.clip import CLIPTextConfig, CLIPTextModel, CLIPTextOutput
from winobench.models.unet_2d_condition import UNet2DConditionConfig, UNet2DConditionModel

__all__ = [
    "AutoencoderKL",
    "AutoencoderKLConfig",
    "CLIPTextConfig",
    "CLIPTextModel",
    "CLIPTextOutput",
    "UNet2DConditionConfig",
    "UNet2DConditionModel",
]
