"""Preprocessing options that cannot be used, and what the processors promise besides their values."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.expectations import raises
from winobench.data.processors import ImageProcessor

# As OpenAI's repositories had it before 2023, and as LAION's have it.
OLD = {
    **{"crop_size": 224, "size": 224, "resample": 3, "feature_extractor_type": "CLIPFeatureExtractor"},
    **dict.fromkeys(("do_center_crop", "do_normalize", "do_resize"), True),
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
NEW = {
    **OLD,
    **{"crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 224}},
    **{"do_convert_rgb": True, "do_rescale": True, "rescale_factor": 0.00392156862745098},
    **{"image_processor_type": "CLIPImageProcessor", "processor_class": "CLIPProcessor"},
}
BLIP = {
    **dict.fromkeys(("do_normalize", "do_pad", "do_rescale", "do_resize"), True),
    **{"image_processor_type": "BlipImageProcessor", "processor_class": "BlipProcessor"},
    **{"resample": 3, "rescale_factor": 0.00392156862745098, "size_divisor": 32},
    "size": {"height": 384, "width": 384},
}


def test_published_files():
    assert ImageProcessor.from_config("clip", OLD) == ImageProcessor.from_config("clip", NEW)
    assert ImageProcessor.from_config("clip", OLD) == ImageProcessor.from_config("clip", {})
    assert ImageProcessor.from_config("blip", BLIP) == ImageProcessor.from_config("blip", {})
    assert ImageProcessor.from_config("blip", BLIP).size == (384, 384)
    processor = ImageProcessor.from_config("clip", OLD)
    assert hash(processor) == hash(ImageProcessor.from_config("clip", NEW))
    description = json.loads(json.dumps(dataclasses.asdict(processor)))
    assert (description["resize"], description["crop"]) == (224, [224, 224])


def test_sources_of_images(tmp_path):
    """Paths, PIL images of any mode and arrays give the same bytes."""
    array = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    Image.fromarray(array).save(tmp_path / "a.png")
    processor = ImageProcessor(resize=8, crop=(8, 8))
    results = [processor(image) for image in (array, Image.fromarray(array), tmp_path / "a.png")]
    assert all(np.array_equal(results[0], result) for result in results)
    assert results[0].dtype == np.uint8
    assert results[0].shape == (8, 8, 3)
    gray = Image.fromarray(array[..., 0])
    assert np.array_equal(processor(gray)[..., 0], processor(gray)[..., 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"do_resize": False}, ("unsupported-option", "do_resize=False")),
        ({"do_center_crop": False}, ("images-not-cropped",)),
        ({"colour": 3}, ("unknown-option", "colour=3")),
        ({"image_processor_type": "ViTImageProcessor"}, ("wrong-kind-of-processor", "ViTImageProcessor")),
        ({"crop_size": 300}, ("crop-larger-than-image", "(300, 300)")),
        ({"image_std": [0.5, 0.5, 0.0]}, ("out-of-range", "0")),
        ({"image_mean": [0.5]}, ("out-of-range", "mean", "(0.5,)")),
        ({"size": "large"}, ("bad-processor", "large")),
        ({"size": {"shortest_edge": 224, "longest_edge": 300}}, ("unsupported-option", "longest_edge")),
        ({"size": 10**9}, ("out-of-memory",)),
        # With these, all images look alike to a network, or none is a number.
        ({"rescale_factor": 0}, ("out-of-range", "rescale_factor")),
        ({"rescale_factor": 1e300}, ("out-of-range", "rescale_factor")),
        ({"image_std": [1e9] * 3}, ("out-of-range", "image_std")),
        ({"processor_class": "FooProcessor"}, ("wrong-kind-of-processor", "'FooProcessor'", "CLIPProcessor")),
    ],
)
def test_bad_preprocessor_config(options, message):
    with raises(*message) as caught:
        ImageProcessor.from_config("clip", options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "size", "message"),
    [
        ({"resize_mode": "longest"}, 224, ("unsupported-option", "resize_mode='longest'")),
        ({"pad": 3}, 224, ("unknown-option", "pad=3")),
        ({"mean": "gray"}, 224, ("unsupported-option", "mean='gray'")),
        ({"std": 0}, 224, ("out-of-range", "std")),
        ({}, (224, 200), ("unsupported-option", "224", "200")),
    ],
)
def test_bad_open_clip(options, size, message):
    with raises(*message):
        ImageProcessor.from_open_clip(options, size)


@pytest.mark.slow
def test_without_torch():
    """The image processors that torch is not needed for are the ones in use."""
    program = """
import importlib.machinery as machinery
find = machinery.PathFinder.find_spec
machinery.PathFinder.find_spec = staticmethod(
    lambda name, *args: None if name.split(".")[0] in ("torch", "torchvision") else find(name, *args)
)
import numpy as np
from winobench.data.processors import ImageProcessor
processor = ImageProcessor.from_config("clip", {"size": 8, "crop_size": 8})
assert processor(np.zeros((9, 10, 3), np.uint8)).shape == (8, 8, 3)
assert processor.table.shape == (256, 3)
import sys
assert not any(name == "torch" for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
