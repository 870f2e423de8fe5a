"""Parts that the tiny pipelines share: tokenizers and text encoders. All random numbers are the same at every call."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

from tests import tiny_language_models, tiny_sd3
from tests.conftest import TINY_WORDS

# In the manner of ChatML; contents are texts or lists of parts, as processors take them.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_tokenizer(kind: str = "bare", more: str = "", size: int = 400, **options: Any) -> Any:
    """A tokenizer of bytes and pieces with a chat template. It also learns ``more``. ``options`` are attributes."""
    text = tiny_language_models.TEXT + more
    words = tiny_language_models.make_tokenizer(kind=kind, chat_template=CHAT_TEMPLATE, text=text, size=size)
    for name, value in {"padding_side": "right", "model_max_length": 4096, **options}.items():
        setattr(words, name, value)
    return words


def clip_tokenizer() -> Any:
    """A tokenizer of class CLIPTokenizer, at most 77 tokens."""
    import transformers

    from winobench.checkpoints.tokenizer_files import write_clip_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        write_clip_tokenizer(pathlib.Path(folder), TINY_WORDS, 77)
        return transformers.CLIPTokenizer.from_pretrained(folder)


def t5_tokenizer() -> Any:
    """A tokenizer like T5's."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        tiny_sd3.write_t5_tokenizer(pathlib.Path(folder))
        return transformers.AutoTokenizer.from_pretrained(folder)


def qwen2_5_vl(words: Any, layers: int = 2) -> Any:
    """A random Qwen2.5-VL of width 16."""
    import transformers

    ids = {"vocab_size": len(words), "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    text = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": layers, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 2, "max_position_embeddings": 4096, **ids}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    return transformers.Qwen2_5_VLForConditionalGeneration(
        transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    )


def qwen3_vl(words: Any, kind: str, layers: int) -> Any:
    """A random Qwen3-VL of width 16; ``kind`` is its class."""
    import transformers

    ids = {"vocab_size": len(words), "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    text = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": layers, "num_attention_heads": 2}
    text |= {"num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 4096, **ids}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16}
    vision |= {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
    return getattr(transformers, kind)(transformers.Qwen3VLConfig(text_config=text, vision_config=vision))


def mistral3(words: Any, kind: str, layers: int) -> Any:
    """A random Mistral 3 of width 16; ``kind`` is its class."""
    import transformers

    ids = {"vocab_size": len(words), "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    text = {"model_type": "mistral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": layers}
    text |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 4096, **ids}
    vision = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "head_dim": 8, "image_size": 32, "patch_size": 16}
    return getattr(transformers, kind)(transformers.Mistral3Config(text_config=text, vision_config=vision))


def filled(cls: type, parts: dict[str, Any], **options: Any) -> Any:
    """The pipeline of these parts, whose networks get random weights."""
    import torch

    from tests.parity.harness import randomize

    for number, part in enumerate(parts.values()):
        if isinstance(part, torch.nn.Module):
            randomize(part, number)
    return cls(**parts, **options)


def qwen_image_vae() -> Any:
    """A random autoencoder of Qwen-Image's class: 8 pixels a position, statistics that are not 0 and 1."""
    import diffusers

    sizes = {"base_dim": 8, "z_dim": 4, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1}
    sizes |= {"temperal_downsample": [False, True, True], "latents_mean": [0.1, 0.2, -0.1, 0.0]}
    sizes |= {"latents_std": [1.5, 2.0, 0.8, 1.0]}
    return diffusers.AutoencoderKLQwenImage(**sizes)


def vae_of_8(**options: Any) -> Any:
    """A random AutoencoderKL of 4 channels and 8 pixels a position."""
    import diffusers

    sizes = {"block_out_channels": (8, 8, 8, 8), "down_block_types": ("DownEncoderBlock2D",) * 4}
    sizes |= {"up_block_types": ("UpDecoderBlock2D",) * 4, "norm_num_groups": 4, "latent_channels": 4}
    return diffusers.AutoencoderKL(**sizes, **options)


def gemma(words: Any, kind: str) -> Any:
    """A random Gemma of width 8; ``kind`` is Gemma or Gemma2."""
    import transformers

    return getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**gemma_sizes(words)))


def gemma_sizes(words: Any) -> dict[str, Any]:
    """The options of a config for these tokens."""
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    ids = {"vocab_size": len(words), "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id}
    return {**sizes, **heads, **ids}


def deep_autoencoder() -> Any:
    """A random AutoencoderDC of 4 channels and 4 pixels a position."""
    import diffusers

    widths = {"encoder_block_out_channels": (8, 8, 8), "decoder_block_out_channels": (8, 8, 8)}
    layers = {"encoder_layers_per_block": (1, 1, 1), "decoder_layers_per_block": (1, 1, 1)}
    blocks = ("ResBlock", "ResBlock", "EfficientViTBlock")
    scales = ((), (), (5,))
    sizes = {"latent_channels": 4, "attention_head_dim": 8, "encoder_block_types": blocks}
    sizes |= {"decoder_block_types": blocks, "encoder_qkv_multiscales": scales, "decoder_qkv_multiscales": scales}
    sizes |= {"downsample_block_type": "conv", "upsample_block_type": "interpolate", "decoder_norm_types": "rms_norm"}
    sizes |= {"decoder_act_fns": "silu", "scaling_factor": 0.41407}
    return diffusers.AutoencoderDC(**sizes, **widths, **layers)


def bert_tokenizer() -> Any:
    """A tokenizer of class BertTokenizer for the words of the tests."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "vocab.txt"
        file.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TINY_WORDS]))
        return transformers.BertTokenizer.from_pretrained(folder)


def chatglm_tokenizer() -> Any:
    """Kolors' own tokenizer, with pieces of the words of the tests."""
    import sentencepiece
    from diffusers.pipelines.kolors.tokenizer import ChatGLMTokenizer

    folder = tempfile.TemporaryDirectory()
    file = pathlib.Path(folder.name) / "tokenizer"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TINY_WORDS * 8), model_prefix=str(file), vocab_size=24, minloglevel=2
    )
    words = ChatGLMTokenizer(f"{file}.model")
    words.folder = folder  # it is copied from there when the tokenizer is saved
    return words


def load(write: Any, **options: Any) -> Any:
    """The pipeline of diffusers in the folder that a function writes."""
    import diffusers

    with tempfile.TemporaryDirectory() as folder:
        write(pathlib.Path(folder), **options)
        return diffusers.DiffusionPipeline.from_pretrained(folder, local_files_only=True)


def wan_autoencoder(channels: int) -> Any:
    """A random AutoencoderKLWan of 16 pixels a position, with statistics that are not 0 and 1."""
    import diffusers

    sizes = {"base_dim": 8, "decoder_base_dim": 8, "z_dim": channels, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1}
    sizes |= {"temperal_downsample": [False, True, True], "is_residual": True, "in_channels": 12, "out_channels": 12}
    sizes |= {"patch_size": 2, "latents_mean": [0.1 * number for number in range(channels)]}
    sizes |= {"latents_std": [1 + 0.1 * number for number in range(channels)], "scale_factor_spatial": 16}
    sizes |= {"scale_factor_temporal": 4}
    return diffusers.AutoencoderKLWan(**sizes)


def flux2_autoencoder() -> Any:
    """A random AutoencoderKLFlux2 of 4 channels and 4 pixels a position, with statistics that are not 0 and 1."""
    import torch

    vae = tiny_sd3.autoencoder(4, "AutoencoderKLFlux2")
    generator = torch.Generator().manual_seed(7)
    vae.bn.running_mean.copy_(0.3 * torch.randn(16, generator=generator))
    vae.bn.running_var.copy_(0.5 + torch.rand(16, generator=generator))
    return vae


def moving_schedule(**options: Any) -> Any:
    """A scheduler of flows whose shift depends on the size of the image."""
    import diffusers

    sizes = {"base_image_seq_len": 4, "max_image_seq_len": 64}
    return diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, **sizes, **options)
