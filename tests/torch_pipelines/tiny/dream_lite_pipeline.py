"""A small random DreamLite: an image of zeros next to the noise, an autoencoder without a distribution."""

from tests.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make(kind="DreamLitePipeline"):
    import diffusers
    import transformers

    from tests import tiny_flux2

    words = tiny_flux2.tokenizer()
    blocks = ("DreamLiteCrossAttnNoSelfAttn{}Block2D", "DreamLiteCrossAttn{}Block2D")
    unet = diffusers.DreamLiteUNetModel(
        sample_size=8,
        block_out_channels=(16, 32),
        down_block_types=tuple(name.format("Down") for name in blocks),
        up_block_types=tuple(name.format("Up") for name in reversed(blocks)),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=(2, 4),
        cross_attention_dim=24,
        encoder_hid_dim=24,
        encoder_hid_dim_type="text_proj_rms",
        addition_embed_type="time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=16,
        use_linear_projection=True,
    )
    vae = diffusers.AutoencoderTiny(
        encoder_block_out_channels=(8, 8, 8),
        decoder_block_out_channels=(8, 8, 8),
        num_encoder_blocks=(1, 1, 1),
        num_decoder_blocks=(1, 1, 1),
        scaling_factor=0.8,
        shift_factor=0.1,
    )
    text_encoder = parts.qwen3_vl(words)
    parts.randomized(unet, vae, text_encoder)
    return getattr(diffusers, kind)(
        text_encoder=text_encoder,
        tokenizer=words,
        # The whole processor needs torchvision; only images for an edit go through it.
        processor=transformers.Qwen2VLImageProcessorPil(),
        vae=vae,
        unet=unet,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
    )
