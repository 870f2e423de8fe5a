"""A tiny SANA-Sprint: guidance embedded, times on a circle."""

import diffusers

from tests.torch_pipelines.tiny import sana_pipeline

IMAGE_SIZE = 32
CALL = {"guidance_scale": 4.5, "use_resolution_binning": False}


def make() -> diffusers.SanaSprintPipeline:
    scheduler = diffusers.SCMScheduler(sigma_data=0.5)
    return sana_pipeline.make("SanaSprintPipeline", scheduler, guidance_embeds=True, qk_norm="rms_norm_across_heads")
