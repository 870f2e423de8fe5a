"""A small random Z-Image."""

from tests import tiny_z_image
from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 0.0}


def make():
    return parts.load(tiny_z_image.write)
