"""A small random Z-Image-Omni, without images."""

from tests.contrib.torch_pipelines.classes.tiny import z_image_pipeline

IMAGE_SIZE = z_image_pipeline.IMAGE_SIZE
CALL = {"guidance_scale": 0.0}


def make():
    import diffusers
    import transformers

    siglip = transformers.Siglip2VisionModel(
        transformers.Siglip2VisionConfig(
            hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_patches=16
        )
    )
    return diffusers.ZImageOmniPipeline(
        **z_image_pipeline.make().components,
        siglip=siglip,
        # Only images of a prompt go through it.
        siglip_processor=transformers.SiglipImageProcessorPil(),
    )
