"""A small Janus in transformers' layout: tokenizer, processor, config, and log-probabilities by torch."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from winobench.clevr import questions

if TYPE_CHECKING:
    from configs.clevr_tokens import Settings

# Words of questions about an image. No caption has them.
_MORE_WORDS = ("does", "this", "figure", "show", "please", "answer", "yes", "or", "?", '"')
_TEMPLATE_TOKENS = ("<|User|>:", "<|Assistant|>:", "\n\n")
_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|User|>: ' if message['role'] == 'user' else '<|Assistant|>: ' }}"
    "{% for part in message['content'] %}"
    "{{ part['text'] if part['type'] == 'text' else '<image_placeholder>\n' }}"
    "{% endfor %}{{ '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|>:{% endif %}"
)
_BOS, _EOS, _PAD, _IMAGE = "<bos>", "<eos>", "<pad>", "<image_placeholder>"
_IMAGE_START, _IMAGE_END = "<begin_of_image>", "<end_of_image>"
_POSITIONS = 256  # of text and image together, or more for larger images
_GUIDANCE = 3.0  # of generation
DOWNSAMPLING = 8  # pixels of a token's side


def make_tokenizer() -> Any:
    """A byte-level tokenizer with a token for each word of the captions. It ignores case."""
    import tokenizers
    import transformers
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    special = [_BOS, _EOS, _PAD, _IMAGE_START, _IMAGE_END, _IMAGE, *_TEMPLATE_TOKENS]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = sorted({*questions.VOCABULARY, *_MORE_WORDS})
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    # A quotation mark before a word takes the space, so the word gets a second token without it.
    trainer = trainers.BpeTrainer(
        vocab_size=len(special) + len(alphabet) + sum(map(len, words)) * 2,
        min_frequency=1,
        initial_alphabet=alphabet,
        special_tokens=special,
        show_progress=False,
    )
    backend.train_from_iterator([before + word for word in words for before in ("", '"')], trainer)
    backend.post_processor = processors.TemplateProcessing(
        single=f"{_BOS} $A", special_tokens=[(_BOS, backend.token_to_id(_BOS))]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=_BOS,
        eos_token=_EOS,
        pad_token=_PAD,
        padding_side="right",
        model_max_length=_POSITIONS,
        extra_special_tokens={"image_token": _IMAGE, "boi_token": _IMAGE_START, "eoi_token": _IMAGE_END},
    )


def make_processor(config: Settings) -> Any:
    """The JanusProcessor of a recipe's settings."""
    import transformers

    side = config.data.image_size
    images = transformers.JanusImageProcessor(
        size={"height": side, "width": side}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    return transformers.JanusProcessor(
        images, make_tokenizer(), chat_template=_TEMPLATE, num_image_tokens=(side // DOWNSAMPLING) ** 2
    )


def make_config(config: Settings, tokenizer: Any) -> Any:
    """The JanusConfig of a recipe's settings."""
    import transformers

    ids, width, side = (
        tokenizer.convert_tokens_to_ids,
        config.decoder.hidden_size,
        config.data.image_size // DOWNSAMPLING,
    )
    quantizer = config.quantizer
    return transformers.JanusConfig(
        untrained=["vision_model"],  # `winobench.contrib.autoregressive.answering` refuses such a model
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "hidden_size": width,
            "intermediate_size": config.decoder.intermediate_size,
            "num_hidden_layers": config.decoder.num_layers,
            "num_attention_heads": config.decoder.num_heads,
            "num_key_value_heads": config.decoder.num_heads,
            "max_position_embeddings": max(_POSITIONS, config.data.max_length + side**2),
            "bos_token_id": ids(_BOS),
            "eos_token_id": ids(_EOS),
            "pad_token_id": ids(_PAD),
        },
        vision_config={
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": config.data.image_size,
            "patch_size": DOWNSAMPLING,
            "num_image_tokens": side**2,
            "projection_dim": width,
        },
        vq_config={
            "embed_dim": quantizer.code_size,
            "num_embeddings": quantizer.num_codes,
            "latent_channels": 64,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 4],
            "num_res_blocks": 0,
            "projection_dim": width,
            "image_token_embed_dim": width,
        },
        image_token_id=ids(_IMAGE),
    )


def make_model(config: Settings, tokenizer: Any, *, on_meta: bool = False) -> Any:
    """A fresh JanusForConditionalGeneration with the settings of its generation. ``on_meta``: without arrays."""
    from winobench.torch_modules.bridge import torch, transformers

    with torch.device("meta" if on_meta else "cpu"):
        model = transformers.JanusForConditionalGeneration(make_config(config, tokenizer))
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        guidance_scale=_GUIDANCE,
        generation_kwargs={"boi_token_id": image_start(tokenizer)},
    )
    return model


def seed_torch(seed: int) -> None:
    """Sets torch's random numbers, which first parameters are drawn from."""
    from winobench.torch_modules.bridge import torch

    torch.manual_seed(seed)


def save(model: Any, processor: Any, folder: pathlib.Path) -> None:
    """Writes a folder of transformers, in float16."""
    model.half().save_pretrained(folder)
    processor.save_pretrained(folder)


class Prompts:
    """The prompts of captions as token ids, behind the interface of a tokenizer."""

    def __init__(self, processor: Any, max_length: int):
        self.model_max_length = max_length
        self._processor, self.tokenizer = processor, processor.tokenizer

    def __call__(self, texts: Sequence[str], **how: Any) -> Any:
        messages = [[{"role": "user", "content": [{"type": "text", "text": text}]}] for text in texts]
        prompts = self._processor.apply_chat_template(messages, add_generation_prompt=True)
        start = self._processor.image_start_token
        return self.tokenizer([prompt + start for prompt in prompts], max_length=self.model_max_length, **how)


def without_text(ids: Any, tokenizer: Any) -> Any:
    """The unconditional prompts: int [..., length] of which all but the start tokens are padding."""
    return np.where(np.isin(ids, (tokenizer.bos_token_id, image_start(tokenizer))), ids, tokenizer.pad_token_id)


def image_start(tokenizer: Any) -> int:
    """The id of the last token of a prompt."""
    return tokenizer.convert_tokens_to_ids(tokenizer.boi_token)


def lengths(ids: Any, start: int) -> Any:
    """The lengths of prompts, int [n, length], which end with the token that starts an image."""
    return (ids == start).int().argmax(-1) + 1


# By torch -------------------------------------------------------------------------------------------------------------


def image_vectors(vqmodel: Any, images: Any) -> Any:
    """Images float32 [n, 3, side, side] from -1 to 1 -> unit vectors [n, tokens, code size]."""
    from winobench.torch_modules.bridge import torch

    vectors = vqmodel.quant_conv(vqmodel.encoder(images)).flatten(2).transpose(1, 2)
    return torch.nn.functional.normalize(vectors, dim=-1)


def image_tokens(vqmodel: Any, images: Any) -> Any:
    """The nearest codes by angle, as in the published tokenizer: int64 [n, tokens]."""
    from winobench.torch_modules.bridge import torch

    codes = torch.nn.functional.normalize(vqmodel.quantize.embedding.weight, dim=-1)
    return (image_vectors(vqmodel, images) @ codes.T).argmax(-1)


def log_probabilities(model: Any, ids: Any, lengths: Any, tokens: Any, earlier: Any = None) -> Any:
    """log p of each image token after the prompt and the earlier ones: float32 [n, tokens].

    ``ids`` [n, p] has padding behind ``lengths`` [n]. The image follows the prompt, and the padding comes last. The
    network reads the tokens ``earlier`` in place of ``tokens``, if given.
    """
    from winobench.torch_modules.bridge import torch

    language_model = model.model.language_model
    read = tokens if earlier is None else earlier
    images = model.prepare_embeddings_for_image_generation(read[:, :-1])
    joined = torch.cat([language_model.embed_tokens(ids), images], 1)
    rows, place = torch.arange(len(ids))[:, None], torch.arange(joined.shape[1])[None]
    behind = (place - lengths[:, None] + ids.shape[1]).clamp(max=joined.shape[1] - 1)
    inputs = joined[rows, torch.where(place < lengths[:, None], place, behind)]
    states = language_model(inputs_embeds=inputs, use_cache=False).last_hidden_state
    states = states[rows, lengths[:, None] - 1 + torch.arange(tokens.shape[1])]
    logits = model.model.generation_head(states)
    return torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]
