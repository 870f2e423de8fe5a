"""A tiny pipeline of each class: what makes it, and the arguments with which it leaves out guidance and the like."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import diffusers
import pytest
import torch
import transformers

from tests import tiny_flux, tiny_flux2, tiny_sd3, tiny_sdxl
from tests.contrib.torch_pipelines.tiny import parts


@dataclasses.dataclass(frozen=True)
class Maker:
    """Of one class. Modules with these names can stand in its place."""

    make: Callable[..., Any]
    CALL: dict[str, Any]
    IMAGE_SIZE: int = 32


def maker(**call: Any) -> Callable[[Callable[..., Any]], Maker]:
    """Makes a `Maker` of a function; ``call`` are the arguments."""
    return lambda make: Maker(make, call)


def variant(name: str, of: Maker, *, without: tuple[str, ...] = (), **call: Any) -> Maker:
    """A class with the components of another, but for those named."""

    def make():
        components = of.make().components
        return getattr(diffusers, name)(**{key: part for key, part in components.items() if key not in without})

    return Maker(make, call)


# Of FLUX and those like it.
FLUX = {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2}
FLUX2 = {**FLUX, "in_channels": 16, "timestep_guidance_channels": 32, "axes_dims_rope": (2, 6, 4, 4)}
FLUX_VAE = {"scaling_factor": 0.3611, "shift_factor": 0.1159}


def _t5():
    return {"text_encoder": tiny_sd3.t5_encoder(24, heads=3), "tokenizer": parts.t5_tokenizer()}


@maker(guidance_scale=1.0)
def bria_pipeline():
    """BRIA 3.2: zeros behind each text, latents packed by 2 x 2."""
    network = diffusers.BriaTransformer2DModel(**FLUX, in_channels=16, joint_attention_dim=24, axes_dims_rope=[4, 4, 8])
    vae = tiny_sd3.autoencoder(4, scaling_factor=0.13025, shift_factor=0.1)
    components = {"transformer": network, "vae": vae, **_t5(), "scheduler": parts.moving_schedule()}
    pipe = parts.filled(diffusers.BriaPipeline, components)
    with torch.no_grad():  # 128 tokens, nearly all of them zeros, would hide the text
        network.context_embedder.weight.mul_(10)
    return pipe


@maker(guidance_scale=1.0)
def chroma_pipeline():
    """Chroma: one text encoder, the mask of the text in attention."""
    approximator = {"approximator_num_channels": 8, "approximator_hidden_dim": 16, "approximator_layers": 1}
    components = {
        "transformer": diffusers.ChromaTransformer2DModel(
            **FLUX, **approximator, in_channels=64, joint_attention_dim=24, axes_dims_rope=(4, 4, 8)
        ),
        "vae": tiny_sd3.autoencoder(**FLUX_VAE),
        **_t5(),
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=False),
    }
    return parts.filled(diffusers.ChromaPipeline, components)


@maker(guidance_scale=1.0)
def cog_view3_plus_pipeline():
    """CogView3-Plus: velocities of a schedule that is shifted and ends in pure noise."""
    sizes = {"num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 2, "sample_size": 8}
    texts = {"text_embed_dim": 24, "time_embed_dim": 8, "condition_dim": 4, "pos_embed_max_size": 8}
    noise = {"beta_schedule": "scaled_linear", "rescale_betas_zero_snr": True, "snr_shift_scale": 4.0}
    components = {
        "transformer": diffusers.CogView3PlusTransformer2DModel(**sizes, **texts, in_channels=4, out_channels=4),
        "vae": tiny_sd3.autoencoder(4, scaling_factor=0.13025),
        **_t5(),
        "scheduler": diffusers.CogVideoXDDIMScheduler(
            **noise, prediction_type="v_prediction", timestep_spacing="trailing", clip_sample=False
        ),
    }
    pipe = parts.filled(diffusers.CogView3PlusPipeline, components)
    with torch.no_grad():  # 224 tokens, nearly all of them padding, would hide the text
        pipe.transformer.patch_embed.text_proj.weight.mul_(10)
    return pipe


@maker(guidance_scale=1.0)
def flux2_klein_pipeline():
    """FLUX.2-klein: as FLUX.2-dev, with a language model and without embedded guidance."""
    words = tiny_flux2.tokenizer()
    words.chat_template = parts.CHAT_TEMPLATE
    config = tiny_flux2.qwen3_config(words, num_hidden_layers=27, tie_word_embeddings=True)
    components = {
        "transformer": diffusers.Flux2Transformer2DModel(**FLUX2, joint_attention_dim=3 * 24, guidance_embeds=False),
        "vae": parts.flux2_autoencoder(),
        "text_encoder": transformers.Qwen3ForCausalLM(config),
        "tokenizer": words,
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
    }
    return parts.filled(diffusers.Flux2KleinPipeline, components, is_distilled=True)


@maker(guidance_scale=4.0)
def flux2_pipeline():
    """FLUX.2-dev: guidance embedded, three layers of a vision-language model, statistics of the autoencoder."""
    words = parts.chat_tokenizer()
    components = {
        "transformer": diffusers.Flux2Transformer2DModel(**FLUX2, joint_attention_dim=3 * 16, guidance_embeds=True),
        "vae": parts.flux2_autoencoder(),
        "text_encoder": parts.mistral3(words, "Mistral3ForConditionalGeneration", 30),
        "tokenizer": words,
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
    }
    return parts.filled(diffusers.Flux2Pipeline, components)


@maker(guidance_scale=1.0)
def kolors_pipeline():
    """Kolors: the UNet of Stable Diffusion XL with a language model, padded before each text."""
    pytest.importorskip("sentencepiece")
    from diffusers.pipelines.kolors import text_encoder as chatglm

    words = parts.chatglm_tokenizer()
    sizes = {"num_layers": 2, "hidden_size": 16, "ffn_hidden_size": 24, "kv_channels": 8, "num_attention_heads": 2}
    heads = {"multi_query_attention": True, "multi_query_group_num": 1, "original_rope": True, "add_qkv_bias": True}
    config = chatglm.ChatGLMConfig(padded_vocab_size=words.vocab_size, seq_length=256, **sizes, **heads)
    texts = {"encoder_hid_dim": 16, "encoder_hid_dim_type": "text_proj"}
    components = {
        "unet": tiny_sdxl.unet(projection_class_embeddings_input_dim=16 + 6 * 8, cross_attention_dim=24, **texts),
        "vae": tiny_sd3.autoencoder(4, scaling_factor=0.13025),
        "text_encoder": chatglm.ChatGLMModel(config),
        "tokenizer": words,
        "scheduler": diffusers.EulerDiscreteScheduler(
            beta_start=0.00085, beta_end=0.014, beta_schedule="scaled_linear", num_train_timesteps=1100
        ),
    }
    return parts.filled(diffusers.KolorsPipeline, components)


@maker(guidance_scale=0.0)
def krea2_pipeline():
    """Krea 2: some layers of a vision-language model, and a text whose padding lies in its midst."""
    words = parts.chat_tokenizer()
    sizes = {"num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"in_channels": 16, "intermediate_size": 32, "timestep_embed_dim": 16, "axes_dims_rope": (4, 6, 6)}
    texts = {"text_num_attention_heads": 2, "text_num_key_value_heads": 2, "text_intermediate_size": 32}
    texts |= {"text_hidden_dim": 16, "num_text_layers": 2}
    components = {
        "transformer": diffusers.Krea2Transformer2DModel(
            **sizes, **texts, num_layerwise_text_blocks=1, num_refiner_text_blocks=1
        ),
        "vae": parts.qwen_image_vae(),
        "text_encoder": parts.qwen3_vl(words, "Qwen3VLModel", 2),
        "tokenizer": words,
        "scheduler": parts.moving_schedule(),
    }
    return parts.filled(diffusers.Krea2Pipeline, components, text_encoder_select_layers=(1, 2))


@maker(guidance_scale=8.5)
def latent_consistency_model_pipeline():
    """A latent consistency model: Stable Diffusion with guidance embedded."""
    scheduler = diffusers.LCMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    return _stable_diffusion(diffusers.LatentConsistencyModelPipeline, scheduler, time_cond_proj_dim=8)


@maker(guidance_scale=1.0, enable_prompt_rewrite=False)
def long_cat_image_pipeline():
    """LongCat-Image: quoted words are spelt letter by letter; a rewriter of prompts, which is left off."""
    words = parts.chat_tokenizer()
    components = {
        "transformer": diffusers.LongCatImageTransformer2DModel(
            **FLUX, in_channels=64, joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=[4, 4, 8]
        ),
        "vae": tiny_sd3.autoencoder(**FLUX_VAE),
        "text_encoder": parts.qwen2_5_vl(words),
        "tokenizer": words,
        "text_processor": words,
        "scheduler": parts.moving_schedule(shift=3.0),
    }
    return parts.filled(diffusers.LongCatImagePipeline, components)


@maker(guidance_scale=1.0, clean_caption=False)
def lumina_pipeline():
    """Lumina-Next: half of the output is a variance, and the scheduler is given the prediction's negative."""
    words = parts.chat_tokenizer("decoder")
    sizes = {"hidden_size": 24, "num_layers": 2, "num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 16}
    sizes |= {"sample_size": 4, "patch_size": 2, "in_channels": 4, "cross_attention_dim": 8}
    components = {
        "transformer": diffusers.LuminaNextDiT2DModel(**sizes, norm_eps=1e-5, learn_sigma=True, qk_norm=True),
        "vae": parts.vae_of_8(scaling_factor=0.13025),
        "text_encoder": parts.gemma(words, "Gemma"),
        "tokenizer": words,
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(),
    }
    return parts.filled(diffusers.LuminaPipeline, components)


@maker(guidance_scale=1.0)
def ovis_image_pipeline():
    """Ovis-Image: the states of a language model for a text inside its template."""
    words = parts.chat_tokenizer()
    config = tiny_flux2.qwen3_config(words, num_hidden_layers=2, tie_word_embeddings=False)
    components = {
        "transformer": diffusers.OvisImageTransformer2DModel(
            **FLUX, in_channels=64, out_channels=64, joint_attention_dim=24, axes_dims_rope=(4, 4, 8)
        ),
        "vae": tiny_sd3.autoencoder(**FLUX_VAE),
        "text_encoder": transformers.Qwen3Model(config),
        "tokenizer": words,
        "scheduler": parts.moving_schedule(shift=3.0),
    }
    return parts.filled(diffusers.OvisImagePipeline, components)


def _pix_art(cls, sample_size):
    sizes = {"num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 3, "in_channels": 4, "out_channels": 8}
    components = {
        "transformer": diffusers.PixArtTransformer2DModel(
            **sizes, sample_size=sample_size, caption_channels=24, cross_attention_dim=24
        ),
        "vae": tiny_sd3.autoencoder(4, scaling_factor=0.13025),
        **_t5(),
        "scheduler": diffusers.DPMSolverMultistepScheduler(beta_end=0.02),
    }
    return parts.filled(cls, components)


@maker(guidance_scale=1.0, use_resolution_binning=False)
def pix_art_sigma_pipeline():
    """PixArt-Sigma: masked cross attention, learned variances that are cut off."""
    return _pix_art(diffusers.PixArtSigmaPipeline, sample_size=8)


@maker(guidance_scale=1.0, use_resolution_binning=False)
def pix_art_alpha_pipeline():
    """PixArt-Alpha, of the size that is given its resolution and its aspect ratio."""
    return _pix_art(diffusers.PixArtAlphaPipeline, sample_size=128)


@maker(guidance_scale=1.0, use_resolution_binning=False)
def prx_pipeline():
    """PRX: queries of the image alone, a mask of the text, the encoder half of T5Gemma."""
    pytest.importorskip("ftfy")  # the pipeline cleans texts with it
    from transformers.models.t5gemma.modeling_t5gemma import T5GemmaEncoder

    words = parts.chat_tokenizer("decoder", model_max_length=32)
    half = transformers.T5GemmaModuleConfig(**parts.gemma_sizes(words))
    config = transformers.T5GemmaConfig(encoder=half, decoder=half)
    encoder = T5GemmaEncoder(config.encoder)
    save = encoder.save_pretrained

    def save_as_published(folder, **keywords):
        save(folder, **keywords)
        config.save_pretrained(folder)

    encoder.save_pretrained = save_as_published
    sizes = {"in_channels": 4, "patch_size": 2, "context_in_dim": 8, "hidden_size": 32, "mlp_ratio": 2.0}
    components = {
        "transformer": diffusers.PRXTransformer2DModel(**sizes, num_heads=2, depth=2, axes_dim=[8, 8]),
        "vae": tiny_sd3.autoencoder(4, **FLUX_VAE),
        "text_encoder": encoder,
        "tokenizer": words,
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
    }
    return parts.filled(diffusers.PRXPipeline, components, default_sample_size=32)


@maker(true_cfg_scale=1.0)
def qwen_image_pipeline():
    """Qwen-Image: a template that is cut off, texts of any length, a mask unless all tokens count."""
    words = parts.chat_tokenizer()
    sizes = {"num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2, "axes_dims_rope": (8, 4, 4)}
    components = {
        "transformer": diffusers.QwenImageTransformer2DModel(
            **sizes, in_channels=16, out_channels=4, joint_attention_dim=16
        ),
        "vae": parts.qwen_image_vae(),
        "text_encoder": parts.qwen2_5_vl(words),
        "tokenizer": words,
        "scheduler": parts.moving_schedule(base_shift=0.5, max_shift=0.9, shift_terminal=0.02),
    }
    return parts.filled(diffusers.QwenImagePipeline, components)


@maker(guidance_scale=1.0, use_resolution_binning=False)
def sana_pipeline():
    """SANA: a long instruction before each text, linear attention, a deep autoencoder without a distribution."""
    call = inspect.signature(diffusers.SanaPipeline.__call__).parameters
    # Spelt with bytes, the instruction would be most of the work.
    instruction = "\n".join(call["complex_human_instruction"].default)
    words = parts.chat_tokenizer("decoder", more=instruction, size=900)
    sizes = {"num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2, "sample_size": 8}
    sizes |= {"num_cross_attention_heads": 2, "cross_attention_head_dim": 16, "cross_attention_dim": 32}
    components = {
        "transformer": diffusers.SanaTransformer2DModel(**sizes, in_channels=4, out_channels=4, caption_channels=8),
        "vae": parts.deep_autoencoder(),
        "text_encoder": parts.gemma(words, "Gemma2"),
        "tokenizer": words,
        "scheduler": diffusers.DPMSolverMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    }
    return parts.filled(diffusers.SanaPipeline, components)


def _stable_diffusion(cls, scheduler, **options):
    words = parts.clip_tokenizer()
    networks = {"unet": tiny_sd3.unet(**options), "vae": tiny_sd3.autoencoder(4)}
    networks |= {"text_encoder": tiny_sd3.clip_encoder(len(words), 24)}
    others = {"tokenizer": words, "scheduler": scheduler, "safety_checker": None, "feature_extractor": None}
    return parts.filled(cls, networks | others, requires_safety_checker=False)


@maker(guidance_scale=1.0)
def stable_diffusion_pipeline():
    """Stable Diffusion 1.5."""
    return _stable_diffusion(diffusers.StableDiffusionPipeline, tiny_sd3.pndm())


flux_pipeline = Maker(lambda: parts.load(tiny_flux.write), {})
stable_diffusion_3_pipeline = Maker(lambda: parts.load(tiny_sd3.write), {"guidance_scale": 1.0})
stable_diffusion_xl_pipeline = Maker(lambda: parts.load(tiny_sdxl.write), {"guidance_scale": 1.0})

# It makes images from texts alone as FLUX.1-dev does.
flux_kontext_pipeline = variant("FluxKontextPipeline", flux_pipeline, max_area=32**2)
# It would keep keys and values of images, and is given none.
flux2_klein_kv_pipeline = variant("Flux2KleinKVPipeline", flux2_klein_pipeline)

# Perturbed attention, which a scale of 0 leaves out.
kolors_pag_pipeline = variant("KolorsPAGPipeline", kolors_pipeline, **kolors_pipeline.CALL, pag_scale=0.0)
pix_art_sigma_pag_pipeline = variant(
    "PixArtSigmaPAGPipeline", pix_art_sigma_pipeline, **pix_art_sigma_pipeline.CALL, pag_scale=0.0
)
sana_pag_pipeline = variant("SanaPAGPipeline", sana_pipeline, **sana_pipeline.CALL, pag_scale=0.0)
stable_diffusion_pag_pipeline = variant(
    "StableDiffusionPAGPipeline", stable_diffusion_pipeline, guidance_scale=1.0, pag_scale=0.0
)
stable_diffusion_3_pag_pipeline = variant(
    "StableDiffusion3PAGPipeline",
    stable_diffusion_3_pipeline,
    without=("image_encoder", "feature_extractor"),
    guidance_scale=1.0,
    pag_scale=0.0,
)
stable_diffusion_xl_pag_pipeline = variant(
    "StableDiffusionXLPAGPipeline", stable_diffusion_xl_pipeline, guidance_scale=1.0, pag_scale=0.0
)
