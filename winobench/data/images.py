"""Images from files, PIL or arrays, as the scorers want them."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from winobench.errors import InputError

# A path, a PIL image, a uint8 array [height, width, 3], or an object with ``open() -> PIL.Image`` and ``content_hash``
# (what `image_hash` says of it), which need not be decoded to be told from others.
ImageSource = Any

GRAY_IMAGE = np.full((64, 64, 3), 128, np.uint8)
"""The average image; resized, it is the same in every size."""
GRAY_IMAGE.setflags(write=False)


def open_image(source: Any) -> Image.Image:
    """Opens and decodes an image.

    Args:
      source: a path, a PIL image, a uint8 array [height, width, 3], or an object that knows its ``content_hash`` and
        has ``open() -> PIL.Image``.

    Returns:
      A PIL image in RGB.

    Raises:
      InputError: the file is missing or cannot be decoded, or the array has another shape or dtype.
    """
    if isinstance(source, Image.Image):
        return source.convert("RGB")
    if hasattr(source, "content_hash"):
        return source.open().convert("RGB")
    if isinstance(source, str | os.PathLike):
        try:
            with Image.open(source) as image:
                return image.convert("RGB")
        except FileNotFoundError:
            raise InputError(
                f"there is no image at {os.fspath(source)}: correct the path or restore the file"
            ) from None
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise InputError(
                f"the image {os.fspath(source)} cannot be decoded ({error}): restore or remove it"
            ) from None
    array = np.asarray(source)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise InputError(
            f"an image given as an array must be uint8 [height, width, 3], not {array.dtype} {list(array.shape)}"
        )
    return Image.fromarray(array)


def load_image(source: Any, size: int) -> np.ndarray:
    """Reads an image and resizes it to a square without cropping, as the published code does (PIL's bicubic).

    Args:
      source: as in ``open_image``.
      size: height and width in pixels; an image that has them already is not resampled.

    Returns:
      uint8 [size, size, 3], RGB.

    Raises:
      InputError: as in ``open_image``.
    """
    image = open_image(source)
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(image, np.uint8)


def image_hash(source: Any) -> str:
    """SHA-256 of the decoded pixels and their size, in hexadecimal: the same for a file and for its array.

    An object that knows its ``content_hash`` is not decoded.

    Raises:
      InputError: as in ``open_image``.
    """
    known = getattr(source, "content_hash", None)
    if known is not None:
        return known
    array = np.asarray(open_image(source), np.uint8)
    digest = hashlib.sha256(repr(array.shape).encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
