"""A small detector that lists the objects of a CLEVR-style image. It has nothing to do with diffusion.

One number for each cell tells whether an object's centre is in it, and others describe it (objects as points, Zhou et
al. 2019, "Objects as Points", section 3). The network is a short U-Net of residual blocks. Every block adds a function
of the mean over all cells, since sizes are relative to how crowded the image is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.base import registry
from winobench.base.errors import InputError
from winobench.models import layers
from winobench.models.base import Network, linear
from winobench.models.config import NetworkConfig

if TYPE_CHECKING:
    from winobench.clevr.objects import SceneObject

THRESHOLD = 0.4
"""Least confidence of an object that is listed."""

MAX_OBJECTS = 10
"""Most objects that are listed of an image."""

_DOWN = 8  # pixels a place of the coarsest level
_GROUPS = 8
_BATCH = 64
_START = -2.2  # the heat's logit before anything is learned: a tenth, as most cells are empty
_MEASURES = 4
# Centres of two objects that are in each other's way are 0.85 of the sum of their radii apart across or down.
_TOO_CLOSE = 0.4


@dataclasses.dataclass(frozen=True)
class ClevrVerifierConfig(NetworkConfig):
    """Shape of the verifier."""

    sample_size: int = 64
    widths: tuple[int, ...] = (32, 64)  # channels at a quarter and at an eighth of the image's height
    num_blocks: tuple[int, ...] = (1, 1, 2)  # on the way down, at the bottom and on the way up
    num_values: tuple[int, ...] = (3, 8, 2, 2)  # of each of `winobench.clevr.objects.ATTRIBUTES`

    _class_value: ClassVar = "ClevrVerifier"

    def __post_init__(self) -> None:
        self._require_positive("sample_size")
        self._require(self.sample_size % _DOWN == 0, "sample_size", f"a multiple of {_DOWN}")
        for key, length in (("widths", 2), ("num_blocks", 3), ("num_values", 4)):
            values = getattr(self, key)
            whole = isinstance(values, tuple) and all(type(v) is int and 1 <= v <= 4_096 for v in values)
            self._require(whole and len(values) == length, key, f"{length} whole numbers from 1 to 4096")
        self._require(all(w % _GROUPS == 0 for w in self.widths), "widths", f"multiples of {_GROUPS}")


class Maps(NamedTuple):
    """Outputs of the verifier for each cell.

    Attributes:
      heat: [B, rows, columns], logit of "an object's centre is in this cell".
      measures: [B, rows, columns, 4]: where in the cell the centre is, to the right and down, in cells from its upper
        left corner. Logarithm of the radius in widths of the image. A quarter of the depth in world units.
      attributes: for each attribute, logits [B, rows, columns, values].
    """

    heat: jax.Array
    measures: jax.Array
    attributes: tuple[jax.Array, ...]


class Detections(NamedTuple):
    """Objects found in one image, the surest first.

    Attributes:
      confidence: float64 [n], from 0 to 1.
      measures: float64 [n, 4]: right, down and radius in widths of the image, depth in world units.
      attributes: int64 [n, attributes], the number of each attribute's value.
    """

    confidence: np.ndarray
    measures: np.ndarray
    attributes: np.ndarray


class _Block(nnx.Module):
    """A residual block with a sight of the whole image."""

    def __init__(self, width: int, **kwargs: Any):
        self.norm1 = layers.GroupNorm(_GROUPS, width, epsilon=1e-5, **kwargs)
        self.conv1 = layers.Conv2d(width, width, 3, padding=1, **kwargs)
        self.context = linear(width, width, **kwargs)
        self.norm2 = layers.GroupNorm(_GROUPS, width, epsilon=1e-5, **kwargs)
        self.conv2 = layers.Conv2d(width, width, 3, padding=1, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, width] -> the same shape."""
        h = nnx.silu(self.norm1(x))
        whole = self.context(h.mean(axis=(1, 2)))
        return x + self.conv2(nnx.silu(self.norm2(self.conv1(h), whole)))


class ClevrVerifier(Network):
    """Images -> maps -> objects."""

    config_class = ClevrVerifierConfig

    def build(self, config: ClevrVerifierConfig, **common: Any) -> None:
        fine, coarse = config.widths
        down, bottom, up = config.num_blocks
        self.conv_in = layers.Conv2d(3, fine // 2, 4, stride=2, padding=1, **common)
        self.conv_half = layers.Conv2d(fine // 2, fine, 4, stride=2, padding=1, **common)
        self.down_blocks = nnx.List([_Block(fine, **common) for _ in range(down)])
        self.conv_down = layers.Conv2d(fine, coarse, 2, stride=2, **common)
        self.mid_blocks = nnx.List([_Block(coarse, **common) for _ in range(bottom)])
        self.conv_up = layers.Conv2d(coarse, 4 * fine, 1, **common)
        self.up_blocks = nnx.List([_Block(fine, **common) for _ in range(up)])
        self.norm_out = layers.GroupNorm(
            _GROUPS, fine, epsilon=1e-5, dtype=common["dtype"], param_dtype=common["param_dtype"]
        )
        self.conv_out = layers.Conv2d(fine, 4 * (1 + _MEASURES + sum(config.num_values)), 1, **common)

    @classmethod
    def from_pretrained(cls, source: Any = registry.CLEVR_VERIFIER, **options: Any) -> Self:
        """Loads a verifier, by default the one that comes with winobench. Arguments as in `Network`."""
        return super().from_pretrained(source, **options)

    def __call__(self, images: jax.Array) -> Maps:
        """Images [B, sample_size, sample_size, 3], from -1 to 1 -> maps of sample_size / 2 cells a side."""
        x = nnx.silu(self.conv_in(images))
        x = self.conv_half(x)
        for block in self.down_blocks:
            x = block(x)
        y = self.conv_down(x)
        for block in self.mid_blocks:
            y = block(y)
        x = x + _finer(self.conv_up(y))
        for block in self.up_blocks:
            x = block(x)
        out = _finer(self.conv_out(nnx.silu(self.norm_out(x)))).astype(jnp.float32)
        ends = np.cumsum([1, _MEASURES, *self.config.num_values])[:-1]
        heat, measures, *attributes = jnp.split(out, ends, axis=-1)
        return Maps(heat[..., 0] + _START, measures, tuple(attributes))

    def objects(
        self, images: np.ndarray | Sequence[np.ndarray], *, threshold: float = THRESHOLD
    ) -> list[list[SceneObject]]:
        """Lists the objects in images.

        Args:
          images: uint8 [n, sample_size, sample_size, 3], or a sequence of such images.
          threshold: least confidence of an object that is listed.

        Returns:
          the objects of each image, from left to right.

        Raises:
          InputError: an image has another size or dtype, or the network gives NaN or infinite numbers.
        """
        from winobench.clevr.objects import ATTRIBUTES, SceneObject

        side = self.config.sample_size
        images = [np.asarray(image) for image in images]
        for number, image in enumerate(images):
            if image.shape != (side, side, 3) or image.dtype != np.uint8:
                raise InputError(
                    f"image {number} is {image.dtype} {list(image.shape)}, but the verifier knows uint8"
                    f" {[side, side, 3]} alone: resize it first"
                )
        listed = []
        for first in range(0, len(images), _BATCH):
            batch = images[first : first + _BATCH]
            padded = np.stack(batch + [batch[-1]] * (_BATCH - len(batch)))
            maps = jax.tree.map(np.asarray, _maps(self, padded))
            if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(maps)):
                raise InputError(
                    "the verifier's maps hold NaN or infinite numbers: get its weights again", code="not-finite"
                )
            for scene in decode(maps, threshold=threshold)[: len(batch)]:
                rows = zip(scene.attributes.tolist(), scene.measures.tolist(), scene.confidence.tolist(), strict=True)
                objects = [
                    SceneObject(*(v[n] for v, n in zip(ATTRIBUTES.values(), numbers, strict=True)), *measures, sure)
                    for numbers, measures, sure in rows
                ]
                listed.append(sorted(objects, key=lambda o: (o.right, o.down)))
        return listed


@nnx.jit
def _maps(network: ClevrVerifier, images: jax.Array) -> Maps:
    return network(images.astype(jnp.float32) / 127.5 - 1.0)


def _finer(x: jax.Array) -> jax.Array:
    """[B, h, w, 4 c] -> [B, 2 h, 2 w, c]: four groups of channels become the four quarters of each place."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height, width, 2, 2, channels // 4)
    return x.swapaxes(2, 3).reshape(batch, 2 * height, 2 * width, channels // 4)


def decode(maps: Maps, *, threshold: float = THRESHOLD) -> list[Detections]:
    """Reads the objects off maps. Pure.

    An object is a cell with at least the heat of its eight neighbours. Of two whose centres are nearer to each
    other than 0.4 of the sum of their radii the surer one stays: objects of a scene are never so near.
    """
    heat = 1.0 / (1.0 + np.exp(-np.asarray(maps.heat, np.float64)))
    _, rows, columns = heat.shape
    border = np.pad(heat, ((0, 0), (1, 1), (1, 1)), constant_values=-1.0)
    around = np.max([border[:, r : r + rows, c : c + columns] for r in range(3) for c in range(3)], axis=0)
    peaks = (heat >= around) & (heat >= threshold)
    values = np.asarray(maps.measures, np.float64)
    winners = np.stack([np.asarray(logits).argmax(axis=-1) for logits in maps.attributes], axis=-1)
    return [_read(heat[n], peaks[n], values[n], winners[n]) for n in range(len(heat))]


def _read(heat: np.ndarray, peaks: np.ndarray, values: np.ndarray, winners: np.ndarray) -> Detections:
    """The objects of one image: its heat, which cells are peaks, and the other maps."""
    row, column = np.nonzero(peaks)
    order = np.argsort(-heat[row, column], kind="stable")
    row, column = row[order], column[order]
    right = (column + values[row, column, 0]) / heat.shape[1]
    down = (row + values[row, column, 1]) / heat.shape[0]
    radius = np.exp(np.minimum(values[row, column, 2], 0.0))
    measures = np.stack([right, down, radius, 4.0 * values[row, column, 3]], axis=-1)
    kept: list[int] = []
    for at in range(len(row)):
        near = np.hypot(right[kept] - right[at], down[kept] - down[at]) < _TOO_CLOSE * (radius[kept] + radius[at])
        if not near.any() and len(kept) < MAX_OBJECTS:
            kept.append(at)
    return Detections(heat[row, column][kept], measures[kept], winners[row, column][kept])


def targets(measured: jax.Array, present: jax.Array, side: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes the maps of true objects. Pure.

    The heat of an object falls off from its centre's cell as a Gaussian, whose deviation is a quarter of the radius
    and at least 0.7 cells. Of several objects the greatest counts. ``places`` are [B, objects, 4], as in `Detections`.
    Returns heat [B, side, side], cells int32 [B, objects, 2], row and column of each centre, and measures as in `Maps`.
    """
    at = measured[..., 1::-1] * side
    cells = jnp.clip(jnp.floor(at), 0, side - 1)
    radius = jnp.where(present, measured[..., 2], 1.0)
    deviation = jnp.maximum(radius * side / 4.0, 0.7)
    numbers = jnp.arange(side)
    rows, columns = (jnp.square(numbers - cells[..., axis, None]) for axis in (0, 1))
    squared = rows[..., :, None] + columns[..., None, :]
    heat = jnp.exp(-squared / (2.0 * jnp.square(deviation))[..., None, None]) * present[..., None, None]
    measures = jnp.concatenate([(at - cells)[..., ::-1], jnp.log(radius)[..., None], measured[..., 3:] / 4.0], axis=-1)
    return heat.max(axis=1), cells.astype(jnp.int32), measures


def loss(
    maps: Maps, measured: jax.Array, attributes: jax.Array, present: jax.Array
) -> tuple[jax.Array, Mapping[str, jax.Array]]:
    """The focal loss of the heat, and of each object's own cell cross-entropies and absolute errors. Pure.

    The focal loss is from Zhou et al. (2019), Eq. 1, with its exponents 2 and 4, over the number of objects.
    """
    heat, cells, measures = targets(measured, present, maps.heat.shape[1])
    number = jnp.maximum(present.sum(), 1)
    log_yes, log_no = jax.nn.log_sigmoid(maps.heat), jax.nn.log_sigmoid(-maps.heat)
    yes = jnp.exp(log_yes)
    focal = jnp.where(heat >= 1.0, jnp.square(1.0 - yes) * log_yes, (1.0 - heat) ** 4 * jnp.square(yes) * log_no)
    batch = jnp.arange(heat.shape[0])[:, None]

    def mean(values: jax.Array) -> jax.Array:
        return jnp.where(present, values, 0.0).sum() / number

    def entropy(logits: jax.Array, truth: jax.Array) -> jax.Array:
        own = jax.nn.log_softmax(logits[batch, cells[..., 0], cells[..., 1]])
        return mean(-jnp.take_along_axis(own, truth[..., None], axis=-1)[..., 0])

    error = jnp.abs(maps.measures[batch, cells[..., 0], cells[..., 1]] - measures).sum(axis=-1)
    parts = {
        "heat": -focal.sum() / number,
        "measures": mean(error),
        "attributes": sum(entropy(logits, attributes[..., n]) for n, logits in enumerate(maps.attributes)),
    }
    return sum(parts.values()), parts
