"""Every layout of torch's files leads to the same weights; folders written here load in torch."""

import json
import shutil

import diffusers
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from tests.expectations import names, raises
from tests.parity.harness import check_tensors
from winobench import checkpoints
from winobench.base.errors import InputError
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models.autoencoder_kl import AutoencoderKL
from winobench.models.clip import CLIPTextModel
from winobench.models.unet_2d_condition import UNet2DConditionModel

pytestmark = pytest.mark.usefixtures("no_gradients")


NETWORKS = {
    "unet": (UNet2DConditionModel, diffusers.UNet2DConditionModel),
    "vae": (AutoencoderKL, diffusers.AutoencoderKL),
    "text_encoder": (CLIPTextModel, transformers.CLIPTextModel),
}


@pytest.fixture(scope="module")
def torch_networks(tiny_pipeline):
    return {name: theirs.from_pretrained(tiny_pipeline / name) for name, (_, theirs) in NETWORKS.items()}


def same_weights(first, second) -> bool:
    return checkpoints.weights_sha256(first) == checkpoints.weights_sha256(second)


@pytest.mark.parametrize("name", ["vae", "text_encoder"])
def test_shards_written_by_torch(tiny_pipeline, torch_networks, tmp_path, name):
    torch_networks[name].save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*-00002-of-*.safetensors"))) == 1
    ours = NETWORKS[name][0]
    assert same_weights(ours.from_pretrained(tmp_path), ours.from_pretrained(tiny_pipeline, subfolder=name))


@pytest.mark.parametrize("name", ["vae", "text_encoder"])
def test_variants_written_by_torch(tiny_pipeline, tmp_path, name):
    ours, theirs = NETWORKS[name]
    half = theirs.from_pretrained(tiny_pipeline / name).half()
    half.save_pretrained(tmp_path, variant="fp16")
    with pytest.raises(InputError, match=names("fp16.safetensors")):
        ours.from_pretrained(tmp_path)
    loaded = ours.from_pretrained(tmp_path, variant="fp16")
    # The file's rounding is all that differs: the same values in float32.
    half.float().save_pretrained(tmp_path / "rounded")
    assert same_weights(loaded, ours.from_pretrained(tmp_path / "rounded"))
    # A folder with both, in shards: each choice finds its own.
    half.save_pretrained(tmp_path, variant="fp16", max_shard_size="60KB")
    for path in tmp_path.glob("*.fp16.safetensors"):
        if "-of-" not in path.name:
            path.unlink()
    assert list(tmp_path.glob("*.index.fp16.json"))
    assert same_weights(ours.from_pretrained(tmp_path, variant="fp16"), loaded)


def test_half_precision_files(tiny_pipeline, tmp_path):
    """A half-precision file, loaded in float32, holds torch's rounded values; float16 is in the test above."""
    theirs = diffusers.AutoencoderKL.from_pretrained(tiny_pipeline / "vae").to(torch.bfloat16)
    theirs.save_pretrained(tmp_path / "half")
    theirs.float().save_pretrained(tmp_path / "float")
    half, full = (AutoencoderKL.from_pretrained(tmp_path / name) for name in ("half", "float"))
    assert half.encoder.conv_in.kernel.dtype == jnp.float32
    assert same_weights(half, full)
    assert not same_weights(half, AutoencoderKL.from_pretrained(tiny_pipeline, subfolder="vae"))


OLD_NAMES = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}


@pytest.mark.parametrize("convolutions", [False, True])
def test_old_names_of_the_autoencoders_attention(tiny_pipeline, torch_networks, tmp_path, convolutions):
    """As the published SD 1.x files have them; files converted from the original code hold 1 x 1 convolutions."""
    tensors = {}
    for key, tensor in torch_networks["vae"].state_dict().items():
        for new, old in OLD_NAMES.items():
            if f".attentions.0.{new}." in key:
                key = key.replace(f".{new}.", f".{old}.")
                if convolutions and tensor.ndim == 2:
                    tensor = tensor[:, :, None, None]
        tensors[key] = tensor.contiguous()
    assert sum(".proj_attn." in key for key in tensors) == 4
    shutil.copy(tiny_pipeline / "vae" / "config.json", tmp_path)
    safetensors.torch.save_file(tensors, tmp_path / "diffusion_pytorch_model.safetensors")
    reference = AutoencoderKL.from_pretrained(tiny_pipeline, subfolder="vae")
    assert same_weights(AutoencoderKL.from_pretrained(tmp_path), reference)
    if not convolutions:
        # torch reads these names as well, and means the same by them.
        check_tensors(diffusers.AutoencoderKL.from_pretrained(tmp_path), torch_networks["vae"])


@pytest.mark.quick(1)
@pytest.mark.parametrize("linear", [False, True])
def test_projections_stored_in_the_other_form(torch_networks, tmp_path, linear):
    """Dense and 1 x 1 convolutional projections are the same map, so either is read into either."""
    config = dict(torch_networks["unet"].config, use_linear_projection=linear)
    diffusers.UNet2DConditionModel.from_config(config).save_pretrained(tmp_path)
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    reference = UNet2DConditionModel.from_pretrained(tmp_path)
    tensors = safetensors.torch.load_file(path)
    projections = [key for key in tensors if key.endswith((".proj_in.weight", ".proj_out.weight"))]
    assert len(projections) == 8
    for key in projections:
        assert tensors[key].ndim == (2 if linear else 4)
        tensors[key] = (tensors[key][:, :, None, None] if linear else tensors[key][:, :, 0, 0]).contiguous()
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    assert same_weights(UNet2DConditionModel.from_pretrained(tmp_path), reference)


@pytest.mark.parametrize("name", ["vae", "text_encoder"])
def test_pickles_only_when_asked_for(tiny_pipeline, torch_networks, tmp_path, name):
    ours = NETWORKS[name][0]
    shutil.copy(tiny_pipeline / name / "config.json", tmp_path)
    stem = "pytorch_model" if name == "text_encoder" else "diffusion_pytorch_model"
    torch.save(torch_networks[name].state_dict(), tmp_path / f"{stem}.bin")
    with raises("weights-are-a-pickle", "winobench.checkpoints.convert_pickle"):
        ours.from_pretrained(tmp_path)
    loaded = ours.from_pretrained(tmp_path, allow_pickle=True)
    assert same_weights(loaded, ours.from_pretrained(tiny_pipeline, subfolder=name))


@pytest.fixture(scope="module")
def torch_pipeline(tiny_pipeline):
    return diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline, safety_checker=None)


@pytest.fixture(scope="module")
def saved(tiny_pipeline, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    StableDiffusion.from_pretrained(tiny_pipeline).save_pretrained(folder, dtype="float32")
    return folder


def test_torch_loads_what_we_saved_unchanged(saved, torch_pipeline):
    again = diffusers.StableDiffusionPipeline.from_pretrained(saved)
    for name in NETWORKS:
        check_tensors(getattr(again, name), getattr(torch_pipeline, name))
    assert type(again.scheduler) is type(torch_pipeline.scheduler)
    assert torch.equal(again.scheduler.alphas_cumprod, torch_pipeline.scheduler.alphas_cumprod)
    texts = ["a red cube left of the ball", "Something ELSE: 12 zebras?", "", "word " * 100]
    kwargs = {"padding": "max_length", "truncation": True}
    assert again.tokenizer(texts, **kwargs)["input_ids"] == torch_pipeline.tokenizer(texts, **kwargs)["input_ids"]
    image = {"prompt": "a red cube", "num_inference_steps": 2, "output_type": "np", "guidance_scale": 2.0}
    torch_pipeline.set_progress_bar_config(disable=True)
    again.set_progress_bar_config(disable=True)
    first, second = (
        pipeline(**image, generator=torch.Generator().manual_seed(0)).images for pipeline in (torch_pipeline, again)
    )
    np.testing.assert_array_equal(first, second)


def test_recorded_text_states_and_latents(reference_data):
    """The published code's own numbers, float32: SD 1.5's minimal configs and old names."""
    folder = reference_data / "reference_runs"
    recorded = np.load(folder / "sd15_pndm.npz")
    inputs = np.load(folder / "inputs.npz")
    captions = json.loads((folder / "captions.json").read_text())
    bundle = StableDiffusion.from_pretrained(folder / "sd15_tiny")
    np.testing.assert_array_equal(bundle.tokenize(captions), recorded["input_ids"])
    np.testing.assert_array_equal(bundle.tokenize([""]), recorded["empty_ids"])
    np.testing.assert_allclose(bundle.encode_texts(captions), recorded["prompt_embeds"], atol=1e-5)
    np.testing.assert_allclose(bundle.encode_texts([""]), recorded["empty_embeds"], atol=1e-5)
    images = np.stack([inputs[f"resized{number}"] for number in range(3)])
    expected = recorded["latents_mean"].reshape(3, 4, 16, 16).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(bundle.encode_images(images), expected, atol=1e-5)
    np.testing.assert_allclose(bundle.schedule.alphas_cumprod, recorded["alphas_cumprod"], rtol=0, atol=1e-6)
    assert bundle.image_size == 128
