"""A tiny PixArt-Alpha, of the size that is told its resolution and its aspect ratio."""

import diffusers

from tests.torch_pipelines.tiny import pix_art_sigma_pipeline

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "use_resolution_binning": False}


def make() -> diffusers.PixArtAlphaPipeline:
    return pix_art_sigma_pipeline.make("PixArtAlphaPipeline", sample_size=128)
