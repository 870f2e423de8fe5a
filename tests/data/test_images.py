"""Reading images: paths, PIL images, arrays, and what cannot be read."""

import numpy as np
import pytest
from PIL import Image

from winobench.data import images
from winobench.errors import InputError


@pytest.fixture
def picture():
    return np.random.default_rng(0).integers(0, 256, (12, 20, 3), np.uint8)


def test_path_pil_and_array_are_one_image(picture, tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(picture).save(path)
    sources = (path, str(path), Image.fromarray(picture), picture)
    assert len({images.image_hash(source) for source in sources}) == 1
    for source in sources:
        np.testing.assert_array_equal(images.load_image(source, 8), images.load_image(picture, 8))


def test_hash_tells_content_and_shape_apart(picture):
    changed = picture.copy()
    changed[3, 4, 1] ^= 1
    assert images.image_hash(changed) != images.image_hash(picture)
    assert images.image_hash(picture.reshape(20, 12, 3)) != images.image_hash(picture)


def test_resize_is_pils_bicubic_without_crop(picture):
    expected = np.asarray(Image.fromarray(picture).resize((16, 16), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(images.load_image(picture, 16), expected)
    square = picture[:, :12]
    np.testing.assert_array_equal(images.load_image(square, 12), square)


def test_missing_and_corrupt_files_are_named(picture, tmp_path):
    with pytest.raises(InputError, match=r"there is no image at .*absent\.png"):
        images.load_image(tmp_path / "absent.png", 8)
    path = tmp_path / "broken.png"
    Image.fromarray(picture).save(path)
    path.write_bytes(path.read_bytes()[:200])
    for read in (images.image_hash, lambda source: images.load_image(source, 8)):
        with pytest.raises(InputError, match=r"broken\.png cannot be decoded"):
            read(path)
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(InputError, match=r"text\.png cannot be decoded"):
        images.image_hash(tmp_path / "text.png")


@pytest.mark.parametrize(
    "array", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)]
)
def test_other_arrays_are_refused(array):
    with pytest.raises(InputError, match="must be uint8"):
        images.load_image(array, 8)
