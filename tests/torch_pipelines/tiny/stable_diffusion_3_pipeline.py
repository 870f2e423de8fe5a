"""A small random Stable Diffusion 3.5."""

from tests import tiny_sd3
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make():
    return parts.load(tiny_sd3.write)
