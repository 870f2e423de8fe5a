"""A tiny PixArt-Sigma with perturbed attention, which a scale of 0 leaves out."""

import diffusers

from tests.torch_pipelines.tiny import pix_art_sigma_pipeline

IMAGE_SIZE = pix_art_sigma_pipeline.IMAGE_SIZE
CALL = {**pix_art_sigma_pipeline.CALL, "pag_scale": 0.0}


def make() -> diffusers.PixArtSigmaPAGPipeline:
    return pix_art_sigma_pipeline.make("PixArtSigmaPAGPipeline")
