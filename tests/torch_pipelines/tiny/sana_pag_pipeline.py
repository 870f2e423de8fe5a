"""A tiny SANA with perturbed attention, which a scale of 0 leaves out."""

import diffusers

from tests.torch_pipelines.tiny import sana_pipeline

IMAGE_SIZE = sana_pipeline.IMAGE_SIZE
CALL = {**sana_pipeline.CALL, "pag_scale": 0.0}


def make() -> diffusers.SanaPAGPipeline:
    return sana_pipeline.make("SanaPAGPipeline")
