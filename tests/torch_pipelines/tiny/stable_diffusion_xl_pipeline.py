"""A small random Stable Diffusion XL."""

from tests import tiny_sdxl
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make():
    return parts.load(tiny_sdxl.write)
