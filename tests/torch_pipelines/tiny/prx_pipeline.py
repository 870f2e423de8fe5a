"""A tiny PRX: queries of the image alone, a mask of the text, the encoder half of T5Gemma."""

import diffusers
import pytest
import transformers
from transformers.models.t5gemma.modeling_t5gemma import T5GemmaEncoder

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "use_resolution_binning": False}


def make() -> diffusers.PRXPipeline:
    pytest.importorskip("ftfy")  # the pipeline cleans texts with it
    words = parts.chat_tokenizer("decoder", model_max_length=32)
    half = transformers.T5GemmaModuleConfig(
        vocab_size=len(words),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    config = transformers.T5GemmaConfig(encoder=half, decoder=half)
    encoder = T5GemmaEncoder(config.encoder)
    save = encoder.save_pretrained

    def save_as_published(folder, **keywords):
        save(folder, **keywords)
        config.save_pretrained(folder)

    encoder.save_pretrained = save_as_published
    return parts.filled(
        diffusers.PRXPipeline,
        {
            "transformer": diffusers.PRXTransformer2DModel(
                in_channels=4,
                patch_size=2,
                context_in_dim=8,
                hidden_size=32,
                mlp_ratio=2.0,
                num_heads=2,
                depth=2,
                axes_dim=[8, 8],
            ),
            "vae": tiny_sd3.autoencoder(4, scaling_factor=0.3611, shift_factor=0.1159),
            "text_encoder": encoder,
            "tokenizer": words,
            "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        },
        default_sample_size=IMAGE_SIZE,
    )
