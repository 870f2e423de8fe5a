"""LoRA of flow models: files that diffusers writes, loaded, fused and saved, with diffusers' own numbers."""

import jax
import numpy as np
import peft
import pytest
import torch

from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.parity.test_scorer import make_images
from tests.parity.whole_pipelines import LEVELS, TEXTS
from winobench import checkpoints, parallel
from winobench.diffusion import families
from winobench.scorers.diffusion_itm import DiffusionITM

TARGETS = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_k_proj", "ff.net.0.proj", "proj_out"]
TARGETS += ["ff_context.linear_in", "attn.to_qkv_mlp_proj"]  # klein's alone
TARGETS += ["attention.to_q", "attention.to_out.0", "feed_forward.w2", "layers.0.adaLN_modulation.0"]  # Z-Image's
TARGETS += ["2-1.linear"]
FAMILIES = ("sd3", "flux", "klein", "z_image")


@pytest.fixture(scope="module", params=FAMILIES)
def adapted(request, whole, tmp_path_factory):
    """A folder, the file that diffusers writes of random adapters for it, and its errors with them."""
    case = whole(request.param)
    pipeline = case.kind.theirs.from_pretrained(case.folder)
    pipeline.transformer.add_adapter(peft.LoraConfig(r=3, lora_alpha=6, target_modules=TARGETS))
    generator = torch.Generator().manual_seed(10)
    for name, parameter in pipeline.transformer.named_parameters():
        if "lora_" in name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    out = tmp_path_factory.mktemp("lora")
    state = peft.get_peft_model_state_dict(pipeline.transformer)
    metadata = {"transformer_lora_adapter_metadata": pipeline.transformer.peft_config["default"].to_dict()}
    case.kind.theirs.save_lora_weights(out, transformer_lora_layers=state, **metadata)
    return case, out, case.torch_errors(pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("fuse", [True, False])
def test_errors_with_a_file_of_diffusers(adapted, fuse):
    case, lora, expected = adapted
    mesh = parallel.make_mesh(jax.devices()[:1])
    options = {"fuse_lora": fuse, "batch_size": 4, "mesh": mesh, "image_size": SIZE}
    scorer = DiffusionITM.from_pretrained(case.folder, lora=lora, **options)
    got = scorer.errors(make_images(SIZE), TEXTS, noise=case.noise, timesteps=LEVELS)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    assert not np.allclose(got, case.expected, rtol=1e-3)


@pytest.mark.quick(1)
def test_what_is_saved_is_read_by_diffusers(adapted, tmp_path):
    case, lora, expected = adapted
    pipeline = families.load_pipeline(case.folder)
    checkpoints.load_lora(pipeline, lora, fuse=False)
    checkpoints.save_lora(tmp_path, transformer=pipeline.transformer)
    theirs = case.kind.theirs.from_pretrained(case.folder)
    theirs.load_lora_weights(tmp_path)
    np.testing.assert_allclose(case.torch_errors(theirs), expected, rtol=1e-5)
