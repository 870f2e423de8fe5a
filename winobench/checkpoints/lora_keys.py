"""Names of tensors in LoRA files: each is a network, a layer and a role.

For the layer ``...attn1.to_q`` of a UNet, with the network's name in the pipeline in front or without it:

- ``unet...attn1.to_q.lora_A.weight``, ``.lora_B.weight``: current diffusers, peft;
- ``unet...attn1.to_q.lora.down.weight``, ``.lora.up.weight``, or with ``.processor`` before ``.to_q``: earlier;
- ``unet...attn1.processor.to_q_lora.down.weight``, ``.up.weight``: the first ones, with ``to_out_lora`` for the output;
- ``base_model.model...`` (peft), ``diffusion_model...`` (ComfyUI): the denoiser;
- ``double_blocks.0.processor.qkv_lora1.down.weight`` (XLabs, FLUX.1): 1 for the image's stream, 2 for the text's;
- ``lora_unet_down_blocks_0_..._attn1_to_q.lora_down.weight`` (kohya): layers in one word, SDXL's blocks also in the
  original code's (``input_blocks_4_1`` is ``down_blocks.1.attentions.0``), every denoiser as ``unet``, T5 as ``te3``;
- ``lycoris_...`` (LyCORIS with other programs): the denoiser's layers in one word.

Other forms of adapters have other endings (`_KEY`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

DENOISER = "unet"  # the part of names without a prefix, and of prefixes of any denoiser
T5 = "text_encoder_3"  # FLUX.1's second encoder, too

_PREFIX = re.compile(r"(unet|transformer|text_encoder(?:_\d)?)\.(.+)")
OF_PEFT = "base_model.model."  # before each name in peft's own files
_ANY_DENOISER = (OF_PEFT, "model.diffusion_model.", "diffusion_model.")
_COMFY = re.compile(r"text_encoders\.(clip_l|clip_g|t5xxl)\.transformer\.")
_COMFY_PARTS = {"clip_l": "text_encoder", "clip_g": "text_encoder_2", "t5xxl": T5}
_BARE_CLIP = re.compile(r"text_model\.|encoder\.layers\.")
_XLABS = re.compile(r"^(double|single)_blocks\.(\d+)\.processor\.(qkv|proj)_lora([12]?)(\..+)")
_XLABS_STREAMS = {("double", "1"): "img_attn.", ("double", "2"): "txt_attn.", ("single", ""): ""}
_KEY = re.compile(
    r"(?P<layer>.+?)(?:"
    r"\.lora_(?P<letter>[AB])(?:\.default)?\.weight"
    r"|\.lora_(?P<kohya>down|up|mid)\.weight"
    r"|(?:\.lora|\.lora_linear_layer|(?P<old>_lora))\.(?P<side>down|up)\.weight"
    r"|(?:\.lora|\.lora_linear_layer|(?P<old_alpha>_lora))?\.(?P<alpha>alpha)"
    r"|\.(?P<other>hada_(?:w[12]_[ab]|t[12])|lokr_(?:w[12](?:_[ab])?|t2)|diff(?:_b)?|[wb]_norm|dora_scale)"
    r"|\.(?P<named>lora_magnitude_vector(?:\.default)?(?:\.weight)?|lora_B(?:\.default)?\.bias|lora[_.]up\.bias)"
    r")"
)
_ROLES = {"A": "down", "B": "up", "w_norm": "diff", "b_norm": "diff_b", "dora_scale": "magnitude"}
# The first names of attention layers -> the layers' own, in denoisers and in text encoders.
_FIRST_NAMES = {"to_q": "to_q", "to_k": "to_k", "to_v": "to_v", "to_out": "to_out.0"}
_FIRST_NAMES_OF_TEXTS = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "out_proj"}
_KOHYA_PARTS = {
    "unet": DENOISER,
    "transformer": "transformer",
    "te": "text_encoder",
    "te1": "text_encoder",
    "te2": "text_encoder_2",
    "te3": T5,
}
_KOHYA = re.compile(rf"(?:lora_({'|'.join(_KOHYA_PARTS)})|lycoris)_([\w-]+)(\..+)")
# What the one-word names of UNets and of CLIP begin with. Those of other networks are left as they are.
_OF_UNET = re.compile(
    r"(?:down|up|input|middle|output)_block|mid_block|(?:time|add|label)_emb(?!eddings)|conv_(?:in|out)\b|out_2\b"
)
_OF_CLIP = re.compile(r"text_model_|text_projection|encoder_layers_")
_WORD = re.compile(r"[a-z][\w-]*")
# Names of modules that hold an underscore: all others in kohya's names mean a dot.
_WORDS = re.compile(
    r"down_blocks|up_blocks|mid_block|transformer_blocks|input_blocks|middle_block|output_blocks|proj_(?:in|out)"
    r"|to_(?:q|k|v|out)|text_model|self_attn|(?:q|k|v|out)_proj|(?:time|add)_embedding|linear_[12]|time_emb_proj"
    r"|conv_(?:in|out|shortcut)|text_projection|[a-z0-9]+"
)


def parse(key: str, bare: str = DENOISER) -> tuple[str, str, str] | None:
    """(part, layer, role such as ``down``, ``up`` or ``alpha``) of a tensor, or None for an unknown form."""
    if match := _KOHYA.fullmatch(key):
        part = _KOHYA_PARTS[match[1]] if match[1] else DENOISER
        known = {DENOISER: _OF_UNET, "transformer": None}.get(part, _OF_CLIP)
        if known is not None and known.match(match[2]):
            layer = _dotted(match[2])
        else:
            layer = match[2] if _WORD.fullmatch(match[2]) else None
        if layer is None:
            return None
        key = f"{part}.{layer}{match[3]}"
    elif key.startswith("lora_"):
        return None
    for prefix in _ANY_DENOISER:
        key = key.removeprefix(prefix)
    if match := _COMFY.match(key):
        key = f"{_COMFY_PARTS[match[1]]}.{key[match.end() :]}"
    if bare == DENOISER and _BARE_CLIP.match(key):
        bare = "text_encoder"
    part, rest = split_prefix(key) or (bare, key)
    rest = _XLABS.sub(_of_xlabs, rest)
    match = _KEY.fullmatch(rest.replace(".processor.", "."))
    if match is None:
        return None
    layer = match["layer"]
    if match["old"] or match["old_alpha"]:
        owner, _, last = layer.rpartition(".")
        names = _FIRST_NAMES_OF_TEXTS if part.startswith("text_encoder") else _FIRST_NAMES
        if last not in names:
            return None
        layer = f"{owner}.{names[last]}"
    if part.startswith("text_encoder") and not layer.startswith(("text_model.", "text_projection")):
        layer = f"text_model.{layer}"
    if match["named"]:
        return part, layer, "magnitude" if "magnitude" in match["named"] else "up_bias"
    role = match["alpha"] or match["side"] or match["kohya"] or match["letter"] or match["other"]
    return part, layer, _ROLES.get(role, role)


def _of_xlabs(match: re.Match[str]) -> str:
    """XLabs' name in the original code's form."""
    kind, number, which, stream, end = match.groups()
    if (kind, stream) not in _XLABS_STREAMS:
        return match[0]
    layer = "linear2" if (kind, which) == ("single", "proj") else f"{_XLABS_STREAMS[kind, stream]}{which}"
    return f"{kind}_blocks.{number}.{layer}.lora{end}"


def split_prefix(key: str) -> tuple[str, str] | None:
    """(network, the rest) of a dotted name; None where it names no network."""
    match = _PREFIX.fullmatch(key)
    return (match[1], match[2]) if match else None


_ORIGINAL_BLOCK = re.compile(r"((?:in|out)put_blocks_[0-9]{1,3}|middle_block)_([0-2])_(.+)")
_ORIGINAL_NAMES = {
    "input_blocks_0_0": "conv_in",
    "out_2": "conv_out",
    "time_embed_0": "time_embedding.linear_1",
    "time_embed_2": "time_embedding.linear_2",
    "label_emb_0_0": "add_embedding.linear_1",
    "label_emb_0_2": "add_embedding.linear_2",
}
_OF_RESNET = {
    "in_layers_0": "norm1",
    "in_layers_2": "conv1",
    "out_layers_0": "norm2",
    "out_layers_3": "conv2",
    "emb_layers_1": "time_emb_proj",
    "skip_connection": "conv_shortcut",
}


def _dotted(name: str) -> str | None:
    """A layer's name of kohya's, in one word, as torch's: ``mid_block_attentions_0`` -> ``mid_block.attentions.0``.

    None for other words, and for a block without its numbers. A block of the original code stays as it is: its layer
    depends on the network's depth (`original_block_to_diffusers`).
    """
    if name in _ORIGINAL_NAMES:
        return _ORIGINAL_NAMES[name]
    words = _WORDS.findall(name)
    if "_".join(words) != name:
        return None
    if words[0] in ("input_blocks", "middle_block", "output_blocks"):
        return name if _ORIGINAL_BLOCK.fullmatch(name) else None
    return ".".join(words)


def original_block_to_diffusers(name: str, depths: Sequence[int]) -> str | None:
    """The original code's name of a layer in a block (Rombach et al., 2022), in one word, as diffusers'.

    ``input_blocks`` begin with the first convolution. Each level ends with a downsampler. ``output_blocks`` have one
    residual block more a level, of which the last is followed by an upsampler.
    """
    match = _ORIGINAL_BLOCK.fullmatch(name)
    if match is None:
        return None
    block, module, rest = match.groups()
    kind = "attentions" if int(module) else "resnets"
    if block == "middle_block":
        kind, position = ("attentions", 0) if module == "1" else ("resnets", int(module) // 2)
        level = "mid_block"
    else:
        side, _, number = block.rpartition("_")
        is_input = side == "input_blocks"
        blocks = [(i, j) for i, depth in enumerate(depths if is_input else depths[::-1]) for j in range(depth + 1)]
        number = int(number) - is_input
        if not 0 <= number < len(blocks):
            return None
        index, position = blocks[number]
        level = f"{'down' if is_input else 'up'}_blocks.{index}"
        if rest in ("op", "conv"):
            return f"{level}.{'down' if rest == 'op' else 'up'}samplers.0.conv"
    rest = _OF_RESNET.get(rest, rest) if kind == "resnets" else ".".join(_WORDS.findall(rest))
    return f"{level}.{kind}.{position}.{rest}"
