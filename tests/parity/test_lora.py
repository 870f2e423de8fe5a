"""LoRA files between here and torch diffusers with peft, both ways, through files.

Each comparison first asserts that torch's own output moves by the adapter: torch passes over names that it does not
know, and two untouched models would agree. Float32; differences are relative to the largest expected value.
"""

import diffusers
import jax.numpy as jnp
import numpy as np
import peft
import pytest
import safetensors.torch
import torch
from diffusers.utils import convert_state_dict_to_diffusers
from flax import nnx

from tests.parity import harness
from winobench import checkpoints
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models import lora

pytestmark = pytest.mark.usefixtures("no_gradients")
# Rounding reaches 3e-6 in the UNet and 7e-7 in the text encoder. The adapters themselves move outputs by more than
# CHANGE, as each test asserts.
TOLERANCE = 2e-5
CHANGE = 1e-2

UNET_TARGETS = ["to_q", "to_k", "to_v", "to_out.0"]
TEXT_TARGETS = ["q_proj", "k_proj", "v_proj", "out_proj"]


@pytest.fixture(scope="module")
def base(tiny_pipeline):
    """Torch's outputs without any adapter."""
    with torch.no_grad():
        return torch_outputs(diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline))


@pytest.fixture
def theirs(tiny_pipeline):
    return diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline)


@pytest.fixture
def ours(tiny_pipeline):
    return StableDiffusion.from_pretrained(tiny_pipeline)


def _inputs():
    generator = torch.Generator().manual_seed(1)
    latents, states = (torch.randn(shape, generator=generator) for shape in ((2, 4, 8, 8), (2, 5, 24)))
    ids = torch.randint(0, 10, (2, 77), generator=generator)
    return latents, torch.tensor([3, 700]), states, ids


def torch_outputs(pipeline) -> tuple[np.ndarray, np.ndarray]:
    """The UNet's output, NHWC, and the text encoder's."""
    latents, timesteps, states, ids = _inputs()
    noise = pipeline.unet(latents, timesteps, states).sample
    return harness.from_nchw(noise), pipeline.text_encoder(ids).last_hidden_state.numpy()


def our_outputs(pipeline) -> tuple[np.ndarray, np.ndarray]:
    latents, timesteps, states, ids = _inputs()
    noise = harness.call(pipeline.unet, harness.from_nchw(latents), jnp.asarray(timesteps.numpy()), states.numpy())
    return noise, harness.call(pipeline.text_encoder, jnp.asarray(ids.numpy(), jnp.int32)).last_hidden_state


def randomize(network) -> None:
    """Random factors, the same on every run; peft starts the second one at zero."""
    generator = torch.Generator().manual_seed(2)
    for name, parameter in network.named_parameters():
        if "magnitude" in name:
            parameter.copy_(parameter * (1 + 0.2 * torch.rand(parameter.shape, generator=generator)))
        elif any(mark in name for mark in ("lora_", "hada_", "lokr_")):
            parameter.copy_(0.15 * torch.randn(parameter.shape, generator=generator))


def make_torch_lora(pipeline, *, rank=3, alpha=3, text_encoder=True, **options) -> None:
    """An adapter made by peft, on the pipeline's UNet and, if asked for, its text encoder."""
    config = {"r": rank, "lora_alpha": alpha, **options}
    pipeline.unet.add_adapter(peft.LoraConfig(target_modules=UNET_TARGETS, **config))
    randomize(pipeline.unet)
    if text_encoder:
        pipeline.text_encoder.add_adapter(peft.LoraConfig(target_modules=TEXT_TARGETS, **config))
        randomize(pipeline.text_encoder)


def save_torch_lora(pipeline, folder, *, metadata: bool) -> None:
    """As diffusers' training scripts do: the newer ones with peft's config, the others with the UNet's older names."""
    layers, configs = {}, {}
    for part in ("unet", "text_encoder"):
        network = getattr(pipeline, part)
        if not getattr(network, "peft_config", None):
            continue
        state = peft.get_peft_model_state_dict(network)
        older = part == "unet" and not metadata
        layers[f"{part}_lora_layers"] = convert_state_dict_to_diffusers(state) if older else state
        configs[f"{part}_lora_adapter_metadata"] = _plain(network.peft_config["default"].to_dict())
    diffusers.StableDiffusionPipeline.save_lora_weights(folder, **layers, **(configs if metadata else {}))
    names = safetensors.torch.load_file(folder / "pytorch_lora_weights.safetensors")
    assert any(one.endswith("attn2.to_q.lora_A.weight" if metadata else "attn2.to_q.lora.down.weight") for one in names)


def _plain(config: dict) -> dict:
    return {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}


def assert_close(got, expected, base, *, changed=(True, True)) -> None:
    """Both outputs agree, and the expected ones have moved away from the base model's where they should."""
    for mine, wanted, before, moved in zip(got, expected, base, changed, strict=True):
        assert (harness.relative_error(before, wanted) > CHANGE) is moved
        assert harness.relative_error(mine, wanted) < TOLERANCE


@pytest.mark.quick(1)
@pytest.mark.parametrize(("rank", "alpha", "scale", "fuse"), [(3, 6, 0.4, False), (4, 10, 1.0, True)])
def test_made_by_torch(base, theirs, ours, tmp_path, rank, alpha, scale, fuse):
    make_torch_lora(theirs, rank=rank, alpha=alpha)
    expected = full = torch_outputs(theirs)
    save_torch_lora(theirs, tmp_path, metadata=True)
    if scale != 1:
        theirs.set_adapters("default", scale)
        expected = torch_outputs(theirs)
        assert harness.relative_error(expected[0], full[0]) > CHANGE
    read = checkpoints.load_lora(ours, tmp_path, scale=scale, fuse=fuse)
    assert read.ranks == (rank,)
    # Transformers down, in the middle and up, of two attention layers with four projections; two layers of text.
    assert len(read.parts["unet"]) == (1 + 1 + 2) * 2 * 4
    assert len(read.parts["text_encoder"]) == 2 * 4
    assert_close(our_outputs(ours), expected, base)


@pytest.mark.slow
def test_without_metadata_torch_and_we_forget_alpha_alike(theirs, ours, tiny_pipeline, tmp_path):
    make_torch_lora(theirs, rank=2, alpha=6)
    trained = torch_outputs(theirs)
    save_torch_lora(theirs, tmp_path, metadata=False)
    again = diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline)
    base = torch_outputs(again)
    again.load_lora_weights(tmp_path, weight_name="pytorch_lora_weights.safetensors")
    expected = torch_outputs(again)
    assert harness.relative_error(expected[0], trained[0]) > CHANGE
    checkpoints.load_lora(ours, tmp_path)
    assert_close(our_outputs(ours), expected, base)


@pytest.mark.parametrize(
    ("targets", "rank", "alpha"), [("cross", 4, None), pytest.param("all", 3, 7.5, marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_made_here(base, theirs, ours, tmp_path, targets, rank, alpha):
    config = lora.LoRAConfig(targets, rank=rank, alpha=alpha)
    rng = np.random.default_rng(0)
    for network in (ours.unet, ours.text_encoder):
        lora.add_lora(network, config, rngs=nnx.Rngs(0))
        for adapter in lora.adapters(network).values():
            adapter.up.set_value(jnp.asarray(0.3 * rng.standard_normal(adapter.up.shape, np.float32)))
    checkpoints.save_lora(tmp_path, unet=ours.unet, text_encoder=ours.text_encoder)
    theirs.load_lora_weights(tmp_path, weight_name="pytorch_lora_weights.safetensors")
    lora.fuse(ours.unet)
    lora.fuse(ours.text_encoder)
    theirs.fuse_lora()
    theirs.unload_lora_weights()
    assert_close(our_outputs(ours), torch_outputs(theirs), base)


LYCORIS, RANKS = ["to_q", "to_v", "proj_in", "conv1", "time_emb_proj"], {"conv1": 2}
CONFIGS = {
    "LoHa": peft.LoHaConfig(
        r=4, alpha=9, target_modules=LYCORIS, use_effective_conv2d=True, alpha_pattern={"conv1": 3}, rank_pattern=RANKS
    ),
    "LoKr": peft.LoKrConfig(r=2, alpha=3, target_modules=LYCORIS, use_effective_conv2d=True, decompose_both=True),
    "patterns": peft.LoraConfig(
        r=4,
        lora_alpha=16,
        target_modules=["to_q", "to_v", "proj_in", "conv1"],
        rank_pattern={"^mid_block.*conv1": 2, "attn2.to_q": 3},
        alpha_pattern={"^to_q": 99, r"(down|up)_blocks\.[01]\..*to_v": 1, "proj_in": 5},
    ),
    "rsLoRA": peft.LoraConfig(
        r=3,
        lora_alpha=2,
        use_rslora=True,
        target_modules=r".*attn[12]\.to_(k|out\.0)|conv_in|.*time_emb_proj|.*samplers\.0\.conv",
        alpha_pattern={"to_k": 7},
    ),
    "layers": peft.LoraConfig(
        r=2,
        lora_alpha=5,
        target_modules=["to_q", "conv2"],
        exclude_modules=["attn1.to_q"],
        layers_to_transform=[0],
        layers_pattern=["down_blocks", "resnets", "up_blocks"],
    ),
    "DoRA": peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=["to_q", "to_out.0", "proj_in", "conv1"], use_dora=True, rank_pattern=RANKS
    ),
    "biases": peft.LoraConfig(r=2, lora_alpha=5, target_modules=["to_out.0", "proj_in", "conv1"], lora_bias=True),
    "LoHa of flat kernels": peft.LoHaConfig(r=3, alpha=9, target_modules=LYCORIS),
    "LoKr of whole factors": peft.LoKrConfig(r=16, alpha=9, target_modules=LYCORIS, alpha_pattern={"to_q": 40}),
}


@pytest.mark.quick(3)
@pytest.mark.filterwarnings("ignore:The following alpha_pattern keys", "ignore:.*invalid shape")
@pytest.mark.parametrize("name", CONFIGS)
def test_folders_of_peft(theirs, ours, tmp_path, name):
    """All weights are those into which peft merges the adapter that it reads."""
    model = peft.get_peft_model(theirs.unet, CONFIGS[name])
    randomize(model)
    model.save_pretrained(tmp_path / "adapter")
    base = {name: values.numpy().copy() for name, values in model.unload().state_dict().items()}
    merged = peft.PeftModel.from_pretrained(theirs.unet, tmp_path / "adapter").merge_and_unload()
    checkpoints.load_lora(ours, tmp_path / "adapter")
    moved = 0
    for layer, mine in lora.adaptable_layers(ours.unet).items():
        wanted = merged.get_submodule(layer).weight.numpy()
        moved += harness.relative_error(base[f"{layer}.weight"], wanted) > CHANGE
        kernel = np.asarray(mine.kernel[...])
        kernel = kernel.T if kernel.ndim == 2 else kernel.transpose(3, 2, 0, 1)
        assert harness.relative_error(kernel, wanted) < 1e-6
        if mine.bias is not None:
            wanted = merged.get_submodule(layer).bias.numpy()
            assert harness.relative_error(np.asarray(mine.bias[...]), wanted) < 1e-6
    assert moved > 3


def kohya_file(unet, path) -> None:
    """Adapters of a UNet's layers in kohya's names, those of convolutions as its scripts and LyCORIS' make them."""
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, layer in unet.named_modules():
        if not isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            continue
        outputs, *inputs = layer.weight.shape
        word = f"lora_unet_{name.replace('.', '_')}"
        up = (outputs, 4, *(1 for _ in inputs[1:]))
        tensors[f"{word}.lora_down.weight"] = 0.15 * torch.randn((4, *inputs), generator=generator)
        tensors[f"{word}.lora_up.weight"] = 0.15 * torch.randn(up, generator=generator)
        tensors[f"{word}.alpha"] = torch.tensor(2.0)
    safetensors.torch.save_file(tensors, path)


@pytest.mark.slow
def test_kohyas_files_with_convolutions(base, theirs, ours, tiny_pipeline, tmp_path):
    """``proj_in`` and ``proj_out`` of Stable Diffusion 1.x are 1 x 1 convolutions; LyCORIS adapts the others, too."""
    kohya_file(theirs.unet, tmp_path / "kohya.safetensors")
    theirs.load_lora_weights(tmp_path, weight_name="kohya.safetensors")
    expected = torch_outputs(theirs)
    checkpoints.load_lora(ours, tmp_path / "kohya.safetensors", fuse=False)
    assert_close(our_outputs(ours), expected, base, changed=(True, False))
    checkpoints.save_lora(tmp_path / "saved", unet=ours.unet)
    lora.fuse(ours.unet)
    assert_close(our_outputs(ours), expected, base, changed=(True, False))
    again = diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline)
    again.load_lora_weights(tmp_path / "saved", weight_name="pytorch_lora_weights.safetensors")
    assert harness.relative_error(torch_outputs(again)[0], expected[0]) < TOLERANCE


@pytest.mark.slow
def test_first_names(base, theirs, ours, tiny_pipeline, tmp_path):
    """Torch passes over them in silence, for want of a prefix."""
    make_torch_lora(theirs, text_encoder=False)
    expected = torch_outputs(theirs)
    tensors = {}
    for key, tensor in peft.get_peft_model_state_dict(theirs.unet).items():
        layer, _, letter = key.removesuffix(".weight").rpartition(".lora_")
        owner, _, last = layer.removesuffix(".0").rpartition(".")
        side = {"A": "down", "B": "up"}[letter]
        tensors[f"{owner}.processor.{last}_lora.{side}.weight"] = tensor.clone()
    path = tmp_path / "pytorch_lora_weights.safetensors"
    assert "mid_block.attentions.0.transformer_blocks.0.attn1.processor.to_out_lora.up.weight" in tensors
    safetensors.torch.save_file(tensors, path)
    again = diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline)
    again.load_lora_weights(tmp_path, weight_name=path.name)
    np.testing.assert_array_equal(torch_outputs(again)[0], base[0])
    checkpoints.load_lora(ours, path)
    assert_close(our_outputs(ours), expected, base, changed=(True, False))


@pytest.mark.slow
def test_names_of_the_time_between(base, theirs, ours, tmp_path):
    """``to_q.lora.down.weight`` and ``q_proj.lora_linear_layer.down.weight``: diffusers 0.18 to 0.23."""
    make_torch_lora(theirs)
    expected = torch_outputs(theirs)
    tensors = {}
    for part, stem in (("unet", "lora"), ("text_encoder", "lora_linear_layer")):
        for key, tensor in peft.get_peft_model_state_dict(getattr(theirs, part)).items():
            key = key.replace("lora_A", f"{stem}.down").replace("lora_B", f"{stem}.up")
            key = f"text_model.{key}" if part == "text_encoder" and not key.startswith("text_model.") else key
            tensors[f"{part}.{key}"] = tensor.clone()
    path = tmp_path / "pytorch_lora_weights.safetensors"
    safetensors.torch.save_file(tensors, path)
    again = diffusers.StableDiffusionPipeline.from_pretrained(theirs.config._name_or_path)
    again.load_lora_weights(tmp_path, weight_name=path.name)
    for loaded, wanted in zip(torch_outputs(again), expected, strict=True):
        assert harness.relative_error(loaded, wanted) < TOLERANCE
    checkpoints.load_lora(ours, path)
    assert_close(our_outputs(ours), expected, base)
