"""A small random DreamLite: an image of zeros next to the noise, an autoencoder without a distribution."""

from tests.contrib.torch_pipelines.tiny import parts

IMAGE_SIZE = 32
CALL = {"guidance_scale": 1.0}


def make(kind="DreamLitePipeline"):
    import diffusers
    import transformers

    words = parts.chat_tokenizer()
    blocks = ("DreamLiteCrossAttnNoSelfAttn{}Block2D", "DreamLiteCrossAttn{}Block2D")
    unet = diffusers.DreamLiteUNetModel(
        sample_size=8,
        block_out_channels=(16, 32),
        down_block_types=tuple(name.format("Down") for name in blocks),
        up_block_types=tuple(name.format("Up") for name in reversed(blocks)),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=(2, 4),
        cross_attention_dim=16,
        encoder_hid_dim=16,
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
    networks = {
        "unet": unet,
        "vae": vae,
        "text_encoder": parts.qwen3_vl(words, "Qwen3VLForConditionalGeneration", 2),
    }
    # The whole processor needs torchvision. Only images for an edit go through it.
    others = {"tokenizer": words, "processor": transformers.Qwen2VLImageProcessorPil()}
    return parts.filled(getattr(diffusers, kind), networks | others | {"scheduler": parts.moving_schedule()})
