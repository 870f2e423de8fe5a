"""The published config.json files of Stable Diffusion 1.5, 2.1-base, 2.1 and XL base 1.0, as data."""

_DOWN = ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"]
_UP = ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3

SD15_UNET = {
    "_class_name": "UNet2DConditionModel",
    "_diffusers_version": "0.6.0",
    "act_fn": "silu",
    "attention_head_dim": 8,
    "block_out_channels": [320, 640, 1280, 1280],
    "center_input_sample": False,
    "cross_attention_dim": 768,
    "down_block_types": _DOWN,
    "downsample_padding": 1,
    "flip_sin_to_cos": True,
    "freq_shift": 0,
    "in_channels": 4,
    "layers_per_block": 2,
    "mid_block_scale_factor": 1,
    "norm_eps": 1e-05,
    "norm_num_groups": 32,
    "out_channels": 4,
    "sample_size": 64,
    "up_block_types": _UP,
}

SD21_BASE_UNET = {
    **SD15_UNET,
    "_diffusers_version": "0.10.0.dev0",
    "attention_head_dim": [5, 10, 20, 20],
    "cross_attention_dim": 1024,
    "dual_cross_attention": False,
    "num_class_embeds": None,
    "only_cross_attention": False,
    "use_linear_projection": True,
}

# 768 pixels, v-prediction.
SD21_UNET = {**SD21_BASE_UNET, "sample_size": 96, "upcast_attention": True}

SD15_VAE = {
    "_class_name": "AutoencoderKL",
    "_diffusers_version": "0.6.0",
    "act_fn": "silu",
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "in_channels": 3,
    "latent_channels": 4,
    "layers_per_block": 2,
    "norm_num_groups": 32,
    "out_channels": 3,
    "sample_size": 512,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}

SD21_BASE_VAE = {**SD15_VAE, "_diffusers_version": "0.10.0.dev0", "sample_size": 768}
SD21_VAE = {**SD21_BASE_VAE, "scaling_factor": 0.18215}

SD15_TEXT = {
    "_name_or_path": "openai/clip-vit-large-patch14",
    "architectures": ["CLIPTextModel"],
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "dropout": 0.0,
    "eos_token_id": 2,
    "hidden_act": "quick_gelu",
    "hidden_size": 768,
    "initializer_factor": 1.0,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 77,
    "model_type": "clip_text_model",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "projection_dim": 768,
    "torch_dtype": "float32",
    "transformers_version": "4.22.0.dev0",
    "vocab_size": 49408,
}

SD21_BASE_TEXT = {
    **SD15_TEXT,
    "_name_or_path": "stabilityai/stable-diffusion-2",
    "hidden_act": "gelu",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 23,
    "projection_dim": 512,
    "transformers_version": "4.25.0.dev0",
}
SD21_TEXT = SD21_BASE_TEXT

SDXL_UNET = {
    "_class_name": "UNet2DConditionModel",
    "_diffusers_version": "0.19.0.dev0",
    "act_fn": "silu",
    "addition_embed_type": "text_time",
    "addition_embed_type_num_heads": 64,
    "addition_time_embed_dim": 256,
    "attention_head_dim": [5, 10, 20],
    "block_out_channels": [320, 640, 1280],
    "center_input_sample": False,
    "class_embed_type": None,
    "class_embeddings_concat": False,
    "conv_in_kernel": 3,
    "conv_out_kernel": 3,
    "cross_attention_dim": 2048,
    "cross_attention_norm": None,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "downsample_padding": 1,
    "dual_cross_attention": False,
    "encoder_hid_dim": None,
    "encoder_hid_dim_type": None,
    "flip_sin_to_cos": True,
    "freq_shift": 0,
    "in_channels": 4,
    "layers_per_block": 2,
    "mid_block_only_cross_attention": None,
    "mid_block_scale_factor": 1,
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "norm_eps": 1e-05,
    "norm_num_groups": 32,
    "num_attention_heads": None,
    "num_class_embeds": None,
    "only_cross_attention": False,
    "out_channels": 4,
    "projection_class_embeddings_input_dim": 2816,
    "resnet_out_scale_factor": 1.0,
    "resnet_skip_time_act": False,
    "resnet_time_scale_shift": "default",
    "sample_size": 128,
    "time_cond_proj_dim": None,
    "time_embedding_act_fn": None,
    "time_embedding_dim": None,
    "time_embedding_type": "positional",
    "timestep_post_act": None,
    "transformer_layers_per_block": [1, 2, 10],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "upcast_attention": None,
    "use_linear_projection": True,
}

SDXL_VAE = {
    **SD15_VAE,
    "_diffusers_version": "0.20.0.dev0",
    "force_upcast": True,
    "sample_size": 1024,
    "scaling_factor": 0.13025,
}

SDXL_TEXT = SD15_TEXT

SDXL_TEXT_2 = {
    **SD15_TEXT,
    "_name_or_path": "",
    "architectures": ["CLIPTextModelWithProjection"],
    "hidden_act": "gelu",
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_attention_heads": 20,
    "num_hidden_layers": 32,
    "projection_dim": 1280,
    "torch_dtype": "float16",
    "transformers_version": "4.32.0.dev0",
}

UNETS = {"sd15": SD15_UNET, "sd21-base": SD21_BASE_UNET, "sd21": SD21_UNET, "sdxl": SDXL_UNET}
VAES = {"sd15": SD15_VAE, "sd21-base": SD21_BASE_VAE, "sd21": SD21_VAE, "sdxl": SDXL_VAE}
TEXT_ENCODERS = {"sd15": SD15_TEXT, "sd21-base": SD21_BASE_TEXT, "sd21": SD21_TEXT, "sdxl": SDXL_TEXT}
