"""A vision-language model ahead of time: what VQAScore has on some devices, and the two programs that it runs there.

One sees images, into a table of what all questions about an image share. The other scores pairs of a row of that table
and a question. Both are the scorer's own, of shapes instead of numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from winobench import parallel
from winobench.base import memory
from winobench.checkpoints import vision_language as checkpoints
from winobench.data.patches import PatchProcessor
from winobench.data.processors import ImageProcessor
from winobench.engine import tables
from winobench.models import functional, vision_language
from winobench.models.blip_2_config import (
    Blip2QFormerConfig,
    Blip2VisionConfig,
    InstructBlipQFormerConfig,
    InstructBlipVisionConfig,
)
from winobench.models.config import NetworkConfig
from winobench.models.decoder_config import DecoderConfig
from winobench.models.llava import LlavaVisionConfig
from winobench.models.opt_config import OPTConfig
from winobench.models.t5_config import T5Config
from winobench.models.vision_language import PromptForm, VisionLanguageNetwork
from winobench.planning.programs import Program, placed, rows_like
from winobench.scorers import pairs, vqa_score

IMAGE, PAIR = "image", "pair"
"""The nouns of the two programs."""

# Config of a part -> the fields that say how many layers, all alike, it has.
_DEPTHS: dict[type[NetworkConfig], tuple[str, ...]] = {
    Blip2QFormerConfig: ("num_hidden_layers",),
    Blip2VisionConfig: ("num_hidden_layers",),
    DecoderConfig: ("num_hidden_layers",),
    InstructBlipQFormerConfig: ("num_hidden_layers",),
    InstructBlipVisionConfig: ("num_hidden_layers",),
    LlavaVisionConfig: ("num_hidden_layers",),
    OPTConfig: ("num_hidden_layers",),
    T5Config: ("num_layers", "num_decoder_layers"),
}
# Which tokens answer makes no difference. A word and the end are two.
_ANSWER = (0, 0)


@dataclasses.dataclass(frozen=True)
class Asked:
    """How long the question is.

    Attributes:
      before: tokens that the language model reads before the image.
      behind: tokens behind it, or of the whole question where the image comes before all of it, with padding.
    """

    before: int
    behind: int

    @classmethod
    def of(cls, form: PromptForm, characters: float, text_tokens: int) -> Asked:
        """That of VQAScore.

        Args:
          form: how the model is spoken to.
          characters: of the question for each of its tokens.
          text_tokens: of the longest text that is asked about.
        """
        before, named, behind = form.question.rpartition(form.image_token)
        tokens = math.ceil((len(behind) - len("{}")) / characters) + text_tokens
        width = min(math.ceil(tokens / pairs.TEXT_STEP) * pairs.TEXT_STEP, form.text_tokens)
        return cls(math.ceil(len(before) / characters) if named else 0, width)


@dataclasses.dataclass(frozen=True)
class Viewer:
    """A `VQAScore` on some devices, not yet compiled.

    Attributes:
      weights: bytes of the parameters on a device.
      rows: of the table of images.
      row: bytes of one of them on a device.
      texts: bytes of the table of questions, which is on every device.
      copies: of the parameters, each of which works on images and pairs of its own.
      sharing: devices of each copy.
      images, pairs: the programs.
    """

    weights: int
    rows: int
    row: int
    texts: int
    copies: int
    sharing: int
    images: Program
    pairs: Program

    @property
    def table(self) -> int:
        """Bytes on a device of both tables."""
        return self.rows * self.row + self.texts

    def needed(self, noun: str, items: int, own: int = 0) -> int:
        """Bytes on a device, at most, while a program runs and what it gives is taken over.

        Args:
          noun: what the program works on.
          items: how many there are on each device.
          own: bytes of the program itself and its temporaries.
        """
        there = self.weights + self.table
        if noun != IMAGE:
            return there + own
        seen = items * self.row
        # What all devices have seen is handed to each (`winobench.parallel.held_by_all`), and becomes one array there.
        handed = items * self.copies * self.row * (self.copies > 1 or self.sharing > 1)
        joined = handed * (self.sharing == 1)
        return there + seen + max(own, handed + joined)


@dataclasses.dataclass(frozen=True)
class _Network:
    """A network of shapes, at its places on the devices."""

    structure: functional.Structure
    params: list[jax.ShapeDtypeStruct]
    processor: ImageProcessor | PatchProcessor

    @classmethod
    def of(cls, config: NetworkConfig, mesh: Mesh, dtype: str) -> _Network:
        """That of a config."""
        graph, state = nnx.split(checkpoints.abstract_vision_language(network_class(config), config, dtype))
        arrays = placed(state, vision_language.parameter_shardings(state, mesh))
        params, tree = jax.tree.flatten(arrays)
        return cls(functional.Structure(graph, tree), params, _processor(config.vision_config))

    def module(self) -> VisionLanguageNetwork:
        """As one object."""
        return self.structure.module(self.params)


def network_class(config: NetworkConfig) -> type[VisionLanguageNetwork]:
    """The network that a config is of."""
    return next(cls for cls in checkpoints.NETWORKS.values() if cls.config_class is type(config))


def block_counts(config: NetworkConfig) -> tuple[int, ...]:
    """How many layers each part of a network has, those of a Q-Former from one that attends to the image to the next.

    Nothing for a network with a part whose layers are not alike.
    """
    found = []
    for _, part in _parts(config):
        if type(part) not in _DEPTHS:
            return ()
        found.append(getattr(part, _DEPTHS[type(part)][0]) // _period(part))
    return tuple(found)


def with_block_counts(config: NetworkConfig, counts: Sequence[int]) -> NetworkConfig:
    """The same network with other numbers of layers, as `block_counts` counts them."""
    changed = {}
    for (name, part), count in zip(_parts(config), counts, strict=True):
        depths = dict.fromkeys(_DEPTHS[type(part)], count * _period(part))
        changed[name] = dataclasses.replace(part, **depths)
    return dataclasses.replace(config, **changed)


def _parts(config: NetworkConfig) -> list[tuple[str, NetworkConfig]]:
    found = ((field.name, getattr(config, field.name)) for field in dataclasses.fields(config))
    return [(name, part) for name, part in found if isinstance(part, NetworkConfig)]


def _period(part: NetworkConfig) -> int:
    return getattr(part, "cross_attention_frequency", 1)


def make_viewer(
    config: NetworkConfig,
    mesh: Mesh,
    asked: Asked,
    *,
    dtype: str = "float32",
    batch_size: int | None = None,
    shallow: Sequence[tuple[tuple[int, ...], NetworkConfig]] = (),
) -> Viewer:
    """What a `VQAScore` has on some devices.

    Args:
      config: the network's.
      mesh: of devices that need not be available.
      asked: how long the question is.
      dtype: see `VQAScore.from_pretrained`.
      batch_size: see `VQAScore`.
      shallow: numbers of blocks and configs that have them, of which the programs are extrapolated.
    """
    batch = batch_size or pairs.PAIRS.on(mesh)
    network = _Network.of(config, mesh, dtype)
    few = [(counts, _Network.of(one, mesh, dtype)) for counts, one in shallow]
    image, text = _seen(network, asked), _question(network, asked)
    rows, text_rows = (pairs.usual_rows(one, batch * parallel.data_parallelism(mesh), mesh) for one in (image, text))
    table = _table(network, image, rows, mesh)

    def program(
        name: str, noun: str, items: int, lower: Callable[[_Network, Asked, Mesh, int], jax.stages.Lowered]
    ) -> Program:
        whole = functools.partial(lower, network, asked, mesh)
        of_few = tuple((counts, functools.partial(lower, one, asked, mesh)) for counts, one in few)
        return Program(name, noun, items, whole, block_counts(config) if few else (), of_few)

    return Viewer(
        weights=sum(map(_bytes_there, network.params)),
        rows=rows,
        row=sum(_bytes_there(each) // rows for each in jax.tree.leaves(table)),
        texts=text_rows * memory.of_arrays(text),
        copies=parallel.data_parallelism(mesh),
        sharing=mesh.size // parallel.data_parallelism(mesh),
        images=program("image encoder", IMAGE, pairs.images_at_once(rows, mesh), _lower_images),
        pairs=program("scoring of pairs", PAIR, batch, functools.partial(_lower_pairs, rows, text_rows)),
    )


def _bytes_there(leaf: jax.ShapeDtypeStruct) -> int:
    """Bytes of an array on one of its devices."""
    return math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize


def _processor(tower: NetworkConfig) -> ImageProcessor | PatchProcessor:
    """What makes images for a vision tower: of the one size that it has positions for, or patches of any."""
    if size := getattr(tower, "image_size", None):
        return ImageProcessor(resize=(size, size))
    return PatchProcessor(tower.patch_size, tower.temporal_patch_size, tower.spatial_merge_size)


def _image_function(network: _Network, asked: Asked) -> Any:
    return vqa_score.image_function(network.structure, network.processor, (0,) * asked.before)


def _pixels(network: _Network) -> Any:
    """An image as the processor makes it, as shapes [1, ...]."""
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct((1, *array.shape), array.dtype), network.processor.blank)


def _question(network: _Network, asked: Asked) -> tuple[jax.ShapeDtypeStruct, ...]:
    """A question as a row of the table of texts."""
    return (jax.ShapeDtypeStruct((1, asked.behind + 1), np.int32),) * (1 + network.module().reads_text)


def _seen(network: _Network, asked: Asked) -> Any:
    """What is kept of an image, as shapes [1, ...]."""
    return jax.eval_shape(_image_function(network, asked), network.params, _pixels(network))


def _table(network: _Network, image: Any, rows: int, mesh: Mesh) -> Any:
    """The table of images at its place."""
    spec = network.module().image_spec(mesh.shape.get(parallel.MODEL_AXIS, 1))
    return rows_like(image, rows, NamedSharding(mesh, spec))


def _lower_images(network: _Network, asked: Asked, mesh: Mesh, items: int) -> jax.stages.Lowered:
    total = items * parallel.data_parallelism(mesh)
    pixels = rows_like(_pixels(network), total, parallel.split_axis(mesh))
    return tables.lower_encoder(_image_function(network, asked), mesh, network.params, pixels)


def _lower_pairs(
    rows: int, text_rows: int, network: _Network, asked: Asked, mesh: Mesh, items: int
) -> jax.stages.Lowered:
    total = items * parallel.data_parallelism(mesh)
    return vqa_score.lower_step(
        network.structure,
        (_ANSWER,),
        mesh,
        vqa_score.image_shapes(network.structure, network.params, *_image_function(network, asked).settings),
        network.params,
        _table(network, _seen(network, asked), rows, mesh),
        rows_like(_question(network, asked), text_rows, parallel.replicated(mesh)),
        jax.ShapeDtypeStruct((2, total), np.int32, sharding=parallel.split_axis(mesh, axis=1)),
    )
