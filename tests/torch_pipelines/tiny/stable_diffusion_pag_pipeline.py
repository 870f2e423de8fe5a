"""A small random Stable Diffusion 1.5:guidance_scale": 1.0 with perturbed attention, which a scale of 0 leaves out."""

from tests.torch_pipelines.tiny import stable_diffusion_pipeline

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "pag_scale": 0.0}


def make():
    import diffusers

    return diffusers.StableDiffusionPAGPipeline(**stable_diffusion_pipeline.make().components)
