"""Networks in Flax NNX with the attribute names, configs and weights of their published torch originals."""

from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.autoencoder_kl_flux2 import AutoencoderKLFlux2, AutoencoderKLFlux2Config
from winobench.models.clip import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTextProjectionConfig
from winobench.models.clip_model import CLIPConfig, CLIPModel
from winobench.models.clip_resnet import CLIPResNetConfig
from winobench.models.clip_vision import CLIPVisionConfig
from winobench.models.siglip import SiglipConfig, SiglipModel
from winobench.models.transformer_flux import FluxConditions, FluxTransformer2DModel
from winobench.models.transformer_flux2 import Flux2Transformer2DModel
from winobench.models.transformer_flux2_config import Flux2TransformerConfig
from winobench.models.transformer_flux_config import FluxTransformerConfig
from winobench.models.transformer_z_image import ZImageConditions, ZImageTransformer2DModel
from winobench.models.transformer_z_image_config import ZImageTransformerConfig
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

__all__ = [
    "AutoencoderKL",
    "AutoencoderKLConfig",
    "AutoencoderKLFlux2",
    "AutoencoderKLFlux2Config",
    "CLIPConfig",
    "CLIPModel",
    "CLIPResNetConfig",
    "CLIPTextConfig",
    "CLIPTextModel",
    "CLIPTextModelWithProjection",
    "CLIPTextProjectionConfig",
    "CLIPVisionConfig",
    "Flux2Transformer2DModel",
    "Flux2TransformerConfig",
    "FluxConditions",
    "FluxTransformer2DModel",
    "FluxTransformerConfig",
    "SiglipConfig",
    "SiglipModel",
    "UNet2DConditionConfig",
    "UNet2DConditionModel",
    "ZImageConditions",
    "ZImageTransformer2DModel",
    "ZImageTransformerConfig",
]
