"""Images as the networks were trained on them: resized, cropped and normalised as published.

The host resizes and crops through transformers' PIL image processors, and passes bytes. The device normalises them
with a table of the 256 values of a byte in each channel: equal to the published processor to the last bit, and a
quarter of the data crosses to it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import memory
from winobench.base.errors import InputError
from winobench.data import images as image_files

# Of the images that OpenAI trained on. All published descendants keep them.
OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)

# Names of processors in preprocessor_config.json, by family; "FeatureExtractor" is their name before 2023.
_NAMES = {
    "clip": ("CLIPImageProcessor", "CLIPFeatureExtractor"),
    "blip": ("BlipImageProcessor", "BlipFeatureExtractor"),
    "siglip": ("SiglipImageProcessor", "SiglipFeatureExtractor"),
    "qwen2_vl": ("Qwen2VLImageProcessor", "Qwen2_5_VLImageProcessor"),
}
_KINDS = ("image_processor_type", "feature_extractor_type")
# Names of the pair of an image processor and a tokenizer.
_PAIRS = {
    "clip": ("CLIPProcessor", "LlavaProcessor"),
    "blip": ("BlipProcessor", "Blip2Processor", "InstructBlipProcessor"),
    "siglip": ("SiglipProcessor", "Siglip2Processor"),
    "qwen2_vl": ("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"),
}
# How far white is from black once normalised, 2 to 4 in published processors, and how far both may be from 0.
_LEAST_SPAN, _LARGEST = 0.1, 1000.0
_SWITCHES = ("do_convert_rgb", "do_resize", "do_rescale", "do_normalize")
_OPTIONS = ("size", "crop_size", "resample", "rescale_factor", "image_mean", "image_std")
# Padding makes the images of a batch equally large. These are already.
_NO_EFFECT = frozenset({"do_pad", "pad_size", "size_divisor", "data_format", "return_tensors"})
_INTERPOLATIONS = {"bicubic": 3, "bilinear": 2, "random": 3}
BYTES_OF_A_PIXEL = 3 + 3 * 4  # as bytes on the host, and as float32 on the device


@dataclasses.dataclass(frozen=True)
class ImageProcessor:
    """How an image becomes the input of a network. Hashable; ``dataclasses.asdict`` describes it whole."""

    resize: int | tuple[int, int]  # the shortest side in pixels, the other keeping the shape, or (height, width)
    crop: tuple[int, int] | None = None  # (height, width) of the middle; None keeps all, which needs a fixed resize
    mean: tuple[float, float, float] = OPENAI_MEAN  # of values in [0, 1]
    std: tuple[float, float, float] = OPENAI_STD
    resample: int = 3  # PIL's number of the filter, here bicubic
    rescale: float = 1 / 255
    # Where the crop begins if the margin is odd: "down" (transformers) or "nearest", halves to even (OpenCLIP).
    crop_rounding: str = "down"

    def __post_init__(self):
        sides = (self.resize,) if isinstance(self.resize, int) else self.resize
        if not all(_is_count(side) for side in sides) or len(sides) > 2:
            raise InputError(
                f"the size of images is {self.resize!r}, but must be one or two positive whole numbers",
                code="out-of-range",
            )
        if self.crop is None and isinstance(self.resize, int):
            raise InputError(
                f"images are resized to {self.resize} pixels on their shortest side and not cropped, which leaves them"
                " of different sizes: give a crop size, or height and width",
                code="images-not-cropped",
            )
        if self.crop is not None:
            if len(self.crop) != 2 or not all(_is_count(side) for side in self.crop):
                raise InputError(
                    f"the crop size is {self.crop!r}, but must be two positive whole numbers", code="out-of-range"
                )
            if max(self.crop) > min(sides):
                raise InputError(
                    f"images are resized to {self.resize}, which is less than the crop {self.crop}",
                    code="crop-larger-than-image",
                )
        height, width = self.resize if isinstance(self.resize, tuple) else (self.resize, self.resize)
        memory.check(
            f"an image of {height:,} x {width:,} pixels, as the processor's configuration has it,",
            height * width * BYTES_OF_A_PIXEL,
            "correct its size or crop size",
        )
        check_normalization(self.rescale, self.mean, self.std, self.resample)

    @classmethod
    def from_config(cls, family: str, options: Mapping[str, Any]) -> Self:
        """Reads the contents of a ``preprocessor_config.json`` of transformers."""
        with one_sentence():
            described = official(family, options, _OPTIONS, ("do_center_crop",))
            named = options.get("size")
            if isinstance(named, Mapping) and set(named) not in ({"shortest_edge"}, {"height", "width"}):
                raise _unsupported("size", dict(named), "must be shortest_edge, or height and width")
            size, crop = described.size, described.crop_size
            resize = size.shortest_edge if size.shortest_edge else (size.height, size.width)
            cropped = options.get("do_center_crop", family == "clip")
            if not isinstance(cropped, bool):
                raise _unsupported("do_center_crop", cropped, "must be true or false")
            crop = (crop.height, crop.width) if cropped and crop is not None else None
            return cls(resize, crop, **arithmetic(described))

    @classmethod
    def from_open_clip(cls, options: Mapping[str, Any], image_size: int | tuple[int, int]) -> Self:
        """Reads the ``preprocess_cfg`` of an ``open_clip_config.json``. ``image_size`` in pixels wins over ``size``."""
        options = {key: value for key, value in options.items() if value is not None}
        known = {"size", "mode", "mean", "std", "interpolation", "resize_mode", "fill_color"}
        if unknown := sorted(options.keys() - known):
            raise _unknown(unknown[0], options[unknown[0]])
        interpolation, mode = options.get("interpolation", "bicubic"), options.get("resize_mode", "shortest")
        if interpolation not in _INTERPOLATIONS:
            raise _unsupported("interpolation", interpolation, "must be bicubic or bilinear")
        if mode not in ("shortest", "squash"):
            raise _unsupported("resize_mode", mode, "must be shortest or squash")
        if options.get("mode", "RGB") != "RGB":
            raise _unsupported("mode", options["mode"], "must be RGB")
        height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
        if mode == "shortest" and height != width:
            raise InputError(
                f"unsupported image size {height} x {width}: only squares are cut out of resized images",
                code="unsupported-option",
            )
        return cls(
            resize=(height, width) if mode == "squash" else height,
            crop=None if mode == "squash" else (height, width),
            mean=_three("mean", options.get("mean", OPENAI_MEAN)),
            std=_three("std", options.get("std", OPENAI_STD)),
            resample=_INTERPOLATIONS[interpolation],
            crop_rounding="nearest",
        )

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the results in pixels."""
        if self.crop is not None:
            return self.crop
        return self.resize if isinstance(self.resize, tuple) else (self.resize, self.resize)

    @property
    def blank(self) -> np.ndarray:
        """An example of the results."""
        return np.zeros((*self.size, 3), np.uint8)

    def __call__(self, image: Any) -> np.ndarray:
        """Resizes and crops an image. Returns uint8 [height, width, 3], RGB."""
        pixels = np.moveaxis(self._opened(image), -1, 0)
        if isinstance(self.resize, int):
            self._check_resized(self.resize, pixels.shape[1:])
        resizing = _processor(self.resize)
        pixels = np.moveaxis(resizing.resize(pixels, resizing.size, self.resample), 0, -1)
        if self.crop is not None:
            top, left = (self._margin(have - want) for have, want in zip(pixels.shape, self.crop, strict=False))
            pixels = pixels[top : top + self.crop[0], left : left + self.crop[1]]
        return np.ascontiguousarray(pixels)

    def _opened(self, image: Any) -> np.ndarray:
        """The image before it is resized: uint8 [height, width, 3]."""
        return np.asarray(image_files.open_image(image), np.uint8)

    @staticmethod
    def _check_resized(shorter: int, sides: tuple[int, ...]) -> None:
        """Refuses an image whose longer side would not fit into memory once the shorter one is resized."""
        longer = shorter * max(sides) // min(sides)
        memory.check(
            f"an image of {sides[0]:,} x {sides[1]:,} pixels, resized to {shorter:,} x {longer:,},",
            shorter * longer * BYTES_OF_A_PIXEL,
            "cut off what is not needed of its longer side",
        )

    def _margin(self, surplus: int) -> int:
        return surplus // 2 if self.crop_rounding == "down" else round(surplus / 2)

    @functools.cached_property
    def table(self) -> np.ndarray:
        """The normalised value of each byte in each channel: float32 [256, 3]."""
        return byte_table(self.rescale, self.mean, self.std)

    def normalize(self, pixels: jax.Array) -> jax.Array:
        """Normalises uint8 [..., 3] to float32 [..., 3]. Pure: call it inside of `jax.jit`."""
        return jnp.asarray(self.table)[pixels.astype(jnp.int32), jnp.arange(3)]


class OnSquare(ImageProcessor):
    """An `ImageProcessor` that first puts an image into the middle of a square of the mean colour.

    As LLaVA 1.5's own code does (``image_aspect_ratio="pad"``).
    """

    def _opened(self, image: Any) -> np.ndarray:
        pixels = super()._opened(image)
        height, width, _ = pixels.shape
        side = max(height, width)
        memory.check(
            f"an image of {height:,} x {width:,} pixels, filled up to a square,",
            side * side * 3,
            "cut off what is not needed of its longer side",
        )
        square = np.empty((side, side, 3), np.uint8)
        square[:] = [int(255 * value) for value in self.mean]
        top, left = (side - height) // 2, (side - width) // 2
        square[top : top + height, left : left + width] = pixels
        return square


@functools.lru_cache(maxsize=8)
def _processor(resize: int | tuple[int, int]) -> Any:
    """An official processor with a target size. Its other settings are passed to its methods."""
    size = {"shortest_edge": resize} if isinstance(resize, int) else {"height": resize[0], "width": resize[1]}
    return official_class("clip")(size=size)


def arithmetic(described: Any) -> dict[str, Any]:
    """The fields of an official processor that it has in common with ours."""
    return {
        "mean": tuple(map(float, described.image_mean)),
        "std": tuple(map(float, described.image_std)),
        "resample": int(described.resample),
        "rescale": float(described.rescale_factor),
    }


def official_class(family: str) -> Any:
    """Transformers' image processor of a family, without torch."""
    import transformers

    return {
        "clip": transformers.CLIPImageProcessorPil,
        "blip": transformers.BlipImageProcessorPil,
        "siglip": transformers.SiglipImageProcessorPil,
        "qwen2_vl": transformers.Qwen2VLImageProcessorPil,
    }[family]


def official(family: str, options: Mapping[str, Any], passed_on: Sequence[str], others: Sequence[str] = ()) -> Any:
    """Transformers' image processor as a ``preprocessor_config.json`` describes it."""
    for name in map(options.get, _KINDS):
        if name is not None and str(name).removesuffix("Fast").removesuffix("Pil") not in _NAMES[family]:
            raise InputError(
                f"the image processor is a {name}, not a {_NAMES[family][0]}", code="wrong-kind-of-processor"
            )
    if (pair := options.get("processor_class")) is not None and pair not in _PAIRS[family]:
        raise InputError(
            f"the processor_class is {pair!r}, not {' or '.join(_PAIRS[family])}", code="wrong-kind-of-processor"
        )
    for key in ("resample", "rescale_factor", "image_mean", "image_std"):
        values = options.get(key, 0)
        for value in values if isinstance(values, list | tuple) else (values,):
            if isinstance(value, bool) or not isinstance(value, int if key == "resample" else int | float):
                raise _unsupported(key, values, "must be a number")
    for key, value in options.items():
        # SigLIP 2 leaves it to its users whether images are made RGB. Here they always are.
        if key in _SWITCHES and value is not True and not (key == "do_convert_rgb" and value is None):
            raise _unsupported(key, value, "must be true")
        if not (
            key in (*_SWITCHES, *_KINDS, "processor_class", *passed_on, *others)
            or key in _NO_EFFECT
            or key.startswith("_")
        ):
            raise _unknown(key, value)
    return official_class(family)(**{key: options[key] for key in passed_on if key in options})


def _unsupported(name: str, value: Any, what: str) -> InputError:
    return InputError(f"unsupported option {name}={value!r}: it {what}", code="unsupported-option")


def _unknown(name: str, value: Any) -> InputError:
    return InputError(f"unknown option {name}={value!r}. Remove it if it is idle", code="unknown-option")


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Makes InputErrors of any error that the library's checks raise."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            str(error).strip().splitlines()[0] if str(error).strip() else repr(error), code="bad-processor"
        ) from error


def check_normalization(rescale: float, mean: Sequence[float], std: Sequence[float], resample: int) -> None:
    """Refuses an unknown filter, and a normalisation that leaves nothing of images, or no numbers, to a network."""
    if resample not in range(6):
        raise InputError(f"resample is {resample!r}, but must be one of PIL's filters, 0 to 5", code="out-of-range")
    if len(mean) != 3 or len(std) != 3 or not all(value > 0 for value in std):
        raise InputError(
            f"the mean {mean!r} and the std {std!r} of pixels must be three numbers each, std above 0",
            code="out-of-range",
        )
    for center, spread in zip(mean, std, strict=True):
        black, white = -center / spread, (255 * rescale - center) / spread
        if not (white - black >= _LEAST_SPAN and max(-black, white, black, -white) <= _LARGEST):
            raise InputError(
                f"rescale_factor={rescale!r}, image_mean={mean!r} and image_std={std!r} turn black into {black:g} and"
                f" white into {white:g}, which are 2 to 4 apart in published processors: get the file again",
                code="out-of-range",
            )


def byte_table(rescale: float, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """The normalised value of each byte in each channel by the published processors' arithmetic: float32 [256, 3]."""
    processor = _processor(1)
    values = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None], (3, 256, 1))
    values = processor.normalize(processor.rescale(values, rescale), list(mean), list(std))
    return np.ascontiguousarray(values[..., 0].T, np.float32)


def _three(name: str, values: Any) -> tuple[float, float, float]:
    """One number for all channels, or three."""
    values = [values] * 3 if isinstance(values, int | float) else values
    if not isinstance(values, list | tuple) or not all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    ):
        raise _unsupported(name, values, "must be three numbers")
    return cast(tuple[float, float, float], tuple(map(float, values)))  # `check_normalization` counts them


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
