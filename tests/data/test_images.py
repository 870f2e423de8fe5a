"""Reading images: paths, PIL images, arrays, and what cannot be read."""

import contextlib
import os
import socket
import struct
import types
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin, TiffImagePlugin

from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.data import images


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 256, (12, 20, 3), np.uint8)


def test_path_pil_and_array_are_one_image(image, tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(image).save(path)
    sources = (path, str(path), Image.fromarray(image), Image.fromarray(image).convert("RGBA"), image)
    assert len({images.image_hash(source) for source in sources}) == 1
    for source in sources:
        np.testing.assert_array_equal(images.load_image(source, 8), images.load_image(image, 8))


def test_hash_tells_content_and_shape_apart(image):
    changed = image.copy()
    changed[3, 4, 1] ^= 1
    assert images.image_hash(changed) != images.image_hash(image)
    assert images.image_hash(image.reshape(20, 12, 3)) != images.image_hash(image)


def test_resize_is_pils_bicubic_without_crop(image):
    expected = np.asarray(Image.fromarray(image).resize((16, 16), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(images.load_image(image, 16), expected)
    square = image[:, :12]
    np.testing.assert_array_equal(images.load_image(square, 12), square)


RAMP = np.linspace(0, 1, 4096).reshape(64, 64)
GRAY_MEANS = pytest.approx(127.5, abs=0.6)


def _read_back(image, folder, format, **options):
    path = folder / f"image.{format.lower()}"
    image.save(path, format, **options)
    return np.asarray(images.open_image(path))


def _means(pixels):
    return np.asarray(pixels, np.float64).mean(axis=(0, 1))


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM", None])
def test_gray_of_16_bits_keeps_its_mean(tmp_path, format):
    image = Image.fromarray((RAMP * 65535).astype(np.uint16))
    pixels = np.asarray(images.open_image(image)) if format is None else _read_back(image, tmp_path, format)
    assert pixels.mean() == GRAY_MEANS
    np.testing.assert_array_equal(pixels[..., 0], (RAMP * 65535).astype(np.uint16) >> 8)


def test_gray_of_any_order_of_bytes_and_any_depth(tmp_path):
    for mode, dtype in (("I;16", "<u2"), ("I;16L", "<u2"), ("I;16B", ">u2"), ("I;16N", "=u2")):
        image = Image.frombytes(mode, (64, 64), (RAMP * 65535).astype(dtype).tobytes())
        assert np.asarray(images.open_image(image)).mean() == GRAY_MEANS
    for largest in (255, 1023, 65535):
        levels = (RAMP * largest).astype(">u2" if largest > 255 else "u1").tobytes()
        (tmp_path / "ramp.pgm").write_bytes(b"P5 64 64 %d\n" % largest + levels)
        assert np.asarray(images.open_image(tmp_path / "ramp.pgm")).mean() == GRAY_MEANS
    floats = Image.fromarray(RAMP.astype(np.float32))
    assert np.asarray(images.open_image(floats)).mean() == _read_back(floats, tmp_path, "TIFF").mean() == GRAY_MEANS


def _tiff(values, bits, photometric, sample_format=1):
    """A TIFF file of one strip, by hand: PIL writes none that state fewer than 16 bits, or that white is zero."""
    height, width = values.shape
    data = values.tobytes()
    fields = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 273: 8 + 2 + 10 * 12 + 4}
    fields |= {277: 1, 278: height, 279: len(data), 339: sample_format}
    table = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in fields.items())
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(fields)) + table + bytes(4) + data


def test_tiff_files_in_which_white_is_zero(tmp_path):
    dark = np.full((4, 4), 0.25)
    for bits, kind, values in ((16, 1, (dark * 65535).astype("<u2")), (32, 3, dark.astype("<f4"))):
        for photometric, mean in ((1, 64), (0, 191)):
            (tmp_path / "dark.tif").write_bytes(_tiff(values, bits, photometric, kind))
            assert np.asarray(images.open_image(tmp_path / "dark.tif")).mean() == pytest.approx(mean, abs=1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.01, 1.01])
def test_other_floats_and_integers_of_32_bits_are_refused(value):
    pixels = np.zeros((4, 4), np.float32)
    pixels[1, 2] = value
    with raises("unknown-range", "0", "1", "8"):
        images.open_image(Image.fromarray(pixels))
    with raises("unknown-range", "32"):
        images.open_image(Image.fromarray(np.full((4, 4), 200, np.int32)))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB", "P"])
def test_colours_of_any_mode(mode):
    image = Image.new("RGB", (8, 8), (200, 100, 50))
    if mode == "LAB":
        profiles = (ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"))
        image = ImageCms.applyTransform(image, ImageCms.buildTransform(*profiles, "RGB", "LAB"))
    else:
        image = image.convert(mode, palette=Image.Palette.ADAPTIVE) if mode == "P" else image.convert(mode)
    assert image.mode == mode
    assert _means(images.open_image(image)) == pytest.approx((200, 100, 50), abs=2)


@pytest.mark.parametrize("mode", ["1", "L", "P"])
def test_black_and_white_and_gray(tmp_path, mode):
    image = Image.new("L", (8, 8), 0)
    image.paste(255, (0, 0, 8, 2))
    assert (_means(_read_back(image.convert(mode), tmp_path, "PNG")) == 63.75).all()


@pytest.mark.parametrize("format", ["JPEG", "TIFF"])
def test_cmyk_files(tmp_path, format):
    image = Image.new("RGB", (16, 16), (200, 100, 50)).convert("CMYK")
    assert _means(_read_back(image, tmp_path, format)) == pytest.approx((200, 100, 50), abs=2)


@pytest.mark.parametrize("mode", ["RGBA", "RGBa", "LA", "La", "PA"])
def test_alpha_is_composited_on_white(mode):
    colour = (200, 100, 50) if mode.startswith("RGB") else (100, 100, 100)
    image = Image.new("RGBA", (8, 8), (*colour, 0))
    image.paste((*colour, 255), (0, 0, 8, 2))
    if mode == "PA":  # PIL's own conversion forgets the alpha
        image = Image.frombytes("PA", image.size, image.convert("LA").tobytes())
        image.putpalette([level for level in range(256) for _ in range(3)])
    else:
        image = image.convert("LA").convert(mode) if mode.startswith("L") else image.convert(mode)
    assert image.mode == mode
    expected = [0.75 * 255 + 0.25 * channel for channel in colour]
    assert _means(images.open_image(image)) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("image", "format", "transparent"),
    [
        (Image.new("L", (8, 8), 7), "PNG", 7),
        (Image.new("RGB", (8, 8), (1, 2, 3)), "PNG", (1, 2, 3)),
        (Image.new("P", (8, 8), 3), "PNG", 3),
        (Image.new("P", (8, 8), 3), "PNG", bytes([255, 255, 255, 0])),
        (Image.new("P", (8, 8), 3), "GIF", 3),
        (Image.fromarray(np.full((8, 8), 513, np.uint16)), "PNG", 513),
    ],
)
def test_what_is_declared_transparent_is_white(tmp_path, image, format, transparent):
    if image.mode == "P":
        image.putpalette([0] * 768)
    assert (_read_back(image, tmp_path, format) < 20).all()
    assert (_read_back(image, tmp_path, format, transparency=transparent) == 255).all()


@pytest.mark.parametrize(
    ("format", "orientation"), [*(("JPEG", n) for n in range(1, 9)), *((n, 6) for n in ("PNG", "WEBP", "TIFF"))]
)
def test_every_orientation_is_applied_to_files(tmp_path, format, orientation):
    quarters = np.zeros((32, 48, 3), np.uint8)
    quarters[:16, :24] = (255, 0, 0)
    quarters[16:, 24:] = (0, 0, 255)
    exif = Image.Exif()
    exif[0x0112] = orientation
    # Where the definition of the tag puts the red quarter, which is stored at the top left.
    at = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (0, -1), 7: (-1, -1), 8: (-1, 0)}[orientation]
    pixels = _read_back(Image.fromarray(quarters), tmp_path, format, exif=exif)
    assert pixels.shape == ((32, 48, 3) if orientation < 5 else (48, 32, 3))
    assert pixels[at][0] > 200
    assert pixels[at][2] < 60
    opened = Image.open(tmp_path / f"image.{format.lower()}")
    np.testing.assert_array_equal(np.asarray(images.open_image(opened)), pixels)
    # One that was made from it stands as it is: its maker may have turned it.
    if format != "TIFF":  # which PIL turns itself
        assert np.asarray(images.open_image(opened.convert("RGB"))).shape == quarters.shape


@pytest.mark.parametrize("tag", [254, 50706])
def test_previews_in_raw_files_are_refused(tmp_path, image, tag):
    """The first page of a DNG file, or of one that says it is a reduced image, is not the photograph."""
    directory = TiffImagePlugin.ImageFileDirectory_v2()
    directory[tag], directory.tagtype[tag] = (1, 4) if tag == 254 else (b"\1\4\0\0", 1)
    Image.fromarray(image).save(tmp_path / "x.tif", tiffinfo=directory)
    with raises("not-an-image", "x.tif", "raw"):
        images.load_image(tmp_path / "x.tif", 8)


def test_raw_files_that_read_as_tiff_are_refused(tmp_path):
    """The mark of a CR2 file behind the header of a TIFF file with one gray pixel."""
    tags = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 130, 277: 1, 278: 1, 279: 1}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    directory, path = struct.pack("<H", len(tags)) + entries, tmp_path / "x.tif"
    for mark in (b"\0\0\0\0", b"CR\2\0"):
        content = b"II*\0" + struct.pack("<I", 16) + mark
        path.write_bytes((content.ljust(16, b"\0") + directory).ljust(130, b"\0") + b"\x50")
        with raises("not-an-image", "x.tif", "raw") if mark.strip(b"\0") else contextlib.nullcontext():
            assert images.load_image(path, 1).tolist() == [[[80, 80, 80]]]


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF", "MPO"])
def test_the_first_of_several_frames_counts(tmp_path, format):
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "lime", "blue")]
    pixels = _read_back(frames[0], tmp_path, format, save_all=True, append_images=frames[1:])
    assert _means(pixels) == pytest.approx((255, 0, 0), abs=3)


@pytest.mark.parametrize("words", [2 << 20, pytest.param(70 << 20, marks=pytest.mark.slow)])
def test_long_texts_of_a_png_file_are_passed_over(tmp_path, words):
    """Editors store workflows in them, which PIL refuses to decompress beyond 1 MiB."""
    info = PngImagePlugin.PngInfo()
    info.add_text("workflow", "x" * words, zip=True)
    info.add_itxt("prompt", "y" * (2 << 20), zip=True)
    info.add_itxt("XML:com.adobe.xmp", '<x:xmpmeta tiff:Orientation="6"/>')
    pixels = np.random.default_rng(0).integers(0, 255, (5, 9, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png", pnginfo=info, icc_profile=bytes(2 << 20))
    found = np.asarray(images.open_image(tmp_path / "image.png"))
    np.testing.assert_array_equal(found, np.rot90(pixels, -1))


def _png(width, height):
    """A PNG file that declares a size and holds nothing."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def _make(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(path))
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, images.MAX_FILE_BYTES + 1)
    else:
        path.write_bytes(kind)


@pytest.mark.parametrize(
    ("kind", "code", "named"),
    [
        *((kind, "not-a-file", kind) for kind in ("pipe", "folder", "device", "socket")),
        ("loop", "undecodable-image", "links"),
        ("sparse", "too-large", "1.1 GB"),
        (b"", "empty-file", ""),
        (b"<html>", "not-an-image", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "not-an-image", "git lfs pull"),
        (b"\0\0\0\x18ftypheic" + bytes(90), "not-an-image", "HEIC"),
        (b"RIFF\0\0\0\0AVI LIST" + bytes(90), "not-an-image", "video"),
        (bytes(90), "not-an-image", "zeros"),
        (b"\xef\xbb\xbf <?xml version='1.0'?>\n<svg/>", "not-an-image", "SVG"),
        (b"BM" + bytes(60), "undecodable-image", "BMP"),
        (_png(0, 5), "not-an-image empty-file", ""),  # by PIL's version
        (_png(8192, 8193), "too-many-pixels", "8192 x 8193"),
        (_png(100, 100), "undecodable-image", "truncated"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_cannot_be_decoded_is_one_sentence(tmp_path, kind, code, named):
    path = tmp_path / "image.jpg"
    _make(kind, path)
    with pytest.raises(InputError, match=names(str(path), named)) as caught:
        images.load_image(path, 8)
    assert caught.value.code in code.split()


@pytest.mark.parametrize(
    ("name", "code"),
    [("absent.png", "no-such-file"), ("a\0b.png", "zero-byte-in-path"), ("a" * 5000, "undecodable-image")],
)
def test_names_that_no_file_has(name, code):
    with raises(code) as caught:
        images.load_image(name, 8)
    assert len(str(caught.value)) < 400


def test_pil_images_that_are_broken_closed_empty_or_of_another_format(tmp_path):
    (tmp_path / "cut.png").write_bytes(_png(100, 100))
    (tmp_path / "page.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    closed = Image.open(tmp_path / "cut.png")
    closed.close()
    cases = [
        (Image.open(tmp_path / "cut.png"), ("undecodable-image", "truncated")),
        (closed, ("undecodable-image", "closed")),
        (Image.new("RGB", (0, 4)), ("empty-file", "0 x 4")),
        (Image.open(tmp_path / "page.eps"), ("unsupported-file-format", "EPS")),
    ]
    for image, reason in cases:
        with raises(*reason, "<PIL."):
            images.open_image(image)


@pytest.mark.parametrize(
    "source", [None, 5, [[1], [2, 3]], np.full((2, 2, 3), np.nan), np.zeros((4, 4)), np.zeros((0, 4, 3), np.uint8)]
)
def test_what_is_neither_path_nor_picture(source):
    with raises("wrong-type", "list") if isinstance(source, list) else raises("wrong-shape", "[height, width, 3]"):
        images.open_image(source)
    with raises("wrong-type", "PIL"):
        images.open_image(types.SimpleNamespace(content_hash="0" * 64, open=lambda: "no image"))
