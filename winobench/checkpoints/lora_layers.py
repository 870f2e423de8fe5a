"""Layers of a network that the adapters of a LoRA file belong to.

Files name layers as the network here does, with underscores for dots (kohya), or as the models' original code does,
where one dense layer replaces several of diffusers. An adapter of such a layer is split by its outputs, and each part
keeps the first factor, so that nothing is rounded. The network decides the meaning of a name: FLUX.1 and FLUX.2 share
names in the original code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from flax import nnx

from winobench.base.errors import InputError
from winobench.checkpoints import lora_keys
from winobench.checkpoints.lora_changes import Change
from winobench.models import lora


@dataclasses.dataclass(frozen=True)
class Adapter:
    """The adapter of one layer, in torch's layout."""

    down: np.ndarray  # float32 [rank, inputs], of a convolution [rank, inputs, height, width]
    up: np.ndarray  # float32 [outputs, rank]
    alpha: float | None = None  # the product is multiplied by alpha / rank; None for the rank itself, so by 1

    @property
    def rank(self) -> int:
        return self.down.shape[0]

    @property
    def outputs(self) -> int:
        return len(self.up)

    @property
    def is_zero(self) -> bool:
        return not self.up.any()

    def take(self, rows: np.ndarray) -> Self:
        """The adapter of these outputs alone."""
        return dataclasses.replace(self, up=self.up[rows])

    def identity(self) -> list[tuple[str, np.ndarray]]:
        """Its arrays, each with a text about it, for a hash."""
        return [(f"{self.down.shape} {self.up.shape} {self.factors.scale!r}", self.down), ("", self.up)]

    @property
    def factors(self) -> lora.Factors:
        """The same for the networks here, whose layout is [inputs, outputs]."""
        # [rank, inputs, height, width] -> [height, width, inputs, rank].
        down = self.down.T if self.down.ndim == 2 else self.down.transpose(2, 3, 1, 0)
        return lora.Factors(down, self.up.T, 1.0 if self.alpha is None else self.alpha / self.rank)


_OF_IMAGE, _OF_TEXT = "attn.to_q attn.to_k attn.to_v", "attn.add_q_proj attn.add_k_proj attn.add_v_proj"

_IN_OUT = ("in_layer", "out_layer")


def _norms(stream: str, name: str) -> dict[str, tuple[str, ...]]:
    """Norms of queries and keys in FLUX. Some files append the name of the weight, scale, to the layer's name."""
    norms = (("query", "q"), ("key", "k"))
    return {f"{stream}norm_{long}_norm{end}": (name.format(short),) for long, short in norms for end in ("", "_scale")}


# (pattern of a block's original name, its name here, its layers' original names -> their names here). Of several
# candidates, the one counts of which the network has all layers.
_BLOCKS: tuple[tuple[str, str, Mapping[str, tuple[str, ...]]], ...] = (
    # FLUX.1 and FLUX.2 (black-forest-labs/flux, flux2).
    (
        r"double_blocks_(\d+)_",
        "transformer_blocks.{}.",
        {
            "img_attn_qkv": (_OF_IMAGE,),
            "txt_attn_qkv": (_OF_TEXT,),
            "img_attn_proj": ("attn.to_out.0",),
            "txt_attn_proj": ("attn.to_add_out",),
            "img_mlp_0": ("ff.net.0.proj", "ff.linear_in"),
            "img_mlp_2": ("ff.net.2", "ff.linear_out"),
            "txt_mlp_0": ("ff_context.net.0.proj", "ff_context.linear_in"),
            "txt_mlp_2": ("ff_context.net.2", "ff_context.linear_out"),
            "img_mod_lin": ("norm1.linear",),
            "txt_mod_lin": ("norm1_context.linear",),
            **_norms("img_attn_", "attn.norm_{}"),
            **_norms("txt_attn_", "attn.norm_added_{}"),
        },
    ),
    (
        r"single_blocks_(\d+)_",
        "single_transformer_blocks.{}.",
        {
            "linear1": (f"{_OF_IMAGE} proj_mlp", "attn.to_qkv_mlp_proj"),
            "linear2": ("proj_out", "attn.to_out"),
            "qkv": (_OF_IMAGE,),
            "modulation_lin": ("norm.linear",),
            **_norms("", "attn.norm_{}"),
        },
    ),
    # Stable Diffusion 3 and 3.5 (Stability-AI/sd3.5).
    (
        r"joint_blocks_(\d+)_",
        "transformer_blocks.{}.",
        {
            "x_block_attn_qkv": (_OF_IMAGE,),
            "x_block_attn2_qkv": (_OF_IMAGE.replace("attn", "attn2"),),
            "context_block_attn_qkv": (_OF_TEXT,),
            "x_block_attn_proj": ("attn.to_out.0",),
            "x_block_attn2_proj": ("attn2.to_out.0",),
            "context_block_attn_proj": ("attn.to_add_out",),
            "x_block_mlp_fc1": ("ff.net.0.proj",),
            "x_block_mlp_fc2": ("ff.net.2",),
            "context_block_mlp_fc1": ("ff_context.net.0.proj",),
            "context_block_mlp_fc2": ("ff_context.net.2",),
            "x_block_adaLN_modulation_1": ("norm1.linear",),
            "context_block_adaLN_modulation_1": ("norm1_context.linear",),
        },
    ),
    # Z-Image (Tongyi-MAI/Z-Image), whose other layers have diffusers' names.
    (
        r"(layers|noise_refiner|context_refiner)_(\d+)_",
        "{}.{}.",
        {"attention_qkv": ("attention.to_q attention.to_k attention.to_v",), "attention_out": ("attention.to_out.0",)},
    ),
    # All of them.
    (
        "",
        "",
        {
            "img_in": ("x_embedder",),
            "x_embedder": ("all_x_embedder.2-1",),
            "txt_in": ("context_embedder",),
            **{
                f"{original}_{end}": tuple(f"{name}.linear_{number}" for name in names.split())
                for original, ends, names in (
                    ("time_in", _IN_OUT, "time_text_embed.timestep_embedder time_guidance_embed.timestep_embedder"),
                    ("guidance_in", _IN_OUT, "time_text_embed.guidance_embedder time_guidance_embed.guidance_embedder"),
                    ("vector_in", _IN_OUT, "time_text_embed.text_embedder"),
                    ("t_embedder", ("mlp_0", "mlp_2"), "time_text_embed.timestep_embedder"),
                    ("y_embedder", ("mlp_0", "mlp_2"), "time_text_embed.text_embedder"),
                )
                for number, end in enumerate(ends, 1)
            },
            **{
                f"{name}_lin": (f"{name}.linear",)
                for name in ("double_stream_modulation_img", "double_stream_modulation_txt", "single_stream_modulation")
            },
            "final_layer_linear": ("proj_out", "all_final_layer.2-1.linear"),
            "final_layer_adaLN_modulation_1": ("norm_out.linear", "all_final_layer.2-1.adaLN_modulation.1"),
        },
    ),
)
# Norms whose layer gives the shift first in the original code, and here the scale.
_SWAPPED = re.compile(r"norm_out\.linear|transformer_blocks\.\d+\.norm1_context\.linear")


def fitted(network: nnx.Module, adapters: Mapping[str, Adapter | Change]) -> dict[str, Adapter | Change]:
    """Adapters under the names of a network's layers, as `named`."""
    shapes = {name: getattr(layer, part).shape for name, (layer, part) in lora.weighted_layers(network).items()}
    return named(type(network).__name__, getattr(network, "config", None), shapes, adapters)


def named(
    kind: str, config: Any, shapes: Mapping[str, tuple[int, ...]], adapters: Mapping[str, Adapter | Change]
) -> dict[str, Adapter | Change]:
    """Adapters under the names of layers. Names that the network has in no form stay as they are.

    Adapters of zeros for layers that it lacks, which some programs write, are left out. ``shapes`` of layers end with
    the number of outputs.
    """
    words = {name.replace(".", "_"): name for name in shapes}
    depths = getattr(config, "layers_per_block", ())
    depths = (depths,) * len(config.block_out_channels) if isinstance(depths, int) else depths
    parts: dict[str, Adapter | Change] = {}
    sources: dict[str, str] = {}
    for name, adapter in adapters.items():
        original = lora_keys.original_block_to_diffusers(name, depths)
        for layer, part in _parts(kind, original or name, adapter, shapes, words):
            if layer in parts:
                message = f"{sources[layer]} and {name} are two names of the layer {layer}: remove one"
                raise InputError(message, code="repeated-tensor")
            parts[layer], sources[layer] = part, name
    return parts


def _parts(
    kind: str, name: str, adapter: Adapter | Change, layers: Mapping[str, tuple[int, ...]], words: Mapping[str, str]
) -> list[tuple[str, Adapter | Change]]:
    """The layers, name -> shape of the weight, that an adapter is for, each with its part."""
    if name in layers:
        return [(name, adapter)]
    word = name.replace(".", "_")
    if word in words:
        return [(words[word], adapter)]
    chosen = next((targets for targets in _candidates(word) if layers.keys() >= set(targets)), None)
    if chosen is None:
        return [] if adapter.is_zero else [(name, adapter)]
    sizes = [layers[target][-1] for target in chosen]
    if len(chosen) == 1:
        is_swapped = _SWAPPED.fullmatch(chosen[0]) and adapter.outputs == sizes[0] == 2 * layers[chosen[0]][0]
        return [(chosen[0], adapter.take(np.roll(np.arange(sizes[0]), sizes[0] // 2)) if is_swapped else adapter)]
    if sum(sizes) != adapter.outputs:
        raise InputError(
            f"the adapter of {name} has {adapter.outputs} outputs, but the layers {', '.join(chosen)} of the {kind}"
            f" have {sum(sizes)} together: the adapter is of another model",
            code="lora-misfit",
        )
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    return [(target, adapter.take(outputs)) for target, outputs in zip(chosen, rows, strict=True)]


def _candidates(word: str) -> list[tuple[str, ...]]:
    """The layers here, in the order of its outputs, that an original name, with underscores for dots, can mean."""
    for pattern, prefix, names in _BLOCKS:
        match = re.match(pattern, word)
        if match and word[match.end() :] in names:
            start = prefix.format(*match.groups())
            return [tuple(start + one for one in names_here.split()) for names_here in names[word[match.end() :]]]
    return []
