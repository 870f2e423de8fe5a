"""Parts of the small random pipelines of diffusers that the modules of this folder make."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

# In the manner of ChatML, for contents that are lists of parts.
PARTS_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{{ part['text'] }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def load(write: Any, **options: Any) -> Any:
    """The pipeline of diffusers in the folder that a function writes."""
    import diffusers

    with tempfile.TemporaryDirectory() as folder:
        return diffusers.DiffusionPipeline.from_pretrained(
            write(pathlib.Path(folder), **options), local_files_only=True
        )


def randomized(*networks: Any) -> None:
    """Gives each network random weights, all layers included."""
    from tests.parity.torch_copy import randomize

    for number, network in enumerate(networks):
        randomize(network, number)


def clip_tokenizer() -> Any:
    """CLIP's, for the words of the tests."""
    import transformers

    from tests.conftest import TINY_WORDS
    from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        write_clip_tokenizer(pathlib.Path(folder), TINY_WORDS, 77)
        return transformers.CLIPTokenizer.from_pretrained(folder)


def t5_tokenizer() -> Any:
    """T5's, for the words of the tests."""
    import transformers

    from tests import tiny_sd3

    with tempfile.TemporaryDirectory() as folder:
        tiny_sd3.write_t5_tokenizer(pathlib.Path(folder))
        return transformers.AutoTokenizer.from_pretrained(folder)


def wan_autoencoder(channels: int) -> Any:
    """Wan 2.2's in small: 16 pixels a side per latent, statistics that are not 0 and 1."""
    import diffusers

    return diffusers.AutoencoderKLWan(
        base_dim=8,
        decoder_base_dim=8,
        z_dim=channels,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        latents_mean=[0.1 * number for number in range(channels)],
        latents_std=[1 + 0.1 * number for number in range(channels)],
        scale_factor_spatial=16,
        scale_factor_temporal=4,
    )


def qwen3_vl(words: Any, **options: Any) -> Any:
    """A small Qwen3-VL, its language model of three layers or as many as the options say."""
    import transformers

    text = {
        "vocab_size": len(words),
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "rope_type": "default"},
    }
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "patch_size": 4,
        "num_position_embeddings": 16,
        "out_hidden_size": 24,
        "deepstack_visual_indexes": [0],
    }
    return transformers.Qwen3VLForConditionalGeneration(
        transformers.Qwen3VLConfig(text_config=text | options, vision_config=vision, tie_word_embeddings=False)
    )
