"""Images in the forms that the APIs take.

A file goes out byte for byte where its format, size and pixels allow that. Otherwise what a viewer shows on white
becomes a PNG, or a JPEG where that is too large, scaled down to the limits: the same bytes with the same Pillow.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import io

from PIL import Image

from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.data import images
from winobench.runs.requests import InputImage

_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
# Modes in which 8-bit gray levels, palette colours and RGB come. All readers agree on them.
_PLAIN_MODES = ("1", "L", "P", "RGB")
_JPEG_QUALITY = 95
# Images of many questions are read and encoded once.
_KEPT = 8


@dataclasses.dataclass(frozen=True)
class Limits:
    """Images that an API takes: PIL's formats, bytes of a file (a third more in base64), pixels of a side or None."""

    formats: tuple[str, ...]
    largest: int
    longest_side: int | None


@functools.lru_cache(maxsize=_KEPT)
def encode(image: InputImage, limits: Limits) -> tuple[str, str]:
    """An image's media type, and its bytes in base64."""
    content = _content(image)
    try:
        with images.opened(io.BytesIO(content)) as opened:
            if _is_sent_unchanged(opened, len(content), limits):
                return _MEDIA_TYPES[opened.format or ""], base64.b64encode(content).decode("ascii")
            decoded = images.upright(images.to_rgb(opened), images.orientation(opened))
    except images.ImageProblem as problem:
        raise InputError(
            f"the image {image.path} cannot be decoded ({problem}): restore or remove it", code=problem.code
        ) from None
    kind, content = _fitted(decoded, limits)
    return _MEDIA_TYPES[kind], base64.b64encode(content).decode("ascii")


def _content(image: InputImage) -> bytes:
    try:
        with images.regular_file(user_path(image.path)) as file:
            content = file.read()
    except FileNotFoundError:
        raise InputError(
            f"no image at {image.path}: correct the path or restore the file", code="no-such-file"
        ) from None
    except (images.ImageProblem, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"the image {image.path} cannot be read ({reason}): see to it", code="cannot-read") from None
    if hashlib.sha256(content).hexdigest() != image.sha256:
        raise InputError(
            f"the image {image.path} has changed: its SHA-256 does not begin with {image.sha256[:12]}. Restore it or"
            " begin a new run",
            code="file-changed",
        )
    return content


def _is_sent_unchanged(image: Image.Image, size: int, limits: Limits) -> bool:
    return (
        image.format in limits.formats
        and size <= limits.largest
        and (limits.longest_side is None or max(image.size) <= limits.longest_side)
        and image.mode in _PLAIN_MODES
        and not image.has_transparency_data
        and images.orientation(image) == 1
        and getattr(image, "n_frames", 1) == 1
    )


def _fitted(image: Image.Image, limits: Limits) -> tuple[str, bytes]:
    longest = max(image.size)
    side = longest if limits.longest_side is None else min(longest, limits.longest_side)
    while True:
        scaled = image
        if side < longest:
            size = [max(1, round(length * side / longest)) for length in image.size]
            scaled = image.resize(size, Image.Resampling.LANCZOS)
        for kind, how in (("PNG", {}), ("JPEG", {"quality": _JPEG_QUALITY, "subsampling": 0})):
            file = io.BytesIO()
            scaled.save(file, kind, **how)
            if file.tell() <= limits.largest:
                return kind, file.getvalue()
        side = side * 3 // 4
