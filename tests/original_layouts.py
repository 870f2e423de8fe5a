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


def _table(text: str) -> list[list[str]]:
    """Pairs of a pattern and what it becomes, one a line, in the order in which they are applied."""
    return [line.split() for line in text.split("\n") if line]


_RESNET = _table(r"""
\bnorm1\b          in_layers.0
\bconv1\b          in_layers.2
\bnorm2\b          out_layers.0
\bconv2\b          out_layers.3
\btime_emb_proj\b  emb_layers.1
\bconv_shortcut\b  skip_connection
""")
_VAE = _table(r"""
down_blocks\.(\d+)\.resnets\.        down.\1.block.
down_blocks\.(\d+)\.downsamplers\.0  down.\1.downsample
mid_block\.resnets\.0                mid.block_1
mid_block\.resnets\.1                mid.block_2
mid_block\.attentions\.0             mid.attn_1
group_norm                           norm
to_([qkv])                           \1
to_out\.0                            proj_out
conv_norm_out                        norm_out
conv_shortcut                        nin_shortcut
""")
_OPEN_CLIP = _table(r"""
encoder\.layers\.                        transformer.resblocks.
layer_norm(\d)                           ln_\1
self_attn                                attn
mlp\.fc1                                 mlp.c_fc
mlp\.fc2                                 mlp.c_proj
final_layer_norm                         ln_final
embeddings\.token_embedding              token_embedding
embeddings\.position_embedding\.weight   positional_embedding
text_projection\.weight                  text_projection
""")
_SD3 = _table(r"""
pos_embed\.pos_embed                         pos_embed
pos_embed\.proj                              x_embedder.proj
time_text_embed\.timestep_embedder\.linear_1 t_embedder.mlp.0
time_text_embed\.timestep_embedder\.linear_2 t_embedder.mlp.2
time_text_embed\.text_embedder\.linear_1     y_embedder.mlp.0
time_text_embed\.text_embedder\.linear_2     y_embedder.mlp.2
^transformer_blocks                          joint_blocks
attn\.to_add_out                             context_block.attn.proj
(attn2?)\.to_out\.0                          x_block.\1.proj
attn\.norm_added_([qk])                      context_block.attn.ln_\1
(attn2?)\.norm_([qk])                        x_block.\1.ln_\2
norm1\.linear                                x_block.adaLN_modulation.1
norm1_context\.linear                        context_block.adaLN_modulation.1
ff\.net\.0\.proj                             x_block.mlp.fc1
ff\.net\.2                                   x_block.mlp.fc2
ff_context\.net\.0\.proj                     context_block.mlp.fc1
ff_context\.net\.2                           context_block.mlp.fc2
^proj_out                                    final_layer.linear
^norm_out\.linear                            final_layer.adaLN_modulation.1
""")
_OF_FLUX = r"""
time_(text|guidance)_embed\.timestep_embedder time_in
time_(text|guidance)_embed\.text_embedder     vector_in
time_(text|guidance)_embed\.guidance_embedder guidance_in
linear_1\.                                    in_layer.
linear_2\.                                    out_layer.
^context_embedder                             txt_in
^x_embedder                                   img_in
^proj_out                                     final_layer.linear
^norm_out\.linear                             final_layer.adaLN_modulation.1
^transformer_blocks                           double_blocks
^single_transformer_blocks                    single_blocks
(single_blocks\.\d+\.)attn\.norm_q\.weight    \1norm.query_norm.scale
(single_blocks\.\d+\.)attn\.norm_k\.weight    \1norm.key_norm.scale
attn\.norm_q\.weight                          img_attn.norm.query_norm.scale
attn\.norm_k\.weight                          img_attn.norm.key_norm.scale
attn\.norm_added_q\.weight                    txt_attn.norm.query_norm.scale
attn\.norm_added_k\.weight                    txt_attn.norm.key_norm.scale
attn\.to_out\.0                               img_attn.proj
attn\.to_add_out                              txt_attn.proj
"""
_FLUX = _table(
    _OF_FLUX
    + r"""
(single_blocks\.\d+\.)norm\.linear  \1modulation.lin
(single_blocks\.\d+\.)proj_out      \1linear2
norm1\.linear                       img_mod.lin
norm1_context\.linear               txt_mod.lin
ff\.net\.0\.proj                    img_mlp.0
ff\.net\.2                          img_mlp.2
ff_context\.net\.0\.proj            txt_mlp.0
ff_context\.net\.2                  txt_mlp.2
"""
)
_FLUX_2 = _table(
    _OF_FLUX
    + r"""
(modulation\w*)\.linear  \1.lin
attn\.to_qkv_mlp_proj    linear1
attn\.to_out\.           linear2.
ff\.linear_in            img_mlp.0
ff\.linear_out           img_mlp.2
ff_context\.linear_in    txt_mlp.0
ff_context\.linear_out   txt_mlp.2
"""
)
_Z_IMAGE = _table(r"""
^all_final_layer\.2-1    final_layer
^all_x_embedder\.2-1     x_embedder
attention\.to_out\.0     attention.out
attention\.norm_([qk])   attention.\1_norm
""")


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
        name = re.sub(r"up_blocks\.(\d+)\.upsamplers\.0", lambda m: f"up.{levels - 1 - int(m[1])}.upsample", name)
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


def flux(tensors, prefix: str = DENOISER, table: list[list[str]] = _FLUX) -> dict[str, torch.Tensor]:
    tensors = dict(tensors)
    if table is _FLUX:
        single = [*(f"attn.to_{each}." for each in "qkv"), "proj_mlp."]
        _join(tensors, r"(single_transformer_blocks\.\d+\.)attn\.to_q\.(weight|bias)", single, "linear1.")
    for joined, parts in (("img_attn", "to_{}"), ("txt_attn", "add_{}_proj")):
        parts = [f"attn.{parts.format(each)}." for each in "qkv"]
        first = re.escape(parts[0])
        _join(tensors, rf"(transformer_blocks\.\d+\.){first}(weight|bias)", parts, f"{joined}.qkv.")
    return {
        prefix + _renamed(name, table): _swapped(tensor) if name.startswith("norm_out.linear") else tensor
        for name, tensor in tensors.items()
    }


def z_image(tensors) -> dict[str, torch.Tensor]:
    tensors = dict(tensors)
    _join(tensors, r"(.*attention\.)to_q\.(weight)", [f"to_{each}." for each in "qkv"], "qkv.")
    return {_renamed(name, _Z_IMAGE): tensor for name, tensor in tensors.items()}


def _join(tensors, first: str, parts, joined: str) -> None:
    """Joins the tensors of these names into one, in place."""
    for name in list(tensors):
        if match := re.fullmatch(first, name):
            each = [tensors.pop(f"{match[1]}{part}{match[2]}") for part in parts]
            tensors[f"{match[1]}{joined}{match[2]}"] = torch.cat(each)


def _swapped(tensor):
    """Scale and shift, which the authors have the other way round."""
    return torch.cat(tensor.chunk(2)[::-1])


def _renamed(name: str, table: list[list[str]]) -> str:
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


def klein_file(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    return flux(read(folder, "transformer"), "", _FLUX_2)


def z_image_file(folder: pathlib.Path) -> dict[str, torch.Tensor]:
    return z_image(read(folder, "transformer")) | {"norm_final.weight": torch.ones(3)}
