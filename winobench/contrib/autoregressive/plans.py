"""Generators without weights, for plans: a compiler needs only shapes and dtypes."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from winobench import parallel
from winobench.checkpoints import sources
from winobench.contrib.autoregressive import loading, scorer
from winobench.contrib.autoregressive import network as networks
from winobench.contrib.autoregressive.network import TokenNetwork
from winobench.contrib.autoregressive.scorer import ImagePreparation
from winobench.models import functional
from winobench.scorers.networks import NetworkFunction
from winobench.torch_modules import bridge
from winobench.torch_modules import loading as torch_loading

# Of all prompts: the longest is GLM-Image's, by its published template.
_PROMPT_TOKENS = 24


@dataclasses.dataclass(frozen=True)
class Skeleton:
    """An `ImageLikelihood` of shapes on a mesh, as `winobench.contrib.planning.pair_scoring.Network`."""

    mesh: Mesh
    params: list[jax.ShapeDtypeStruct]
    structure: functional.Structure
    preparation: ImagePreparation
    guidance: float | None
    tokens: int  # of the longest text with its prompt

    @property
    def image_function(self) -> NetworkFunction:
        return scorer.codes_function(self.structure, self.preparation)

    @property
    def image_spec(self) -> PartitionSpec:
        return PartitionSpec()

    def pixels(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        return tuple(jax.ShapeDtypeStruct((1, *array.shape), array.dtype) for array in self.preparation.blank)

    def text_row(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((1, scorer.text_width(self.tokens, self.guidance)), np.int32)

    def lower_pairs(self, images: Any, texts: Any, index: Any) -> jax.stages.Lowered:
        return scorer.lower_step(self.structure, self.guidance, self.mesh, self.params, images, texts, index)


@dataclasses.dataclass(frozen=True)
class Planned:
    """A generator to plan with.

    Attributes:
      network: arrays of zeros without memory.
      heads: of keys and values, which devices that share the parameters divide.
      blocks: of the decoder.
    """

    network: TokenNetwork
    heads: int
    blocks: tuple[int, ...]

    def skeleton(self, mesh: Mesh, *, guidance: float | None, preprocessing: str, text_tokens: int) -> Skeleton:
        structure, arrays = functional.split(self.network)
        places = parallel.parameter_shardings(arrays, mesh)
        params = [
            jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)
            for array, place in zip(arrays, places, strict=True)
        ]
        preparation = ImagePreparation.of(self.network.family, preprocessing)
        return Skeleton(mesh, params, structure, preparation, guidance, text_tokens + _PROMPT_TOKENS)

    def batch_size(self, mesh: Mesh) -> int:
        return scorer.usual_batch_size(self.network.family, mesh)


def read_generator(
    source: str, dtype: str, *, image_size: int | None = None, revision: str | None = None, blocks: int | None = None
) -> Planned:
    """A generator by the config of a name in `RELEASED`, or of a folder. ``blocks``: of the decoder, if not all."""
    transformers, torch = bridge.transformers, bridge.torch
    if source in RELEASED and revision is None:
        model_type, values = RELEASED[source]
        kind, processor = loading.FAMILIES[model_type], _processor()
        model_class = getattr(transformers, kind.MODEL)
        config = model_class.config_class(**values)
    else:
        found = sources.resolve(source, revision=revision)
        kind = loading.family_of(found)
        part, of_processor = kind.SUBFOLDERS
        model_class = getattr(transformers, kind.MODEL)
        folder = torch_loading.folder_of(found, {part, of_processor})
        processor = torch_loading.load_other(found, folder, of_processor, getattr(transformers, kind.PROCESSOR))
        path = found.require(sources.join(part, "config.json"), f"so its {kind.MODEL} is unknown")
        with torch_loading.quietly(f"{path} does not describe a {kind.MODEL}"):
            config = model_class.config_class.from_dict(sources.read_json(path))
    text = config.text_config
    depth = text.num_hidden_layers
    text.num_hidden_layers = blocks or depth
    with torch.device("meta"):
        model = model_class(config)
    for name, parameter in model.named_parameters():
        if not {*kind.FLOAT32} & {*name.split(".")}:
            parameter.data = parameter.data.to(getattr(torch, dtype))
    networks.use_causal_attention(model)
    network = TokenNetwork(kind.read(model, processor, image_size), model)
    return Planned(network, text.num_key_value_heads, (depth,))


def _processor() -> Any:
    """What families read of a processor. Ids of tokens and values of pixels change no shape."""
    tokenizer = types.SimpleNamespace(bos_token_id=0, boi_token="", pad_token_id=0)
    tokenizer.convert_tokens_to_ids = lambda token: 0
    grids = functools.partial(bridge.transformers.GlmImageProcessor._get_target_shape, None)
    images = types.SimpleNamespace(image_mean=(0.5,) * 3, image_std=(0.5,) * 3)
    return types.SimpleNamespace(
        tokenizer=tokenizer, image_processor=images, downsample_ratio=8, _get_target_shape=grids
    )


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
