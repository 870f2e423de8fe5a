"""Networks in Flax NNX with the attribute names, configs and weights of their published torch originals."""

from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.autoencoder_kl_flux2 import AutoencoderKLFlux2, AutoencoderKLFlux2Config
from winobench.models.bert import BertConfig, BertForSequenceClassification, BertModel
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.models.blip_2 import Blip2ForConditionalGeneration, InstructBlipForConditionalGeneration
from winobench.models.blip_2_config import Blip2Config, InstructBlipConfig
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
from winobench.models.llava import LlavaConfig, LlavaForConditionalGeneration
from winobench.models.opt import OPTForCausalLM
from winobench.models.opt_config import OPTConfig
from winobench.models.qwen3_text import Qwen3Model, Qwen3TextConfig, Qwen3TextEncoder
from winobench.models.qwen3_vl import Qwen3VLForConditionalGeneration
from winobench.models.qwen3_vl_config import Qwen3VLConfig
from winobench.models.siglip import SiglipConfig, SiglipModel, SiglipTextConfig, SiglipVisionConfig
from winobench.models.t5 import T5Config, T5ForConditionalGeneration
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
    "BertConfig",
    "BertForSequenceClassification",
    "BertModel",
    "Blip2Config",
    "Blip2ForConditionalGeneration",
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
    "Flux2Transformer2DModel",
    "Flux2TransformerConfig",
    "FluxConditions",
    "FluxTransformer2DModel",
    "FluxTransformerConfig",
    "InstructBlipConfig",
    "InstructBlipForConditionalGeneration",
    "LlavaConfig",
    "LlavaForConditionalGeneration",
    "OPTConfig",
    "OPTForCausalLM",
    "Qwen3Model",
    "Qwen3TextConfig",
    "Qwen3TextEncoder",
    "Qwen3VLConfig",
    "Qwen3VLForConditionalGeneration",
    "SiglipConfig",
    "SiglipModel",
    "SiglipTextConfig",
    "SiglipVisionConfig",
    "T5Config",
    "T5ForConditionalGeneration",
    "UNet2DConditionConfig",
    "UNet2DConditionModel",
    "ZImageConditions",
    "ZImageTransformer2DModel",
    "ZImageTransformerConfig",
]
