"""Pipelines' networks in the layouts that their authors published them in: the way back from diffusers' names.

Everything is a table of diffusers' names and the original ones, or a joining of tensors that diffusers has apart.
"""

from __future__ import annotations

import json
import pathlib
import re

import safetensors.torch
import torch

DENOISER = "model.diffusion_model."
_RESNET = (
    *((r"\bnorm1\b", "in_layers.0"), (r"\bconv1\b", "in_layers.2"), (r"\bnorm2\b", "out_layers.0")),
    *(
        (r"\bconv2\b", "out_layers.3"),
        (r"\btime_emb_proj\b", "emb_layers.1"),
        (r"\bconv_shortcut\b", "skip_connection"),
    ),
)
_OPEN_CLIP = (
    *((r"encoder\.layers\.", "transformer.resblocks."), (r"layer_norm(\d)", r"ln_\1"), (r"self_attn", "attn")),
    *((r"mlp\.fc1", "mlp.c_fc"), (r"mlp\.fc2", "mlp.c_proj"), (r"final_layer_norm", "ln_final")),
    *((r"embeddings\.token_embedding", "token_embedding"), (r"text_projection\.weight", "text_projection")),
    (r"embeddings\.position_embedding\.weight", "positional_embedding"),
)
_VAE = (
    *(
        (r"down_blocks\.(\d+)\.resnets\.", r"down.\1.block."),
        (r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample"),
    ),
    *((r"mid_block\.resnets\.0", "mid.block_1"), (r"mid_block\.resnets\.1", "mid.block_2")),
    *((r"mid_block\.attentions\.0", "mid.attn_1"), (r"group_norm", "norm"), (r"to_([qkv])", r"\1")),
    *((r"to_out\.0", "proj_out"), (r"conv_norm_out", "norm_out"), (r"conv_shortcut", "nin_shortcut")),
)
_SD3 = (
    *((r"pos_embed\.pos_embed", "pos_embed"), (r"pos_embed\.proj", "x_embedder.proj")),
    (r"time_text_embed\.timestep_embedder\.linear_1", "t_embedder.mlp.0"),
    (r"time_text_embed\.timestep_embedder\.linear_2", "t_embedder.mlp.2"),
    (r"time_text_embed\.text_embedder\.linear_1", "y_embedder.mlp.0"),
    (r"time_text_embed\.text_embedder\.linear_2", "y_embedder.mlp.2"),
    *((r"^transformer_blocks", "joint_blocks"), (r"to_add_out", "context_block.attn.proj")),
    *((r"attn\.context_block", "context_block"), (r"(attn2?)\.to_out\.0", r"x_block.\1.proj")),
    *((r"attn\.norm_added_([qk])", r"context_block.attn.ln_\1"), (r"(attn2?)\.norm_([qk])", r"x_block.\1.ln_\2")),
    *((r"norm1\.linear", "x_block.adaLN_modulation.1"), (r"norm1_context\.linear", "context_block.adaLN_modulation.1")),
    *((r"ff\.net\.0\.proj", "x_block.mlp.fc1"), (r"ff\.net\.2", "x_block.mlp.fc2")),
    *((r"ff_context\.net\.0\.proj", "context_block.mlp.fc1"), (r"ff_context\.net\.2", "context_block.mlp.fc2")),
    *((r"^proj_out", "final_layer.linear"), (r"^norm_out\.linear", "final_layer.adaLN_modulation.1")),
)
_FLUX = (
    *((r"time_text_embed\.timestep_embedder", "time_in"), (r"time_text_embed\.text_embedder", "vector_in")),
    *(
        (r"time_text_embed\.guidance_embedder", "guidance_in"),
        (r"linear_1\.", "in_layer."),
        (r"linear_2\.", "out_layer."),
    ),
    *((r"^context_embedder", "txt_in"), (r"^x_embedder", "img_in"), (r"^transformer_blocks", "double_blocks")),
    *((r"^single_transformer_blocks", "single_blocks"), (r"(single_blocks\.\d+\.)norm\.linear", r"\1modulation.lin")),
    *((r"norm1\.linear", "img_mod.lin"), (r"norm1_context\.linear", "txt_mod.lin")),
    *((r"ff\.net\.0\.proj", "img_mlp.0"), (r"ff\.net\.2", "img_mlp.2")),
    *((r"ff_context\.net\.0\.proj", "txt_mlp.0"), (r"ff_context\.net\.2", "txt_mlp.2")),
    *((r"attn\.to_out\.0", "img_attn.proj"), (r"attn\.to_add_out", "txt_attn.proj")),
    (r"(single_blocks\.\d+\.)attn\.norm_q\.weight", r"\1norm.query_norm.scale"),
    (r"(single_blocks\.\d+\.)attn\.norm_k\.weight", r"\1norm.key_norm.scale"),
    *(
        (r"attn\.norm_q\.weight", "img_attn.norm.query_norm.scale"),
        (r"attn\.norm_k\.weight", "img_attn.norm.key_norm.scale"),
    ),
    (r"attn\.norm_added_q\.weight", "txt_attn.norm.query_norm.scale"),
    (r"attn\.norm_added_k\.weight", "txt_attn.norm.key_norm.scale"),
    *((r"(single_blocks\.\d+\.)proj_out", r"\1linear2"), (r"^proj_out", "final_layer.linear")),
    (r"^norm_out\.linear", "final_layer.adaLN_modulation.1"),
)


def read(folder: pathlib.Path, part: str) -> dict[str, torch.Tensor]:
    (path,) = (folder / part).glob("*.safetensors")
    return safetensors.torch.load_file(path)


def config(folder: pathlib.Path, part: str) -> dict:
    return json.loads((folder / part / "config.json").read_text())


def unet(tensors, layers: int) -> dict[str, torch.Tensor]:
    step, found = layers + 1, {}
    blocks_with_attention = {match[1] for name in tensors if (match := re.match(r"up_blocks\.(\d+)\.attentions", name))}
    from diffusers.loaders.single_file_utils import DIFFUSERS_TO_LDM_MAPPING

    named = DIFFUSERS_TO_LDM_MAPPING["unet"]["layers"] | DIFFUSERS_TO_LDM_MAPPING["unet"]["addition_embed_type"]
    for name, tensor in tensors.items():
        if name in named:
            found[DENOISER + named[name]] = tensor
            continue
        side, _, rest = name.partition("_block")
        parts = rest.lstrip("s.").split(".") if side != "mid" else ["0", *rest.split(".")[1:]]
        block, kind, place, *rest = parts
        number = int(block) * step + int(place)
        if side == "mid":
            start = "middle_block.1" if kind == "attentions" else f"middle_block.{2 * int(place)}"
        elif kind == "downsamplers":
            start, rest = f"input_blocks.{(int(block) + 1) * step}.0.op", rest[1:]
        elif kind == "upsamplers":
            start = f"output_blocks.{int(block) * step + layers}.{2 if block in blocks_with_attention else 1}"
        else:
            first = f"input_blocks.{1 + number}" if side == "down" else f"output_blocks.{number}"
            start = f"{first}.{1 if kind == 'attentions' else 0}"
        inner = ".".join(rest)
        found[f"{DENOISER}{start}.{_renamed(inner, _RESNET) if kind == 'resnets' else inner}"] = tensor
    return found


def vae(tensors, levels: int, prefix: str) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in tensors.items():
        name = re.sub(r"up_blocks\.(\d+)\.resnets\.", lambda match: f"up.{levels - 1 - int(match[1])}.block.", name)
        name = re.sub(
            r"up_blocks\.(\d+)\.upsamplers\.0", lambda match: f"up.{levels - 1 - int(match[1])}.upsample", name
        )
        name = _renamed(name, _VAE)
        is_convolution = ".attn_1." in name and tensor.ndim == 2
        found[prefix + name] = tensor[:, :, None, None] if is_convolution else tensor
    return found


def clip(tensors, prefix: str) -> dict[str, torch.Tensor]:
    return {
        prefix
        + (name if name.startswith("text_projection") else f"text_model.{name.removeprefix('text_model.')}"): tensor
        for name, tensor in tensors.items()
    }


def open_clip(tensors, prefix: str) -> dict[str, torch.Tensor]:
    found, tensors = {}, {name.removeprefix("text_model."): tensor for name, tensor in tensors.items()}
    _join(tensors, r"(.*self_attn\.)q_proj\.(weight|bias)", ("q_proj.", "k_proj.", "v_proj."), "in_proj_")
    for name, tensor in tensors.items():
        new = _renamed(name, _OPEN_CLIP)
        found[prefix + new] = tensor.T if new == "text_projection" else tensor
    return found


def sd3(tensors) -> dict[str, torch.Tensor]:
    tensors = dict(tensors)
    for name in ("attn", "attn2"):
        joined = f"x_block.{name}.qkv."
        _join(tensors, rf"(.*\.){name}\.to_q\.(weight|bias)", [f"{name}.to_{each}." for each in "qkv"], joined)
    parts = [f"attn.add_{each}_proj." for each in "qkv"]
    _join(tensors, r"(.*\.)attn\.add_q_proj\.(weight|bias)", parts, "context_block.attn.qkv.")
    last = max(int(name.split(".")[1]) for name in tensors if name.startswith("transformer_blocks."))
    swapped = ("norm_out.linear", f"transformer_blocks.{last}.norm1_context.linear")
    return {
        DENOISER + _renamed(name, _SD3): _swapped(tensor) if name.startswith(swapped) else tensor
        for name, tensor in tensors.items()
    }


def flux(tensors, prefix: str = DENOISER) -> dict[str, torch.Tensor]:
    tensors = dict(tensors)
    single = [*(f"attn.to_{each}." for each in "qkv"), "proj_mlp."]
    _join(tensors, r"(single_transformer_blocks\.\d+\.)attn\.to_q\.(weight|bias)", single, "linear1.")
    double = [f"attn.to_{each}." for each in "qkv"]
    _join(tensors, r"(transformer_blocks\.\d+\.)attn\.to_q\.(weight|bias)", double, "img_attn.qkv.")
    added = [f"attn.add_{each}_proj." for each in "qkv"]
    _join(tensors, r"(transformer_blocks\.\d+\.)attn\.add_q_proj\.(weight|bias)", added, "txt_attn.qkv.")
    return {
        prefix + _renamed(name, _FLUX): _swapped(tensor) if name.startswith("norm_out.linear") else tensor
        for name, tensor in tensors.items()
    }


def _join(tensors, first: str, parts, joined: str) -> None:
    """Joins the tensors of these names into one, in place."""
    for name in list(tensors):
        if match := re.fullmatch(first, name):
            each = [tensors.pop(f"{match[1]}{part}{match[2]}") for part in parts]
            tensors[f"{match[1]}{joined}{match[2]}"] = torch.cat(each)


def _swapped(tensor):
    """Scale and shift, which the authors have the other way round."""
    return torch.cat(tensor.chunk(2)[::-1])


def _renamed(name: str, table) -> str:
    for pattern, new in table:
        name = re.sub(pattern, new, name)
    return name


def sd15_file(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    found = unet(read(folder, "unet"), config(folder, "unet")["layers_per_block"])
    found |= vae(read(folder, "vae"), 3, "first_stage_model.")
    found |= clip(read(folder, "text_encoder"), "cond_stage_model.transformer.")
    return found | {
        "alphas_cumprod": torch.ones(3),
        "cond_stage_model.transformer.text_model.embeddings.position_ids": torch.arange(77)[None],
        "model_ema.decay": torch.ones(()),
    }


def sdxl_file(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    found = unet(read(folder, "unet"), config(folder, "unet")["layers_per_block"])
    found |= vae(read(folder, "vae"), 3, "first_stage_model.")
    found |= clip(read(folder, "text_encoder"), "conditioner.embedders.0.transformer.")
    found |= open_clip(read(folder, "text_encoder_2"), "conditioner.embedders.1.model.")
    return found | {"conditioner.embedders.1.model.logit_scale": torch.ones(()), "denoiser.sigmas": torch.ones(3)}


def sd3_file(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    found = sd3(read(folder, "transformer")) | vae(read(folder, "vae"), 3, "first_stage_model.")
    found |= clip(read(folder, "text_encoder"), "text_encoders.clip_l.transformer.")
    found |= clip(read(folder, "text_encoder_2"), "text_encoders.clip_g.transformer.")
    return found | {
        f"text_encoders.t5xxl.transformer.{name}": tensor for name, tensor in read(folder, "text_encoder_3").items()
    }


def flux_file(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    """As ComfyUI saves a whole pipeline; the authors' own file has the transformer alone, without the prefix."""
    found = flux(read(folder, "transformer")) | vae(read(folder, "vae"), 3, "vae.")
    found |= clip(read(folder, "text_encoder"), "text_encoders.clip_l.transformer.")
    t5 = {f"text_encoders.t5xxl.transformer.{name}": value for name, value in read(folder, "text_encoder_2").items()}
    return found | t5 | {"text_encoders.clip_l.transformer.text_projection.weight": torch.eye(32)}
