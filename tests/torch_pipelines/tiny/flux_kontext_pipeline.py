"""A small random FLUX.1-Kontext, which makes images from texts alone as FLUX.1-dev does."""

from tests.torch_pipelines.tiny import flux_pipeline

IMAGE_SIZE = 32
CALL = {"max_area": IMAGE_SIZE**2}


def make():
    import diffusers

    return diffusers.FluxKontextPipeline(**flux_pipeline.make().components)
