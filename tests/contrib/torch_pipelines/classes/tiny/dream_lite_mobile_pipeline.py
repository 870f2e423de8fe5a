"""A small random DreamLite-mobile: DreamLite without guidance."""

from tests.contrib.torch_pipelines.classes.tiny import dream_lite_pipeline

IMAGE_SIZE = dream_lite_pipeline.IMAGE_SIZE
CALL = {}


def make():
    return dream_lite_pipeline.make("DreamLiteMobilePipeline")
