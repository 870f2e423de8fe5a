"""Networks in Flax NNX with the attribute names, configs and weights of their published torch originals."""

from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.blip import BlipConfig, BlipForImageTextRetrieval
from winobench.models.clip import CLIPTextConfig, CLIPTextModel, CLIPTextOutput
from winobench.models.clip_model import CLIPConfig, CLIPModel
from winobench.models.clip_resnet import CLIPResNetConfig
from winobench.models.clip_vision import CLIPVisionConfig
from winobench.models.unet_2d_condition import UNet2DConditionConfig, UNet2DConditionModel

__all__ = [
    "AutoencoderKL",
    "AutoencoderKLConfig",
    "BlipConfig",
    "BlipForImageTextRetrieval",
    "CLIPConfig",
    "CLIPModel",
    "CLIPResNetConfig",
    "CLIPTextConfig",
    "CLIPTextModel",
    "CLIPTextOutput",
    "CLIPVisionConfig",
    "UNet2DConditionConfig",
    "UNet2DConditionModel",
]
