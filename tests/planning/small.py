"""A Stable Diffusion whose step compiles in seconds for any device, with 1,024 positions that attend to each other."""

import dataclasses

from winobench.planning import abstract

SIZE = 64


def description():
    """What `abstract.read_description` says of it."""
    whole = abstract.read_description("sd15")
    unet = dataclasses.replace(
        whole.configs["unet"],
        block_out_channels=(64,),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        attention_head_dim=2,
        cross_attention_dim=32,
        sample_size=32,
    )
    vae = dataclasses.replace(
        whole.configs["vae"],
        block_out_channels=(32, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        layers_per_block=1,
        sample_size=SIZE,
    )
    text = dataclasses.replace(
        whole.configs["text_encoder"],
        vocab_size=512,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    return dataclasses.replace(whole, configs={"unet": unet, "vae": vae, "text_encoder": text})
