"""A tiny FLUX.2-klein that would keep keys and values of images, and is given none."""

import diffusers

from tests.torch_pipelines.tiny import flux2_klein_pipeline

IMAGE_SIZE = flux2_klein_pipeline.IMAGE_SIZE
CALL = {}


def make() -> diffusers.Flux2KleinKVPipeline:
    return diffusers.Flux2KleinKVPipeline(**flux2_klein_pipeline.make().components)
