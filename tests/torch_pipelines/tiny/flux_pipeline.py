"""A small random FLUX.1-dev."""

from tests import tiny_flux
from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL: dict = {}


def make():
    return parts.load(tiny_flux.write)
