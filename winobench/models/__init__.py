"""Networks in Flax NNX with the attribute names, configs and weights of their published torch originals."""

from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.bert import BertConfig, BertForSequenceClassification, BertModel
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.models.blip_config import BlipConfig
from winobench.models.clip import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTextOutput,
    CLIPTextProjectionConfig,
)
from winobench.models.clip_model import CLIPConfig, CLIPModel
from winobench.models.clip_resnet import CLIPResNetConfig
from winobench.models.clip_vision import CLIPVisionConfig
from winobench.models.decoder import Decoder
from winobench.models.decoder_config import DecoderConfig
from winobench.models.t5 import T5Config, T5ForConditionalGeneration
from winobench.models.transformer_flux import FluxConditions, FluxTransformer2DModel
from winobench.models.transformer_flux_config import FluxTransformerConfig
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

__all__ = [
    "AutoencoderKL",
    "AutoencoderKLConfig",
    "BertConfig",
    "BertForSequenceClassification",
    "BertModel",
    "BlipConfig",
    "BlipForImageTextRetrieval",
    "CLIPConfig",
    "CLIPModel",
    "CLIPResNetConfig",
    "CLIPTextConfig",
    "CLIPTextModel",
    "CLIPTextModelWithProjection",
    "CLIPTextOutput",
    "CLIPTextProjectionConfig",
    "CLIPVisionConfig",
    "Decoder",
    "DecoderConfig",
    "FluxConditions",
    "FluxTransformer2DModel",
    "FluxTransformerConfig",
    "T5Config",
    "T5ForConditionalGeneration",
    "UNet2DConditionConfig",
    "UNet2DConditionModel",
]
