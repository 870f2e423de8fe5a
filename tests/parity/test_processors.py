"""Preprocessing against transformers' own processors, bit for bit, and against torchvision's rules by hand."""

import jax
import numpy as np
import pytest
import transformers
from PIL import Image

from winobench.data.processors import ImageProcessor

# Landscape, portrait, square, already of the right size, smaller than the target, and odd margins.
SIZES = [(50, 37), (37, 50), (40, 40), (24, 24), (11, 9), (61, 24), (27, 24)]


def make_image(width, height):
    noise = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(noise)


def ours(processor, image):
    return np.asarray(jax.jit(processor.normalize)(processor(image)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("family", "official", "options"),
    [
        ("clip", transformers.CLIPImageProcessorPil, {"size": 24, "crop_size": 24}),
        ("clip", transformers.CLIPImageProcessorPil, {"size": {"shortest_edge": 24}, "crop_size": 20, "resample": 2}),
        ("clip", transformers.CLIPImageProcessorPil, {"size": {"shortest_edge": 25}, "crop_size": 24}),
        ("blip", transformers.BlipImageProcessorPil, {"size": {"height": 24, "width": 24}, "image_std": [0.5] * 3}),
        ("blip", transformers.BlipImageProcessorPil, {"size": 24, "do_pad": True, "size_divisor": 32}),
    ],
)
def test_bit_equal(family, official, options, size):
    image = make_image(*size)
    expected = official(**options)(image)["pixel_values"][0]
    result = ours(ImageProcessor.from_config(family, options), image)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.moveaxis(np.asarray(expected), 0, -1))


@pytest.mark.parametrize("family", ["clip", "blip"])
def test_defaults(family):
    official = {"clip": transformers.CLIPImageProcessorPil, "blip": transformers.BlipImageProcessorPil}[family]
    processor = ImageProcessor.from_config(family, official().to_dict())
    assert processor == ImageProcessor.from_config(family, {})
    assert processor.size == {"clip": (224, 224), "blip": (384, 384)}[family]
    expected = official()(make_image(30, 40))["pixel_values"][0]
    np.testing.assert_array_equal(ours(processor, make_image(30, 40)), np.moveaxis(np.asarray(expected), 0, -1))


@pytest.mark.parametrize("size", SIZES)
def test_open_clip(size):
    """torchvision: ToTensor divides by 255 in float32, Normalize subtracts and divides, CenterCrop rounds to even."""
    processor = ImageProcessor.from_open_clip({}, 24)
    width, height = size
    short = min(size)
    width, height = (24, int(24 * height / short)) if width <= height else (int(24 * width / short), 24)
    resized = np.asarray(make_image(*size).resize((width, height), Image.Resampling.BICUBIC))
    top, left = round((height - 24) / 2.0), round((width - 24) / 2.0)
    values = resized[top : top + 24, left : left + 24].astype(np.float32) / np.float32(255)
    expected = (values - np.float32(processor.mean)) / np.float32(processor.std)
    np.testing.assert_array_equal(ours(processor, make_image(*size)), expected)


def test_squash():
    processor = ImageProcessor.from_open_clip({"resize_mode": "squash", "interpolation": "bilinear", "mean": 0.5}, 24)
    expected = np.asarray(make_image(50, 37).resize((24, 24), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(processor(make_image(50, 37)), expected)
    assert processor.mean == (0.5, 0.5, 0.5)
