"""All weights into which diffusers fuses the adapters of a file, and ours: kohya's convolutions, biases, DoRA, LoKr.

Tensors are random, and ranks differ between layers. Alphas of kohya's files do not: diffusers gives all attention
layers the most frequent one. Differences are relative to a weight's largest value.
"""

import re

import diffusers
import numpy as np
import pytest
import safetensors.torch
import torch

from tests.parity import harness
from tests.parity.whole_pipelines import KINDS
from winobench import checkpoints
from winobench.checkpoints import models
from winobench.diffusion import families

pytestmark = [pytest.mark.usefixtures("no_gradients"), pytest.mark.filterwarnings("ignore:.*invalid shape")]
TOLERANCE = 1e-6


def random(*shape):
    return 0.2 * torch.randn(shape)


def pairs(network, start, ends, *, dotted, named="", alpha=False, kinds=(torch.nn.Linear, torch.nn.Conv2d)):
    """Pairs of factors of layers, with names that begin with ``start`` and end with ``ends``."""
    tensors = {}
    for number, (name, layer) in enumerate(network.named_modules()):
        if not isinstance(layer, kinds) or named not in name:
            continue
        outputs, *inputs = layer.weight.shape
        rank = 2 + number % 3
        stem = start + (name if dotted else name.replace(".", "_"))
        tensors[stem + ends[0]] = random(rank, *inputs)
        tensors[stem + ends[1]] = random(outputs, rank, *(1 for _ in inputs[1:]))
        if alpha:
            tensors[f"{stem}.alpha"] = torch.tensor(2.0)
    return tensors


KOHYA, PEFT, OLD = (
    (".lora_down.weight", ".lora_up.weight"),
    (".lora_A.weight", ".lora_B.weight"),
    (".lora.down.weight", ".lora.up.weight"),
)


def of_kohya(pipeline):
    tensors = pairs(pipeline.unet, "lora_unet_", KOHYA, dotted=False, alpha=True)
    # kohya's name of these layers of SDXL is the original code's, and the only one that diffusers knows.
    tensors = {name.replace("add_embedding_linear_1", "label_emb_0_0"): values for name, values in tensors.items()}
    tensors = {name.replace("add_embedding_linear_2", "label_emb_0_2"): values for name, values in tensors.items()}
    encoders = [getattr(pipeline, part) for part in ("text_encoder", "text_encoder_2") if hasattr(pipeline, part)]
    for number, encoder in enumerate(encoders, 1):
        word = "lora_te_" if len(encoders) == 1 else f"lora_te{number}_"
        # With the part of the name that transformers has left out since.
        word += "" if any("text_model" in name for name, _ in encoder.named_modules()) else "text_model_"
        tensors |= pairs(encoder, word, KOHYA, dotted=False, named="encoder.", alpha=True)
    return tensors


def with_biases(pipeline):
    tensors = pairs(pipeline.transformer, "transformer.", PEFT, dotted=True, named="blocks.1.")
    weights = {name: values for name, values in tensors.items() if name.endswith("lora_B.weight")}
    return tensors | {name.replace("lora_B.weight", "lora_B.bias"): random(len(up)) for name, up in weights.items()}


def of_dora(pipeline):
    tensors = {}
    for name, values in pairs(pipeline.unet, "unet.", PEFT, dotted=True, named="attn2.to_").items():
        tensors[name] = values
        if "lora_B" in name:
            tensors[name.replace("lora_B.weight", "lora_magnitude_vector")] = 1 + random(len(values)).abs()
    return tensors


def of_lokr(layers, width, start):
    shapes = {"lokr_w1": (2, 2), "lokr_w2_a": (width // 2, 3), "lokr_w2_b": (3, width // 2)}
    tensors = {f"{start}{name}.{end}": random(*shape) for name in layers for end, shape in shapes.items()}
    return tensors | {f"{start}{name}.alpha": torch.tensor(1.5) for name in layers}


FILES = {
    "sd15, kohya": ("sd15", of_kohya),
    "flux, biases": ("flux", with_biases),
    "klein, LoKr": ("klein", lambda _: of_lokr([f"transformer_blocks_1_attn_to_{q}" for q in "qk"], 32, "lycoris_")),
    "sd15, as Hyper-SD": ("sd15", lambda pipeline: pairs(pipeline.unet, "unet.", PEFT, dotted=True)),
    "sd15, as earlier diffusers": ("sd15", lambda pipeline: pairs(pipeline.unet, "unet.", OLD, dotted=True)),
    "sd15, DoRA": ("sd15", of_dora),
    "sdxl, kohya": ("sdxl", of_kohya),
    "z_image, LoKr": ("z_image", lambda _: of_lokr(["layers.0.attention.to_q"], 32, "diffusion_model.")),
}


def assert_same_weights(ours, theirs, before):
    """Returns how many weights have moved."""
    moved = 0
    for part, network in ours.networks.items():
        if not network.lora_targets:
            continue
        wanted, old = (dict(getattr(pipeline, part).state_dict()) for pipeline in (theirs, before))
        for name, (path, _) in models.torch_names(network).items():
            values = network
            for key in path:
                values = values[key] if isinstance(key, int) else getattr(values, key)
            values = np.asarray(values[...])
            turned = {4: (3, 2, 0, 1), 2: (1, 0)}[values.ndim] if path[-1] == "kernel" else range(values.ndim)
            name = name if name in wanted else name.removeprefix("text_model.")
            expected = wanted[name].numpy()
            moved += harness.relative_error(old[name].numpy(), expected) > 1e-2
            assert harness.relative_error(values.transpose(*turned).reshape(expected.shape), expected) < TOLERANCE
    return moved


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", FILES)
def test_weights_are_those_that_diffusers_fuses(name, folder_of, tiny_pipeline, tmp_path):
    kind, make = FILES[name]
    folder = tiny_pipeline if kind == "sd15" else folder_of(kind)
    cls = diffusers.StableDiffusionPipeline if kind == "sd15" else KINDS[kind].theirs
    before, theirs = cls.from_pretrained(folder), cls.from_pretrained(folder)
    torch.manual_seed(3)
    tensors = make(theirs)
    path = tmp_path / "pytorch_lora_weights.safetensors"
    safetensors.torch.save_file(tensors, path)
    theirs.load_lora_weights(str(path))
    theirs.fuse_lora(components=[part for part in theirs._lora_loadable_modules if hasattr(theirs, part)])
    theirs.unload_lora_weights()
    ours = families.load_pipeline(folder)
    checkpoints.load_lora(ours, path)
    expected = len({re.split(r"\.lora|\.lokr|\.alpha", key)[0] for key in tensors})
    assert assert_same_weights(ours, theirs, before) >= expected
