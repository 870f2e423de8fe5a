"""Generators without weights, for plans: a compiler needs only shapes and dtypes."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.checkpoints import sources
from winobench.contrib.autoregressive import answering, generation, loading, scorer
from winobench.contrib.autoregressive import network as networks
from winobench.contrib.autoregressive.network import TokenNetwork
from winobench.contrib.autoregressive.scorer import ImagePreparation
from winobench.models import functional
from winobench.models.vision_language import PromptForm
from winobench.torch_modules import bridge

# Of all prompts: the longest is GLM-Image's, by its published template.
_PROMPT_TOKENS = 24


@dataclasses.dataclass(frozen=True)
class Planned:
    """A generator to plan with. Its methods give a program's parts, with parameters at their places on a mesh.

    Attributes:
      network: arrays of zeros without memory.
      processor: of the model, or what is read of it.
      blocks: of the decoder.
    """

    name: str
    network: TokenNetwork
    processor: Any
    blocks: tuple[int, ...]

    @property
    def heads(self) -> int:
        """Heads of keys and values, which devices that share the parameters divide."""
        return self.network.config.text_config["num_key_value_heads"]

    def batch_size(self, mesh: Mesh) -> int:
        return scorer.usual_batch_size(self.network.family, mesh)

    def scoring(self, mesh: Mesh, guidance: float | None, preprocessing: str, text_tokens: int) -> tuple[Any, ...]:
        """Parameters, the images' encoder, an image, a text, and the lowering of pairs, of an `ImageLikelihood`."""
        structure, params = _placed(self.network, mesh)
        preparation = ImagePreparation.of(self.network.family, preprocessing)
        text = np.zeros(scorer.text_width(text_tokens + _PROMPT_TOKENS, guidance), np.int32)
        lower = functools.partial(scorer.lower_step, structure, guidance, mesh, params)
        return params, scorer.codes_function(structure, preparation), preparation.blank, text, lower

    def form(self) -> PromptForm:
        """The form of questions about an image."""
        answering.check_reads(self.name, type(self.network.family), self.network.config.to_dict())
        return answering.form_of(self.processor)

    def answering(self, mesh: Mesh) -> tuple[Any, ...]:
        """The structure, the parameters and the images' processor of an `AnswerScore`."""
        network, image = answering.reader_of(self.network, self.processor)
        return *_placed(network, mesh), image

    def generation(self, mesh: Mesh, guidance_scale: float | None, text_tokens: int) -> tuple[Any, ...]:
        """Parameters, and functions of parameters and rows, with a row of shapes: of tokens, and of their decoder."""
        generation.check_images(self.network.family, self.name)
        structure, params = _placed(self.network, mesh)
        family, step = self.network.family, generation.PROMPT_STEP
        guidance = family.GUIDANCE if guidance_scale is None else max(guidance_scale, 1.0)
        width = math.ceil((text_tokens + _PROMPT_TOKENS) / step) * step + 1
        prompts = jax.ShapeDtypeStruct((1, 1 if guidance == 1 else 2, width), np.int32)
        row = generation.Rows(prompts, jax.ShapeDtypeStruct((1, 2), np.uint32))
        sharing = mesh.size // parallel.data_parallelism(mesh)
        sampling = generation.Sampling(structure, guidance, 1.0, family.TOP_K, sharing)
        codes = jax.ShapeDtypeStruct((1, family.scored), np.int32)
        return params, (sampling, row), (generation.Decoding(structure), codes)


def _placed(network: Any, mesh: Mesh) -> tuple[functional.Structure, list[jax.ShapeDtypeStruct]]:
    structure, arrays = functional.split(network)
    places = zip(arrays, parallel.parameter_shardings(arrays, mesh), strict=True)
    return structure, [jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place) for array, place in places]


def read_generator(
    source: str, dtype: str, *, image_size: int | None = None, revision: str | None = None, blocks: int | None = None
) -> Planned:
    """A generator by the config of a name in `RELEASED`, or of a folder. ``blocks``: of the decoder, if not all."""
    transformers, torch = bridge.transformers, bridge.torch
    if source in RELEASED and revision is None:
        model_type, values = RELEASED[source]
        kind, processor = loading.FAMILIES[model_type], _processor()
        config = getattr(transformers, kind.MODEL).config_class(**values)
    else:
        kind, _, processor, config = loading.small_files(sources.resolve(source, revision=revision))
    text = config.text_config
    depth = text.num_hidden_layers
    text.num_hidden_layers = blocks or depth
    with torch.device("meta"):
        model = getattr(transformers, kind.MODEL)(config)
    for name, parameter in model.named_parameters():
        if not {*kind.FLOAT32} & {*name.split(".")}:
            parameter.data = parameter.data.to(getattr(torch, dtype))
    networks.use_causal_attention(model)
    network = TokenNetwork(kind.read(model, processor, image_size), model)
    return Planned(source, network, processor, (depth,))


def _processor() -> Any:
    """What families read of a processor. Ids of tokens and values of pixels change no shape."""
    tokenizer = types.SimpleNamespace(bos_token_id=0, boi_token="", pad_token_id=0)
    tokenizer.convert_tokens_to_ids = lambda token: 0
    images = types.SimpleNamespace(image_mean=(0.5,) * 3, image_std=(0.5,) * 3, resample=3, rescale_factor=1 / 255)
    images.size, images.min_size = {"height": 384, "width": 384}, 14
    processor = types.SimpleNamespace(tokenizer=tokenizer, image_processor=images, downsample_ratio=8)
    processor._get_target_shape = functools.partial(bridge.transformers.GlmImageProcessor._get_target_shape, None)
    # The published template of Janus, and the tokens of an image that it reads.
    image = processor.image_token = "<image_placeholder>"
    processor.image_start_token, processor.image_end_token = "<begin_of_image>", "<end_of_image>"
    processor.num_image_tokens = 576
    processor.apply_chat_template = lambda *_, **__: f"<|User|>: {image}\n{{}}\n\n<|Assistant|>:"
    return processor


def _janus_pro(width: int, inner: int, heads: int, layers: int) -> tuple[str, Mapping[str, Any]]:
    """Widths, heads and layers of table 1 of Chen et al. (2501.17811). The decoder is DeepSeek LLM's."""
    text = {
        "model_type": "llama",
        "vocab_size": 102400,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": 16384,
    }
    own = {"projection_dim": width}
    vq = {**own, "image_token_embed_dim": width, "num_patches": 24}
    return "janus", {"text_config": text, "vision_config": own, "vq_config": vq, "tie_word_embeddings": False}


def _emu3_words() -> dict[str, int]:
    """The vocabulary's image tokens, in the order of Emu3's tokenizer."""
    words = {f"<|visual token {code:06d}|>": 151854 + code for code in range(32768)}
    return {**words, "<|extra_200|>": 151846, "<image>": 151847}


_GLM_ROTATIONS = {
    "rope_type": "default",
    "rope_theta": 10000.0,
    "mrope_section": [8, 12, 12],
    "partial_rotary_factor": 0.5,
}

RELEASED: dict[str, tuple[str, Mapping[str, Any]]] = {
    "janus-pro-1b": _janus_pro(2048, 5632, 16, 24),
    "janus-pro-7b": _janus_pro(4096, 11008, 32, 30),
    "emu3-gen": ("emu3", {"vocabulary_map": _emu3_words()}),
    "glm-image": ("glm_image", {"text_config": {"rope_parameters": _GLM_ROTATIONS}}),
}
"""Name -> ``model_type``, and what differs from the defaults of transformers' config, which are the published sizes."""
