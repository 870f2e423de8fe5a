"""Small models to plan, and devices whose compiler is made up.

The Stable Diffusion's step compiles in seconds for any device. Its 1,024 positions attend to each other.
"""

import dataclasses
import json
import types

import jax

from winobench.contrib.planning import abstract, plan
from winobench.contrib.planning.programs import Compiled
from winobench.contrib.planning.roofline import Sum

SIZE = 64


def _replaced(whole, **changes):
    configs = {name: dataclasses.replace(whole.configs[name], **fields) for name, fields in changes.items()}
    return dataclasses.replace(whole, configs=configs)


def _vae(size, **more):
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    return {**blocks, "block_out_channels": (32, 32), "layers_per_block": 1, "sample_size": size, **more}


def _text(**more):
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2}
    return {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, **heads, **more}


def description(side=32):
    unet = dict(
        block_out_channels=(64,),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        attention_head_dim=2,
        cross_attention_dim=32,
        sample_size=side,
    )
    return _replaced(abstract.read_description("sd15"), unet=unet, vae=_vae(2 * side), text_encoder=_text())


def flux_description(double, single):
    """A narrow FLUX.1 with so many blocks of two streams and of one, and 256 positions of the image."""
    layers = {"num_layers": double, "num_single_layers": single, "num_attention_heads": 2}
    return _replaced(
        abstract.read_description("flux1-dev"),
        transformer={**layers, "joint_attention_dim": 64, "pooled_projection_dim": 32},
        vae=_vae(SIZE),
        text_encoder=_text(projection_dim=32),
        text_encoder_2={"vocab_size": 512, "d_model": 64, "d_kv": 32, "d_ff": 64, "num_layers": 1, "num_heads": 2},
    )


def sd3_description():
    depths = {"transformer": {"num_layers": 1}, "vae": {"layers_per_block": 1}}
    depths |= {name: {"num_hidden_layers": 2} for name in ("text_encoder", "text_encoder_2")}
    return _replaced(abstract.read_description("sd3-medium"), **depths, text_encoder_3={"num_layers": 1})


def write(folder):
    described = description()
    index = {
        "_class_name": described.family.CLASS_NAME,
        **{name: list(part) for name, part in described.family.PARTS.items()},
    }
    contents = {"model_index.json": index, "scheduler/scheduler_config.json": described.schedule.to_config()}
    for name, config in described.configs.items():
        contents[f"{name}/config.json"] = config.to_dict()
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))


def z_image():
    """A Z-Image with one block of each kind, heads of the released width, and 256 positions."""
    sizes = {"dim": 256, "n_heads": 2, "n_kv_heads": 2, "n_layers": 1, "n_refiner_layers": 1, "cap_feat_dim": 64}
    encoder = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_key_value_heads": 1}
    return _replaced(
        abstract.read_description("z-image"),
        transformer={"in_channels": 4, **sizes},
        vae=_vae(SIZE, latent_channels=4),
        text_encoder=_text(**encoder, head_dim=32),
    )


class Devices:
    """Some GPUs, and a compiler by which no more than ``most`` items fit, and that counts seconds by their noun."""

    def __init__(self, monkeypatch, count, usable, seconds, most=64, turn=None):
        self.asked, self.most, self.seconds, self.turn = [], most, seconds, turn
        self.target = types.SimpleNamespace(
            text=f"h100:{count}",
            devices=tuple(jax.devices()[:count]),
            accelerator=types.SimpleNamespace(usable_memory=usable, platform="gpu"),
        )
        monkeypatch.setattr(plan, "compile_program", self.compile)

    def compile(self, program, target):
        assert target is self.target
        self.asked.append((program.noun, program.items))
        if program.items > self.most:
            return None
        sums = {"other": Sum(1, 0.0, 0.0, self.seconds[program.noun])}
        return Compiled(program.name, program.noun, program.items, 1000, 0, 0, sums, {}, 3.0, self.turn)
