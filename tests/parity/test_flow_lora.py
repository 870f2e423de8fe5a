"""LoRA of flow models: files that diffusers writes, loaded, fused and saved, with diffusers' own numbers."""

import diffusers
import jax
import numpy as np
import peft
import pytest
import torch

from tests import tiny_flux, tiny_flux2, tiny_sd3, tiny_z_image
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names
from tests.parity import test_flux, test_flux2, test_stable_diffusion_3, test_z_image
from tests.parity.test_scorer import pictures
from winobench import checkpoints, parallel
from winobench.base.errors import InputError
from winobench.diffusion import families
from winobench.scorers.diffusion_itm import DiffusionITM

TARGETS = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_k_proj", "ff.net.0.proj", "proj_out"]
TARGETS += ["ff_context.linear_in", "attn.to_qkv_mlp_proj"]  # klein's alone
TARGETS += ["attention.to_q", "attention.to_out.0", "feed_forward.w2", "layers.0.adaLN_modulation.0"]  # Z-Image's
TARGETS += ["2-1.linear"]
FAMILIES = {
    "sd3": (tiny_sd3.write, diffusers.StableDiffusion3Pipeline, test_stable_diffusion_3.torch_errors),
    "flux": (tiny_flux.write, diffusers.FluxPipeline, test_flux.torch_errors),
    "klein": (tiny_flux2.write, diffusers.Flux2KleinPipeline, test_flux2.torch_errors),
    "z_image": (tiny_z_image.write, diffusers.ZImagePipeline, test_z_image.torch_errors),
}
LEVELS = [0.1, 0.5, 0.9]


@pytest.fixture(scope="module", params=FAMILIES)
def adapted(request, tmp_path_factory):
    """A folder, the file that diffusers writes of random adapters for it, and its errors with them."""
    write, pipeline_class, torch_errors = FAMILIES[request.param]
    folder = write(tmp_path_factory.mktemp(request.param))
    pipeline = pipeline_class.from_pretrained(folder)
    pipeline.transformer.add_adapter(peft.LoraConfig(r=3, lora_alpha=6, target_modules=TARGETS))
    generator = torch.Generator().manual_seed(10)
    for name, parameter in pipeline.transformer.named_parameters():
        if "lora_" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    out = tmp_path_factory.mktemp("lora")
    state = peft.get_peft_model_state_dict(pipeline.transformer)
    metadata = {"transformer_lora_adapter_metadata": pipeline.transformer.peft_config["default"].to_dict()}
    pipeline_class.save_lora_weights(out, transformer_lora_layers=state, **metadata)
    channels = pipeline.vae.config.latent_channels
    noise = np.random.default_rng(1).standard_normal((3, 8, 8, channels), np.float32)
    return folder, out, noise, torch_errors(pipeline, noise, levels=LEVELS)


@pytest.mark.quick(1)
@pytest.mark.parametrize("fuse", [True, False])
def test_errors_with_a_file_of_diffusers(adapted, fuse):
    folder, lora, noise, expected = adapted
    mesh = parallel.make_mesh(jax.devices()[:1])
    scorer = DiffusionITM.from_pretrained(folder, lora=lora, fuse_lora=fuse, batch_size=4, mesh=mesh, image_size=SIZE)
    texts = test_flux.TEXTS
    got = scorer.errors(pictures(SIZE), texts, noise=noise, timesteps=LEVELS)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    plain = DiffusionITM.from_pretrained(folder, batch_size=4, mesh=mesh, image_size=SIZE)
    without = plain.errors(pictures(SIZE), texts, noise=noise, timesteps=LEVELS)
    assert not np.allclose(got, without, rtol=1e-3)


@pytest.mark.quick(1)
def test_what_is_saved_is_read_by_diffusers(adapted, tmp_path):
    folder, lora, noise, expected = adapted
    pipeline = families.load_pipeline(folder)
    checkpoints.load_lora(pipeline, lora, fuse=False)
    checkpoints.save_lora(tmp_path, transformer=pipeline.transformer)
    _, pipeline_class, torch_errors = next(kind for name, kind in FAMILIES.items() if name in folder.name)
    theirs = pipeline_class.from_pretrained(folder)
    theirs.load_lora_weights(tmp_path)
    np.testing.assert_allclose(torch_errors(theirs, noise, levels=LEVELS), expected, rtol=1e-5)


@pytest.mark.parametrize("adapted", ["flux"], indirect=True)
def test_adapters_of_another_family_are_one_sentence(adapted, tmp_path):
    _, lora, _, _ = adapted
    pipeline = families.load_pipeline(tiny_sd3.write(tmp_path))
    with pytest.raises(InputError, match=names("SD3Transformer2DModel", "single_transformer_blocks.0.attn.to_k")):
        checkpoints.load_lora(pipeline, lora)
