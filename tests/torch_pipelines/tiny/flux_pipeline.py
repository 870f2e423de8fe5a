"""A small random FLUX.1-dev."""

from tests import tiny_flux
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 3.5}


def make():
    return parts.load(tiny_flux.write)
