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

from tests.parity import torch_copy
from winobench import checkpoints
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models import lora
from winobench.scorers.diffusion_itm import DiffusionITM

pytestmark = pytest.mark.usefixtures("no_gradients")
# Rounding reaches 3e-6 in the UNet and 7e-7 in the text encoder. The adapters themselves move outputs by more than
# CHANGE, as each test asserts.
TOLERANCE = 2e-5
# Errors are sums of squares over all latents, in which rounding averages out: it reaches 3e-7.
ERROR_TOLERANCE = 1e-5
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
    return torch_copy.from_nchw(noise), pipeline.text_encoder(ids).last_hidden_state.numpy()


def our_outputs(pipeline) -> tuple[np.ndarray, np.ndarray]:
    latents, timesteps, states, ids = _inputs()
    noise = torch_copy.call(
        pipeline.unet, latents.permute(0, 2, 3, 1).numpy(), jnp.asarray(timesteps.numpy()), states.numpy()
    )
    return noise, torch_copy.call(pipeline.text_encoder, jnp.asarray(ids.numpy(), jnp.int32)).last_hidden_state


def randomize(network) -> None:
    """Random factors, the same on every run; peft starts the second one at zero."""
    generator = torch.Generator().manual_seed(2)
    for name, parameter in network.named_parameters():
        if "lora_" in name:
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
    assert any(
        name.endswith("attn2.to_q.lora_A.weight" if metadata else "attn2.to_q.lora.down.weight") for name in names
    )


def _plain(config: dict) -> dict:
    return {key: sorted(value) if isinstance(value, set) else value for key, value in config.items()}


def assert_close(got, expected, base, *, changed=(True, True)) -> None:
    """Both outputs agree, and the expected ones have moved away from the base model's where they should."""
    for mine, wanted, before, moved in zip(got, expected, base, changed, strict=True):
        assert (torch_copy.relative_error(before, wanted) > CHANGE) is moved
        assert torch_copy.relative_error(mine, wanted) < TOLERANCE


@pytest.mark.parametrize(("rank", "alpha", "fuse"), [(3, 3, False), pytest.param(4, 10, True, marks=pytest.mark.slow)])
def test_made_by_torch(base, theirs, ours, tmp_path, rank, alpha, fuse):
    make_torch_lora(theirs, rank=rank, alpha=alpha)
    expected = torch_outputs(theirs)
    save_torch_lora(theirs, tmp_path, metadata=True)
    read = checkpoints.load_lora(ours, tmp_path, fuse=fuse)
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
    assert torch_copy.relative_error(expected[0], trained[0]) > CHANGE
    checkpoints.load_lora(ours, tmp_path)
    assert_close(our_outputs(ours), expected, base)


# A pattern for one of the networks matches nothing in the other.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The following (alpha|rank)_pattern keys")
@pytest.mark.parametrize(
    "options",
    [
        {"use_rslora": True, "alpha": 2},
        {"alpha": 2, "alpha_pattern": {"to_k": 5, "attn2.to_q": 7, "v_proj": 9}, "rank_pattern": {"to_v": 2}},
    ],
)
def test_options_of_peft(base, theirs, ours, tmp_path, options):
    make_torch_lora(theirs, rank=4, **options)
    expected = torch_outputs(theirs)
    save_torch_lora(theirs, tmp_path, metadata=True)
    checkpoints.load_lora(ours, tmp_path, fuse=False)
    assert_close(our_outputs(ours), expected, base)


def test_scale_is_torchs(base, theirs, ours, tmp_path):
    make_torch_lora(theirs, rank=3, alpha=6)
    full = torch_outputs(theirs)
    save_torch_lora(theirs, tmp_path, metadata=True)
    theirs.set_adapters("default", 0.4)
    expected = torch_outputs(theirs)
    assert torch_copy.relative_error(expected[0], full[0]) > CHANGE
    checkpoints.load_lora(ours, tmp_path, scale=0.4)
    assert_close(our_outputs(ours), expected, base)


@pytest.mark.parametrize(
    ("targets", "rank", "alpha"), [("cross", 4, None), pytest.param("all", 3, 7.5, marks=pytest.mark.slow)]
)
def test_made_here(base, theirs, ours, tmp_path, targets, rank, alpha):
    config = lora.LoRAConfig(targets, rank=rank, alpha=alpha)
    rng = np.random.default_rng(0)
    for network in (ours.unet, ours.text_encoder):
        lora.add_lora(network, config, rngs=nnx.Rngs(0))
        for adapter in lora.adapters(network).values():
            adapter.up.set_value(jnp.asarray(0.3 * rng.standard_normal(adapter.up.shape, np.float32)))
    checkpoints.save_lora(tmp_path, unet=ours.unet, text_encoder=ours.text_encoder)
    theirs.load_lora_weights(tmp_path, weight_name="pytorch_lora_weights.safetensors")
    expected = torch_outputs(theirs)
    assert_close(our_outputs(ours), expected, base)
    lora.fuse(ours.unet)
    lora.fuse(ours.text_encoder)
    theirs.fuse_lora()
    theirs.unload_lora_weights()
    assert_close(our_outputs(ours), torch_outputs(theirs), base)


CONFIGS = {
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
}


@pytest.mark.quick(1)
@pytest.mark.filterwarnings("ignore:The following alpha_pattern keys")
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
        moved += torch_copy.relative_error(base[f"{layer}.weight"], wanted) > CHANGE
        kernel = np.asarray(mine.kernel[...])
        kernel = kernel.T if kernel.ndim == 2 else kernel.transpose(3, 2, 0, 1)
        assert torch_copy.relative_error(kernel, wanted) < 1e-6
    assert moved > 3


def kohya_file(unet, path, chosen) -> None:
    """Adapters of a UNet's layers in kohya's names, those of convolutions as its scripts and LyCORIS' make them."""
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, layer in unet.named_modules():
        if not (chosen(name) and isinstance(layer, torch.nn.Linear | torch.nn.Conv2d)):
            continue
        outputs, *inputs = layer.weight.shape
        word = f"lora_unet_{name.replace('.', '_')}"
        up = (outputs, 4, *(1 for _ in inputs[1:]))
        tensors[f"{word}.lora_down.weight"] = 0.15 * torch.randn((4, *inputs), generator=generator)
        tensors[f"{word}.lora_up.weight"] = 0.15 * torch.randn(up, generator=generator)
        tensors[f"{word}.alpha"] = torch.tensor(2.0)
    safetensors.torch.save_file(tensors, path)


@pytest.mark.parametrize(
    ("chosen", "fuse"),
    [
        pytest.param(lambda name: ".attentions." in name, True, id="kohya", marks=pytest.mark.slow),
        pytest.param(lambda name: True, False, id="all layers"),
    ],
)
def test_kohyas_files_with_convolutions(base, theirs, ours, tiny_pipeline, tmp_path, chosen, fuse):
    """``proj_in`` and ``proj_out`` of Stable Diffusion 1.x are 1 x 1 convolutions; LyCORIS adapts the others, too."""
    kohya_file(theirs.unet, tmp_path / "kohya.safetensors", chosen)
    theirs.load_lora_weights(tmp_path, weight_name="kohya.safetensors")
    expected = torch_outputs(theirs)
    checkpoints.load_lora(ours, tmp_path / "kohya.safetensors", fuse=fuse)
    assert_close(our_outputs(ours), expected, base, changed=(True, False))
    if not fuse:
        checkpoints.save_lora(tmp_path / "saved", unet=ours.unet)
        again = diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline)
        again.load_lora_weights(tmp_path / "saved", weight_name="pytorch_lora_weights.safetensors")
        assert torch_copy.relative_error(torch_outputs(again)[0], expected[0]) < TOLERANCE


def _first_names(unet, *, prefix: str) -> dict[str, torch.Tensor]:
    """The tensors of a UNet's adapter under the names of the first LoRA files."""
    renamed = {}
    for key, tensor in peft.get_peft_model_state_dict(unet).items():
        layer, _, letter = key.removesuffix(".weight").rpartition(".lora_")
        owner, _, last = layer.removesuffix(".0").rpartition(".")
        side = {"A": "down", "B": "up"}[letter]
        renamed[f"{prefix}{owner}.processor.{last}_lora.{side}.weight"] = tensor.clone()
    return renamed


@pytest.mark.parametrize("prefix", [pytest.param("unet.", marks=pytest.mark.slow), ""])
def test_first_names(base, theirs, ours, tiny_pipeline, tmp_path, prefix):
    """Torch reads them with a prefix, and passes over them in silence without; we read both."""
    make_torch_lora(theirs, text_encoder=False)
    expected = torch_outputs(theirs)
    path = tmp_path / "pytorch_lora_weights.safetensors"
    tensors = _first_names(theirs.unet, prefix=prefix)
    assert f"{prefix}mid_block.attentions.0.transformer_blocks.0.attn1.processor.to_out_lora.up.weight" in tensors
    safetensors.torch.save_file(tensors, path)

    again = diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline)
    again.load_lora_weights(tmp_path, weight_name=path.name)
    loaded = torch_outputs(again)[0]
    if prefix:
        assert torch_copy.relative_error(loaded, expected[0]) < TOLERANCE
    else:
        np.testing.assert_array_equal(loaded, base[0])
    checkpoints.load_lora(ours, path)
    assert_close(our_outputs(ours), expected, base, changed=(True, False))


def test_first_file_as_a_pickle(theirs, tmp_path):
    make_torch_lora(theirs, text_encoder=False)
    tensors = _first_names(theirs.unet, prefix="")
    safetensors.torch.save_file(tensors, tmp_path / "same.safetensors")
    torch.save(tensors, tmp_path / "pytorch_lora_weights.bin")
    read = checkpoints.read_lora(tmp_path, allow_pickle=True)
    assert read.sha256 == checkpoints.read_lora(tmp_path / "same.safetensors").sha256


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
        assert torch_copy.relative_error(loaded, wanted) < TOLERANCE
    checkpoints.load_lora(ours, path)
    assert_close(our_outputs(ours), expected, base)


@pytest.mark.slow  # two whole scorers each
@pytest.mark.parametrize("fuse", [False, True])
def test_errors_of_the_scorer(theirs, tiny_pipeline, tmp_path, fuse):
    """Denoising errors under a LoRA equal those computed with torch, image by text by sample."""
    images = [np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8) for seed in range(2)]
    texts = ["a red cube", "a blue ball left of a red cube"]
    timesteps = [50, 400, 900]
    noise = np.random.default_rng(9).standard_normal((3, 8, 8, 4)).astype(np.float32)
    base = torch_errors(theirs, images, texts, noise, timesteps)
    make_torch_lora(theirs, rank=3, alpha=6)
    save_torch_lora(theirs, tmp_path, metadata=True)
    expected = torch_errors(theirs, images, texts, noise, timesteps)
    assert np.median(np.abs(expected - base) / base) > CHANGE
    scorer = DiffusionITM.from_pretrained(tiny_pipeline, lora=tmp_path, fuse_lora=fuse, batch_size=4)
    got = scorer.errors(images, texts, noise=noise, timesteps=timesteps)
    np.testing.assert_allclose(got, expected, rtol=ERROR_TOLERANCE)


def torch_errors(pipeline, images, texts, noise, timesteps) -> np.ndarray:
    """||eps - unet(z_t, t, text)||^2 with torch, float64 sums: [images, texts, samples]."""
    pixels = torch.stack([torch.from_numpy(image).permute(2, 0, 1).float() / 127.5 - 1 for image in images])
    latents = pipeline.vae.encode(pixels).latent_dist.mean * pipeline.vae.config.scaling_factor
    ids = pipeline.tokenizer(texts, padding="max_length", truncation=True, max_length=77, return_tensors="pt").input_ids
    states = pipeline.text_encoder(ids).last_hidden_state
    kept = pipeline.scheduler.alphas_cumprod
    errors = np.zeros((len(images), len(texts), len(timesteps)))
    for s, timestep in enumerate(timesteps):
        eps = torch.from_numpy(noise[s]).permute(2, 0, 1)[None]
        noisy = kept[timestep].sqrt() * latents + (1 - kept[timestep]).sqrt() * eps
        for i in range(len(images)):
            rows = noisy[i : i + 1].expand(len(texts), -1, -1, -1)
            predicted = pipeline.unet(rows, torch.full((len(texts),), timestep), states).sample
            errors[i, :, s] = (eps - predicted).double().square().sum(dim=(1, 2, 3)).numpy()
    return errors
