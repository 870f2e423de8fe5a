"""Images from files, PIL or arrays: the one place where images enter.

For every source, the result is what a viewer shows on a white page, in 8-bit RGB:

=================  ====================================================================================================
mode or property   rule
=================  ====================================================================================================
1, L, P, RGB       black and white, gray levels, palette colours and RGB as they are. Gray is repeated in all channels
LA, PA, RGBA,      composited on white, and so is a palette index, gray level or colour that is declared transparent;
La, RGBa           an image that is opaque everywhere keeps its exact pixels
CMYK               R = (1 - C)(1 - K), and so on. A CMYK JPEG is inverted, as Adobe's convention wants
YCbCr, HSV         PIL's conversion. YCbCr is JPEG's (BT.601, full range)
LAB                CIELAB under D50, through the sRGB profile
16 bits            the upper 8 of the bits that the file states (16; 12 in some TIFF files)
F (float)          values from 0 to 1 times 255, rounded. Any other value or NaN is refused
I (32 bits)        refused, as nothing states its range. A PGM file of more than 8 bits has 16 and is read as such
EXIF orientation   applied to files, all eight. An image that was made in memory is taken as it stands
several frames     the first frame, page or image. Of an open PIL image its current one
ICC profiles       ignored (published code ignores them, too)
arrays             uint8 [height, width, 3]. Others are refused, as nothing states their range
=================  ====================================================================================================

The published code calls ``convert("RGB")``: it drops alpha, clips 16 bits and ignores the orientation. Files in plain
8-bit RGB or gray, or with an alpha channel that is opaque, come out the same.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import numpy as np
from PIL import Image, ImageCms, ImageFile, UnidentifiedImageError

from winobench.base.errors import InputError
from winobench.base.files import known_kind, user_path

# A path, a PIL image, a uint8 array [height, width, 3], or an object with ``open() -> PIL.Image`` and ``content_hash``
# (its `image_hash`), which need not be decoded to be distinguished from others.
ImageSource = Any

# The average image. Resized, it is the same in every size.
GRAY_IMAGE = np.full((64, 64, 3), 128, np.uint8)
GRAY_IMAGE.setflags(write=False)

# PIL's names of the formats that are read. None of them starts a program, as EPS does, or opens further files.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF", "PPM")

# Of the largest image, 8192 x 8192: at 4 bytes a pixel and one copy it takes 512 MiB in each thread that reads.
MAX_PIXELS = 2**26
MAX_FILE_BYTES = 2**30  # more than MAX_PIXELS take without compression
_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_TEXTS = (b"tEXt", b"zTXt", b"iTXt", b"iCCP")
_PNG_PIXELS = (b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"sBIT")
_PNG_ORIENTATION = (b"Raw profile type exif\0", b"XML:com.adobe.xmp\0")
_FAST = 1  # of PNG: a third of the time, for files that are a little larger
_HEAD = 1024  # enough bytes for the kind of a file
_TIFF_BITS, _TIFF_PHOTOMETRIC, _TIFF_TILE_SIDES = 258, 262, (322, 323)
_TIFF_SUBFILE, _DNG_VERSION = 254, 50706
_WHITE_IS_ZERO = 0
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_CONVERTED = ("RGB", "RGBX", "CMYK", "YCbCr", "HSV")
_WITH_ALPHA = ("LA", "PA", "La", "RGBA", "RGBa")
_KINDS = {
    stat.S_ISDIR: "is a folder",
    stat.S_ISFIFO: "is a named pipe",
    stat.S_ISSOCK: "is a socket",
    stat.S_ISCHR: "is a device",
    stat.S_ISBLK: "is a device",
}
_MOST_LETTERS = 200


class ImageProblem(ValueError):
    """Why an image cannot be used, in a few words that do not name it."""

    def __init__(self, reason: str, *, code: str = "undecodable-image"):
        super().__init__(reason)
        self.code = code


def open_image(source: Any) -> Image.Image:
    """Opens and decodes an `ImageSource` by the rules of this module."""
    if isinstance(source, Image.Image) or getattr(source, "content_hash", None):
        try:
            with _problems():
                image = source if isinstance(source, Image.Image) else source.open()
            return _from_pil(image)
        except ImageProblem as problem:
            raise InputError(
                f"the image {_shown(repr(source))} cannot be decoded ({problem}): open it again, or pass its path",
                code=problem.code,
            ) from None
    if isinstance(source, str | os.PathLike):
        name = _shown(os.fsdecode(source))
        try:
            with regular_file(user_path(source)) as file, opened(file) as image:
                return upright(to_rgb(image), orientation(image))
        except FileNotFoundError:
            raise InputError(
                f"there is no image at {name}: correct the path or restore the file", code="no-such-file"
            ) from None
        except (ImageProblem, OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            code = error.code if isinstance(error, ImageProblem | InputError) else "undecodable-image"
            raise InputError(
                f"the image {name} cannot be decoded ({reason}): restore or remove it", code=code
            ) from None
    try:
        array = np.asarray(source)
    except Exception as error:  # an object's own conversion may raise anything
        raise InputError(
            f"an image cannot be a {type(source).__name__}: pass a path, a PIL image or an array", code="wrong-type"
        ) from error
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise InputError(
            f"an image given as an array must be uint8 [height, width, 3], not {array.dtype} {list(array.shape)}:"
            " convert it, for instance values from 0 to 1 by numpy.rint(255 * array).astype(numpy.uint8)",
            code="wrong-shape",
        )
    try:
        _check_size((array.shape[1], array.shape[0]))
    except ImageProblem as problem:
        raise InputError(f"an image given as an array {problem}: scale it down", code=problem.code) from None
    return Image.fromarray(array)


def as_png(path: str | os.PathLike, content: bytes, grid: tuple[int, int] = (1, 1)) -> list[tuple[bytes, list[int]]]:
    """A file's image by the rules of this module, as RGB PNG files, with the corners of each in it.

    A PNG file in RGB whose pixels any reader sees in the same way keeps its bytes.

    Args:
      path: of the file, for errors.
      content: of the file.
      grid: columns and rows of images in it, which are cut out row by row. Pixels that are over are left out.

    Raises:
      InputError: as `open_image`, or the image has fewer pixels than the grid.
    """
    try:
        with opened(io.BytesIO(content)) as image:
            if grid == (1, 1) and image.format == "PNG" and keeps_pixels(image):
                return [(content, [0, 0, *image.size])]
            whole = upright(to_rgb(image), orientation(image))
    except ImageProblem as problem:
        raise InputError(
            f"the image {_shown(os.fsdecode(path))} cannot be decoded ({problem}): restore or remove it",
            code=problem.code,
        ) from None
    columns, rows = grid
    width, height = whole.width // columns, whole.height // rows
    if not width or not height:
        raise InputError(
            f"the image {_shown(os.fsdecode(path))} has {whole.width} x {whole.height} pixels, too few for a grid of"
            f" {columns}x{rows}: name another --grid",
            code="wrong-shape",
        )
    parts = []
    for row, column in itertools.product(range(rows), range(columns)):
        corners = [column * width, row * height, (column + 1) * width, (row + 1) * height]
        buffer = io.BytesIO()
        whole.crop((corners[0], corners[1], corners[2], corners[3])).save(buffer, "PNG", compress_level=_FAST)
        parts.append((buffer.getvalue(), corners))
    return parts


def load_image(source: Any, size: int) -> np.ndarray:
    """Reads an image and resizes it without cropping, as published (PIL's bicubic): uint8 [size, size, 3], RGB."""
    image = open_image(source)
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(image, np.uint8)


def image_hash(source: Any) -> str:
    """SHA-256 of the decoded pixels and their size, in hexadecimal: the same for a file and for its array."""
    known = getattr(source, "content_hash", None)
    if known is not None:
        return known
    array = np.asarray(open_image(source), np.uint8)
    digest = hashlib.sha256(repr(array.shape).encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def file_sha256(path: str | os.PathLike) -> str:
    """SHA-256 of an image file's content, in hexadecimal. Raises InputError as `open_image` does."""
    try:
        with regular_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError):
        open_image(path)  # which names the fault
        raise


@contextlib.contextmanager
def regular_file(path: str | os.PathLike) -> Iterator[io.BufferedReader]:
    """Opens a file for reading if it is one. Never waits for the writer of a named pipe, and reads no device."""
    _check_kind(os.stat(path))  # before opening, which alone can already act on a device
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        _check_kind(status)
        if not status.st_size:
            raise ImageProblem("is empty", code="empty-file")
        if status.st_size > MAX_FILE_BYTES:
            raise ImageProblem(
                f"has {status.st_size / 1e9:.1f} GB, more than the {MAX_FILE_BYTES / 1e9:.1f} GB read", code="too-large"
            )
        yield file


@contextlib.contextmanager
def opened(file: BinaryIO, formats: tuple[str, ...] = FORMATS) -> Iterator[Image.Image]:
    """A PIL image of a file's first image, decoded, in the file's own mode and not yet turned upright."""
    with contextlib.ExitStack() as stack:
        with _problems():
            image = stack.enter_context(_identified(_without_texts(file), formats))
            _check_size(image.size)
            _check_tiles(image)
            _check_whole(image)
            image.load()
        yield image


def _identified(file: BinaryIO, formats: tuple[str, ...]) -> Image.Image:
    """A PIL image. The first bytes of a file that is not one tell its kind."""
    identity = known_kind(file.read(_HEAD))
    file.seek(0)
    try:
        image = Image.open(file, formats=formats)
        # Some raw files of cameras are TIFF files with a preview.
        if identity is None or image.format != "TIFF":
            return image
    except UnidentifiedImageError:
        if identity is None:
            raise
    kind, advice = identity
    raise ImageProblem(f"is {kind}: {advice}", code="not-an-image")


def _without_texts(file: BinaryIO) -> BinaryIO:
    """A PNG file without colour profiles and texts, except texts that may hold the orientation. Others as they are."""
    if file.read(len(_PNG)) != _PNG:
        file.seek(0)
        return file
    chunks, is_whole = [_PNG], True
    for header, body in _chunks(file):
        is_used = header[4:] not in _PNG_TEXTS or body.startswith(_PNG_ORIENTATION)
        is_whole &= is_used
        if is_used:
            chunks += [header, body]
    file.seek(0)
    return file if is_whole else io.BytesIO(b"".join(chunks))


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The length and kind of each chunk of a PNG file behind its signature, and its body with the checksum."""
    while header := file.read(8):
        yield header, file.read(min(int.from_bytes(header[:4], "big"), MAX_FILE_BYTES) + 4)


def pixels_alone(content: bytes) -> bytes:
    """A PNG file with its pixels and their colours alone: no texts, EXIF data or other chunks. Others as they are."""
    file = io.BytesIO(content)
    if file.read(len(_PNG)) != _PNG:
        return content
    kept = (header + body for header, body in _chunks(file) if header[4:] in _PNG_PIXELS)
    return b"".join([_PNG, *kept])


def to_rgb(image: Image.Image) -> Image.Image:
    """The pixels of a decoded PIL image in 8-bit RGB, by the rules of this module."""
    with _problems():
        mode = image.mode
        if mode in _SIXTEEN_BITS or (mode == "I" and image.format == "PPM"):
            return _from_sixteen_bits(image)
        if mode == "F":
            return _from_floats(image)
        if mode == "LAB":
            return cast(Image.Image, ImageCms.applyTransform(image, _lab_to_rgb()))  # None only in place
        if mode in _WITH_ALPHA or (mode in ("1", "L", "P", "RGB") and image.has_transparency_data):
            return _on_white(image)
        if mode in ("1", "L", "P") or mode in _CONVERTED:
            return image.convert("RGB")
        what = "whole numbers of 32 bits, whose range nothing states" if mode == "I" else f"pixels of mode {mode}"
        raise ImageProblem(f"has {what}: convert it to 8 bits", code="unknown-range")


def orientation(image: Image.Image) -> int:
    """The EXIF orientation of a decoded file, 1 to 8; 1 for images made in memory and where none can be read."""
    if not isinstance(image, ImageFile.ImageFile):
        return 1
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # broken metadata fail in many ways and take nothing from the pixels
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Turns and mirrors an image as its EXIF orientation says."""
    return image if orientation == 1 else image.transpose(_TURNS[orientation])


def keeps_pixels(image: Image.Image) -> bool:
    """Whether a decoded image is RGB as it stands, so that any reader of its bytes sees what `open_image` gives."""
    return image.mode == "RGB" and not image.has_transparency_data and orientation(image) == 1


def _from_pil(image: Any) -> Image.Image:
    if not isinstance(image, Image.Image):
        raise ImageProblem(f"open() gave a {type(image).__name__}, not a PIL image", code="wrong-type")
    # A JPEG file with more images behind the first is MPO once it is open.
    if image.format not in (None, "MPO", *FORMATS):
        # Decoding may not have begun, and for EPS it starts a program.
        raise ImageProblem(
            f"is of format {image.format}, which is not read: convert it first", code="unsupported-file-format"
        )
    _check_size(image.size)
    with _problems():
        _check_tiles(image)
        image.load()
    return upright(to_rgb(image), orientation(image))


def _from_sixteen_bits(image: Image.Image) -> Image.Image:
    """Gray levels of 16 bits, or of fewer where a TIFF file states so."""
    tags = _tags(image)
    bits = tags.get(_TIFF_BITS, 16)
    bits = int(bits[0] if isinstance(bits, tuple) else bits)
    values = np.asarray(image)
    gray = np.clip(values >> (bits - 8) if bits > 8 else values, 0, 255).astype(np.uint8)
    if tags.get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
        gray = 255 - gray
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        gray = np.where(values == transparent, np.uint8(255), gray)
    return Image.fromarray(gray).convert("RGB")


def _from_floats(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    # NaN compares as false.
    if not (values.min() >= 0 and values.max() <= 1):
        raise ImageProblem(
            "has floating-point pixels that are not all from 0 to 1: convert it to 8 bits", code="unknown-range"
        )
    if _tags(image).get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
        values = 1 - values
    return Image.fromarray(np.rint(values * 255).astype(np.uint8)).convert("RGB")


@functools.cache
def _lab_to_rgb() -> Any:
    return ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")


def _on_white(image: Image.Image) -> Image.Image:
    transparent = image.info.get("transparency")
    if image.mode == "RGB" and isinstance(transparent, tuple) and max(transparent) > 255:
        # A PNG file of 16 bits a channel: PIL keeps the upper 8 of the pixels, but all of this colour.
        image = image.copy()
        image.info["transparency"] = tuple(value >> 8 for value in transparent)
    if image.mode == "La":
        image = image.convert("LA")
    with_alpha = image.convert("RGBA")
    if with_alpha.getchannel("A").getextrema()[0] == 255:
        # Not composited, so that not even a rounding can change a pixel.
        return with_alpha.convert("RGB")
    white = Image.new("RGBA", with_alpha.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, with_alpha).convert("RGB")


def _tags(image: Image.Image) -> Any:
    return getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}


def _check_kind(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS.items() if is_kind(status.st_mode)), "is not a file")
        raise ImageProblem(kind, code="not-a-file")


def _check_size(size: tuple[int, int]) -> None:
    width, height = size
    if not (width and height):
        raise ImageProblem(f"has no pixels ({width} x {height})", code="empty-file")
    if width * height > MAX_PIXELS:
        raise ImageProblem(
            f"has {width} x {height} pixels, more than the {MAX_PIXELS:,} that are decoded", code="too-many-pixels"
        )


def _check_tiles(image: Image.Image) -> None:
    """A TIFF file's tiles are allocated whole, however small the image is."""
    width, height = (_tags(image).get(tag, 0) for tag in _TIFF_TILE_SIDES)
    if isinstance(width, int) and isinstance(height, int) and width * height > MAX_PIXELS:
        raise ImageProblem(
            f"has tiles of {width} x {height} pixels, more than the {MAX_PIXELS:,} that are decoded",
            code="too-many-pixels",
        )


def _check_whole(image: Image.Image) -> None:
    """The first page of many cameras' raw files, which are TIFF files, is a small preview."""
    tags = _tags(image)
    subfile = tags.get(_TIFF_SUBFILE, 0)
    if _DNG_VERSION in tags or (isinstance(subfile, int) and subfile & 1):
        raise ImageProblem(
            "is a camera's raw file, or begins with a preview: develop it to PNG or JPEG", code="not-an-image"
        )


@contextlib.contextmanager
def _problems() -> Iterator[None]:
    """What PIL raises depends on where a file is broken: all of it is one problem of the image."""
    try:
        yield
    except (ImageProblem, InputError):
        raise
    except UnidentifiedImageError:
        raise ImageProblem("is not an image", code="not-an-image") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageProblem(
            f"declares more pixels than the {MAX_PIXELS:,} that are decoded", code="too-many-pixels"
        ) from None
    except (Exception, SystemExit) as error:  # of an object's own open(), too
        raise ImageProblem(_shown(" ".join(str(error).split())) or type(error).__name__) from error


def _shown(text: str) -> str:
    """A name or reason as a message can show it: printable, and not without end."""
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
