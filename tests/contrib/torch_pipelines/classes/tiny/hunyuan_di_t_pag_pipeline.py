"""A tiny Hunyuan-DiT with perturbed attention, which a scale of 0 leaves out."""

import diffusers

from tests.contrib.torch_pipelines.classes.tiny import hunyuan_di_t_pipeline

IMAGE_SIZE = hunyuan_di_t_pipeline.IMAGE_SIZE
CALL = {**hunyuan_di_t_pipeline.CALL, "pag_scale": 0.0}


def make() -> diffusers.HunyuanDiTPAGPipeline:
    components = hunyuan_di_t_pipeline.make().components
    return diffusers.HunyuanDiTPAGPipeline(**components, requires_safety_checker=False)
