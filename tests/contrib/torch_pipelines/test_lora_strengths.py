"""LoRA by torch: each layer moves by alpha / rank times the product of its factors, whatever names the file has.

Ranks and alphas differ between layers. Layers are all dense ones and convolutions, those of CLIP included. Differences
are shares of a layer's largest change, in float32.
"""

import json

import diffusers
import pytest
import safetensors.torch
import torch

from tests.contrib.torch_pipelines.comparison import cases
from tests.contrib.torch_pipelines.tiny.pipelines import krea2_pipeline
from winobench.contrib.torch_pipelines import adapters
from winobench.contrib.torch_pipelines.families import family_of

TOLERANCE = 1e-4
DIFFUSERS, KOHYA = ("lora_A.weight", "lora_B.weight"), ("lora_down.weight", "lora_up.weight")


def with_loader(**keywords):
    return [case for case in cases(**keywords) if hasattr(getattr(diffusers, case.values[0]), "load_lora_weights")]


def layers(network):
    kinds = (torch.nn.Linear, torch.nn.Conv2d)
    return {name: one for name, one in network.named_modules() if isinstance(one, kinds)}


def adapted(pipe, parts, stem, ends, *, alpha):
    """Tensors of a file, and (part, layer) -> (its strength, the product of its factors)."""
    tensors, products = {}, {}
    for part in parts:
        for number, (name, layer) in enumerate(layers(pipe.components[part]).items()):
            rank, own = (2 + number % 3, 2.0 + number % 5) if alpha is None else (3, alpha)
            outputs, *inputs = layer.weight.shape
            down = 0.1 * torch.randn(rank, *inputs)
            up = 0.1 * torch.randn(outputs, rank, *(1 for _ in inputs[1:]))
            products[part, name] = own / rank, torch.einsum("or,r...->o...", up.flatten(1), down)
            start = stem(part, name)
            tensors |= {f"{start}.{end}": values for end, values in zip(ends, (down, up), strict=True)}
            tensors |= {f"{start}.alpha": torch.tensor(own)} if alpha is None else {}
    return tensors, products


def flattened(part, name):
    if not part.startswith("text_encoder"):
        return f"lora_unet_{name}".replace(".", "_")
    name = name if name.startswith("text_") else f"text_model.{name}"
    return f"lora_te{part[-1] if part[-1].isdigit() else 1}_{name}".replace(".", "_")


FORMS = {
    "diffusers": (lambda part, name: f"{part}.{name}", DIFFUSERS, None, {}),
    "diffusers with kohya's ends": (lambda part, name: f"{part}.{name}", KOHYA, None, {}),
    "ComfyUI": (lambda part, name: f"diffusion_model.{name}", DIFFUSERS, None, {}),
    "kohya": (flattened, KOHYA, None, {}),
    "alpha in the metadata": (lambda part, name: f"{part}.{name}", DIFFUSERS, 12.0, {"lora_alpha": "12", "r": "3"}),
    "peft": (lambda part, name: f"base_model.model.{name}", DIFFUSERS, 12.0, {}),
}
QUICK = ("diffusers with kohya's ends", "peft")


@pytest.mark.parametrize("form", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in FORMS])
@pytest.mark.parametrize(("name", "maker"), with_loader())
def test_every_layer_has_its_strength(name, maker, form, tmp_path):
    stem, ends, alpha, metadata = FORMS[form]
    torch.manual_seed(1)
    pipe = maker.make()
    networks = {part: one for part, one in pipe.components.items() if isinstance(one, torch.nn.Module)}
    before = {part: {key: one.clone() for key, one in net.state_dict().items()} for part, net in networks.items()}
    clips = [part for part, one in networks.items() if "CLIPText" in type(one).__name__]
    bare = form in ("ComfyUI", "peft")
    tensors, products = adapted(pipe, [family_of(name).denoiser, *([] if bare else clips)], stem, ends, alpha=alpha)
    path = tmp_path / "pytorch_lora_weights.safetensors"
    safetensors.torch.save_file(tensors, path, metadata)
    if form == "peft":
        config = {"peft_type": "LORA", "r": 3, "lora_alpha": alpha}
        (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    adapters.fuse(pipe, adapters.read(path), 0.5)
    for part, network in networks.items():
        for key, values in network.state_dict().items():
            strength, product = products.pop((part, key.removesuffix(".weight")), (0.0, torch.zeros(1)))
            wanted = 0.5 * strength * product
            error = (values.float() - before[part][key].float() - wanted).abs().max()
            assert error <= TOLERANCE * wanted.abs().max(), (part, key)
    assert not products


@torch.no_grad()
def test_a_strength_changes_the_identity(tmp_path):
    _, maker = with_loader()[0].values
    tensors, _ = adapted(maker.make(), ["transformer"], FORMS["ComfyUI"][0], DIFFUSERS, alpha=3.0)
    found = []
    for metadata in ({}, {"lora_alpha": "3"}, {"lora_alpha": "6"}):
        path = tmp_path / "pytorch_lora_weights.safetensors"
        safetensors.torch.save_file(tensors, path, metadata)
        found.append(adapters.read(path).sha256)
    assert found[0] == found[1] != found[2]


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.parametrize(
    ("maker", "original", "name"), [(krea2_pipeline, "blocks.0.attn.wq", "transformer_blocks.0.attn.to_q")]
)
def test_names_that_only_diffusers_knows(maker, original, name, tmp_path):
    """Names of the original code, with alphas that diffusers itself would not read."""
    pipe = maker.make()
    layer = layers(pipe.transformer)[name]
    before = layer.weight.clone()
    down, up = torch.randn(2, layer.in_features), torch.randn(layer.out_features, 2)
    start, path = f"diffusion_model.{original}", tmp_path / "pytorch_lora_weights.safetensors"
    tensors = {f"{start}.{end}": values for end, values in zip(DIFFUSERS, (down, up), strict=True)}
    safetensors.torch.save_file(tensors | {f"{start}.alpha": torch.tensor(6.0)}, path)
    adapters.fuse(pipe, adapters.read(path), 1.0)
    torch.testing.assert_close(layer.weight - before, 3 * up @ down, rtol=1e-4, atol=1e-4)
