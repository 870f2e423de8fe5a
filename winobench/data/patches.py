"""Images of any shape as patches, for networks that take each image at its own size: Qwen2-VL and its heirs.

Every image has space for as many patches as the upper bound on pixels allows, so that programs have one shape. The host
resizes and passes bytes, and the device normalises them, as in `winobench.data.processors`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np

from winobench.base import memory, options
from winobench.base.errors import InputError
from winobench.data import images as image_files
from winobench.data import processors

MAX_PIXELS = 1_003_520
"""Pixels of an image beyond which it is made smaller by default: 1,280 squares of 28, as in Qwen2-VL's processor. Files
of Qwen3-VL allow 16,777,216, and then every image would have space for as many: 16 times the work."""

FAMILY = "qwen2_vl"  # the family, as in `ImageProcessor.from_config`

_PASSED_ON = (
    *("size", "min_pixels", "max_pixels", "patch_size", "temporal_patch_size", "merge_size"),
    *("resample", "rescale_factor", "image_mean", "image_std"),
)
_MOST_ELONGATED = 200  # the longer side over the shorter one, in the published code


class Patches(NamedTuple):
    """Images in patches.

    `pixels` [..., N, patch_size * patch_size * 3] has the pixels of a patch row by row, RGB: uint8 from the host,
    float32 once normalised. Squares of merge_size x merge_size patches follow each other row by row, as do the patches
    of a square. Padding follows an image's own. `grid` int32 [..., 2] has an image's own rows and columns of patches.
    """

    pixels: Any
    grid: Any


@dataclasses.dataclass(frozen=True)
class PatchProcessor:
    """How an image becomes patches. Hashable; ``dataclasses.asdict`` describes it whole."""

    patch_size: int = 16  # height and width in pixels
    temporal_patch_size: int = 2  # frames of a patch. A still image is repeated that often
    merge_size: int = 2  # the language model reads squares of so many patches in a row
    min_pixels: int = 256 * 256  # smaller images are enlarged to about as many
    max_pixels: int = MAX_PIXELS  # larger ones are made smaller, to at most as many
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)  # of values in [0, 1]
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    resample: int = 3  # PIL's number of the filter, here bicubic
    rescale: float = 1 / 255

    def __post_init__(self):
        for name in ("patch_size", "temporal_patch_size", "merge_size", "min_pixels", "max_pixels"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(
                    f"{name} is {options.quote(value)}, but it must be a positive whole number", code="out-of-range"
                )
        least = max(self.min_pixels, self.square**2)
        if self.max_pixels < least:
            raise InputError(
                f"max_pixels is {self.max_pixels}, but images have {least} at least (min_pixels, or one square of"
                " patches): allow more",
                code="out-of-range",
            )
        memory.check(
            f"an image of {self.max_pixels:,} pixels (max_pixels)",
            self.max_pixels * processors.BYTES_OF_A_PIXEL,
            "allow fewer",
        )
        processors.check_normalization(self.rescale, self.mean, self.std, self.resample)

    @classmethod
    def from_config(cls, values: Mapping[str, Any], max_pixels: int | None = None) -> Self:
        """Reads a ``preprocessor_config.json`` of transformers.

        ``max_pixels`` may not exceed the file's bound. By default it is that bound, or ``MAX_PIXELS`` if that is less.
        """
        with processors.one_sentence():
            described = processors.official(FAMILY, values, _PASSED_ON)
            least, allowed = described.size.shortest_edge, described.size.longest_edge
            if max_pixels is not None:
                options.whole(least, allowed).check("max_pixels", max_pixels)
            return cls(
                patch_size=described.patch_size,
                temporal_patch_size=described.temporal_patch_size,
                merge_size=described.merge_size,
                min_pixels=least,
                max_pixels=min(allowed, MAX_PIXELS) if max_pixels is None else max_pixels,
                **processors.arithmetic(described),
            )

    @property
    def square(self) -> int:
        """Height and width in pixels of a square of patches, of which an image's sides are multiples."""
        return self.patch_size * self.merge_size

    @property
    def most_patches(self) -> int:
        """Patches of the largest image."""
        return self.max_pixels // self.square**2 * self.merge_size**2

    @property
    def blank(self) -> Patches:
        """An example of the results."""
        shape = (self.most_patches, self.patch_size**2 * 3)
        return Patches(np.zeros(shape, np.uint8), np.full(2, self.merge_size, np.int32))

    def __call__(self, image: Any) -> Patches:
        opened = image_files.open_image(image)
        width, height = opened.size
        if max(opened.size) > _MOST_ELONGATED * min(opened.size):
            raise InputError(
                f"the image {options.quote(image)} has {width} x {height} pixels, but its longer side may be"
                f" {_MOST_ELONGATED} times its shorter one at most: cut off what is not needed of it",
                code="image-too-elongated",
            )
        pixels = np.moveaxis(np.asarray(opened, np.uint8), -1, 0)
        bounds = _size(self.min_pixels, self.max_pixels)
        pixels = _resizing().resize(pixels, bounds, self.resample, self.square)
        rows, columns = (side // self.patch_size for side in pixels.shape[1:])
        if rows * columns > self.most_patches:
            raise InputError(
                f"the image {options.quote(image)} of {width} x {height} pixels has {rows} x {columns} patches once"
                f" resized, more than the {self.most_patches} of max_pixels={self.max_pixels}: allow more pixels",
                code="image-too-elongated",
            )
        tall, wide = ((count // self.merge_size, self.merge_size, self.patch_size) for count in (rows, columns))
        cut = pixels.reshape(3, *tall, *wide)
        result = self.blank
        result.pixels[: rows * columns] = cut.transpose(1, 4, 2, 5, 3, 6, 0).reshape(rows * columns, -1)
        result.grid[:] = rows, columns
        return result

    @functools.cached_property
    def table(self) -> np.ndarray:
        """The normalised value of each byte in each channel: float32 [256, 3]."""
        return processors.byte_table(self.rescale, self.mean, self.std)

    def normalize(self, patches: Patches) -> Patches:
        """The same with normalised float32 pixels. Pure: call it inside of `jax.jit`."""
        channels = np.arange(patches.pixels.shape[-1]) % 3
        values = jnp.asarray(self.table)[patches.pixels.astype(jnp.int32), channels]
        return Patches(values, patches.grid)


@functools.lru_cache(maxsize=8)
def _size(least: int, most: int) -> Any:
    from transformers.image_utils import SizeDict

    return SizeDict(shortest_edge=least, longest_edge=most)


@functools.cache
def _resizing() -> Any:
    """An official processor. Its settings are passed to its methods."""
    return processors.official_class(FAMILY)()
