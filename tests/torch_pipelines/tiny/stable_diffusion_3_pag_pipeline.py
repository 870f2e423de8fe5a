"""A small random Stable Diffusion 3.5:guidance_scale": 1.0 with perturbed attention, which a scale of 0 leaves out."""

from tests.torch_pipelines.tiny import stable_diffusion_3_pipeline

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0, "pag_scale": 0.0}


def make():
    import diffusers

    components = stable_diffusion_3_pipeline.make().components
    del components["image_encoder"], components["feature_extractor"]
    return diffusers.StableDiffusion3PAGPipeline(**components)
