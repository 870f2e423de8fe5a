"""A tiny Kolors with perturbed attention, which a scale of 0 leaves out."""

import diffusers

from tests.torch_pipelines.tiny import kolors_pipeline

IMAGE_SIZE = kolors_pipeline.IMAGE_SIZE
CALL = {**kolors_pipeline.CALL, "pag_scale": 0.0}


def make() -> diffusers.KolorsPAGPipeline:
    return diffusers.KolorsPAGPipeline(**kolors_pipeline.make().components)
