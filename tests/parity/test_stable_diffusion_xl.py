"""SDXL against torch diffusers: what other pipelines do not have (see `test_whole_pipelines`)."""

import json
import shutil

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import peft
import pytest
import safetensors.torch
import torch

from tests.expectations import names, raises
from tests.parity.harness import call, relative_error
from tests.parity.test_scorer import make_images
from tests.parity.whole_pipelines import SIZE, TEXTS, TIMESTEPS, one_device
from winobench import checkpoints
from winobench.base.errors import InputError
from winobench.checkpoints import lora_layers
from winobench.diffusion import families
from winobench.diffusion.stable_diffusion_xl import StableDiffusionXL
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig


@pytest.fixture(scope="module")
def case(whole):
    return whole("sdxl")


@pytest.fixture(scope="module")
def ours(case):
    return case.ours


@pytest.fixture(scope="module")
def theirs(case):
    return case.theirs


@pytest.mark.slow
def test_the_network(ours, theirs):
    """Only the first convolution lies ahead of the pooled text, so the scorer repeats samples; the network can."""
    assert not ours.unet.shares_rows
    random, rows = np.random.default_rng(2), np.array([1, 0, 1])
    x, states = random.standard_normal((2, 8, 8, 4), np.float32), random.standard_normal((3, 77, 64), np.float32)
    pooled, times = random.standard_normal((3, 32), np.float32), np.array([7.0, 951.0], np.float32)
    sizes = np.array([[32, 40, 3, 5, 24, 48], [9, 8, 7, 6, 5, 4], [40, 32, 1, 2, 8, 16]])
    with torch.inference_mode():
        expected = theirs.unet(
            torch.tensor(x[rows].transpose(0, 3, 1, 2)),
            torch.tensor(times[rows]),
            torch.tensor(states),
            added_cond_kwargs={"text_embeds": torch.tensor(pooled), "time_ids": torch.tensor(sizes)},
        ).sample.numpy()
    got = call(ours.unet, x, times, states, rows, text_embeds=pooled, time_ids=sizes)
    assert relative_error(got, expected.transpose(0, 2, 3, 1)) < 1e-5
    with pytest.raises(ValueError, match=names("text_embeds", "time_ids")):
        ours.unet(x, times, states)
    assert ours.tokenize(["a"], image_size=64)["time_ids"].tolist() == [[64, 64, 0, 0, 64, 64]]


@pytest.mark.slow
def test_the_empty_text_as_zeros(case, ours, theirs):
    """And the errors of the other texts, which are as without."""
    zeros = ours.replace(zero_empty_text=True)
    np.testing.assert_allclose(case.errors(zeros), case.torch_errors(zeros=True), rtol=1e-4)
    assert zeros.fingerprint != ours.fingerprint
    with torch.inference_mode():
        _, negative, _, negative_pooled = theirs.encode_prompt(["a photo"], device="cpu")
    assert not negative.any()
    assert not negative_pooled.any()


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("by_folder", "setting", "negative", "scale"),
    [(True, None, None, 3.0), (True, False, "", 3.0), (False, True, None, 3.0), (True, None, None, 0.0)],
)
@pytest.mark.slow
@pytest.mark.usefixtures("single_device")
def test_generation(ours, theirs, by_folder, setting, negative, scale):
    """By default as diffusers' call without a scheduler or a negative prompt; an empty prompt is encoded."""
    texts, noise = ["a red cube", ""], np.random.default_rng(3).standard_normal((2, 8, 8, 4), np.float32)
    options = {"num_inference_steps": 3, "guidance_scale": scale, "height": SIZE, "width": SIZE, "output_type": "np"}
    theirs.register_to_config(force_zeros_for_empty_prompt=by_folder or bool(setting))
    theirs.set_progress_bar_config(disable=True)
    with torch.inference_mode():
        negatives = None if negative is None else [negative] * 2
        latents = torch.tensor(noise.transpose(0, 3, 1, 2))
        expected = theirs(texts, negative_prompt=negatives, latents=latents, **options).images
    theirs.register_to_config(force_zeros_for_empty_prompt=True)
    drawing = ours.replace(force_zeros_for_empty_prompt=by_folder, zero_empty_text=setting)
    got = drawing.generate(texts, num_steps=3, guidance_scale=scale, latents=noise, batch_size=2)
    assert np.abs(got / 255 - expected).max() < 1 / 255


def test_the_two_uses_of_the_empty_text_have_identities_of_their_own(ours):
    """Scores of a folder are those recorded before; images that zeros were used for are told from earlier ones."""
    assert ours.zero_empty_text is None
    assert ours.fingerprint == ours.replace(zero_empty_text=False).fingerprint
    assert ours.fingerprint == ours.replace(force_zeros_for_empty_prompt=False).fingerprint
    assert ours.generation_identity(3.0, None, SIZE) == {"zero_empty_text": True}
    without = [ours.replace(zero_empty_text=value) for value in (True, False)]
    without.append(ours.replace(force_zeros_for_empty_prompt=False))
    assert [pipeline.generation_identity(3.0, None, SIZE) for pipeline in without] == [{}] * 3
    assert ours.generation_identity(1.0, None, SIZE) == {}
    assert ours.generation_identity(0.0, None, SIZE) == {"guided": False}
    # Earlier versions gave the UNet the model's own size for an image of another one.
    assert ours.generation_identity(1.0, None, 2 * SIZE) == {"conditioned_size": 2 * SIZE}


def test_a_setting_of_the_folder_is_kept(ours, tmp_path):
    assert (ours.zero_empty_text, ours.force_zeros_for_empty_prompt) == (None, True)
    ours.replace(force_zeros_for_empty_prompt=False).save_pretrained(tmp_path / "encoded", dtype="float32")
    assert not StableDiffusionXL.read_description(tmp_path / "encoded").settings["force_zeros_for_empty_prompt"]


@pytest.fixture(scope="module")
def adapted(case, tmp_path_factory):
    """Torch's pipeline with random adapters on all three networks, and the file that diffusers writes of them."""
    pipeline = diffusers.StableDiffusionXLPipeline.from_pretrained(case.folder)
    unet_targets = ["to_q", "to_k", "to_v", "to_out.0", "ff.net.0.proj", "proj_in"]
    pipeline.unet.add_adapter(peft.LoraConfig(r=3, lora_alpha=6, target_modules=unet_targets))
    for encoder in (pipeline.text_encoder, pipeline.text_encoder_2):
        encoder.add_adapter(peft.LoraConfig(r=2, lora_alpha=2, target_modules=["q_proj", "out_proj"]))
    for number, network in enumerate((pipeline.unet, pipeline.text_encoder, pipeline.text_encoder_2)):
        generator = torch.Generator().manual_seed(10 + number)
        for name, parameter in network.named_parameters():
            if "lora_" in name:
                parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    folder = tmp_path_factory.mktemp("lora")
    layers = {
        f"{part}_lora_layers": peft.get_peft_model_state_dict(getattr(pipeline, part))
        for part in ("unet", "text_encoder", "text_encoder_2")
    }
    metadata = {"unet_lora_adapter_metadata": pipeline.unet.peft_config["default"].to_dict()}
    diffusers.StableDiffusionXLPipeline.save_lora_weights(folder, **layers, **metadata)
    return pipeline, folder


@pytest.mark.slow
def test_lora_of_diffusers(case, adapted):
    pipeline, place = adapted
    ours = families.load_pipeline(case.folder)
    checkpoints.load_lora(ours, place)
    np.testing.assert_allclose(case.errors(ours), case.torch_errors(pipeline), rtol=1e-4)


# The original code's places of the blocks that the small UNet has, of SDXL's three levels and two layers.
PLACES = {
    "down_blocks.1.attentions.0": "input_blocks_4_1",
    "down_blocks.1.attentions.1": "input_blocks_5_1",
    "down_blocks.2.attentions.0": "input_blocks_7_1",
    "mid_block.attentions.0": "middle_block_1",
    "up_blocks.0.attentions.2": "output_blocks_2_1",
    "up_blocks.1.attentions.0": "output_blocks_3_1",
    "down_blocks.0.resnets.1.time_emb_proj": "input_blocks_2_0_emb_layers_1",
    "mid_block.resnets.1.time_emb_proj": "middle_block_2_emb_layers_1",
    "up_blocks.2.resnets.0.time_emb_proj": "output_blocks_6_0_emb_layers_1",
}


def kohya_name(layer):
    for ours, theirs in PLACES.items():
        layer = layer.replace(ours, theirs)
    return f"lora_unet_{layer.replace('.', '_')}"


@pytest.mark.slow
def test_kohyas_names_of_sdxls_blocks_are_those_of_diffusers(tmp_path):
    """Diffusers' own reading of such names, for the blocks of the released size, is the reference."""
    random = np.random.default_rng(5)
    layers = [f"{block}.transformer_blocks.1.attn1.to_q" if "attentions" in block else block for block in PLACES]
    layers += ["mid_block.attentions.0.transformer_blocks.9.ff.net.0.proj", "up_blocks.0.attentions.2.proj_in"]
    tensors = {}
    for layer in layers:
        name = kohya_name(layer)
        tensors[f"{name}.lora_down.weight"] = torch.tensor(random.standard_normal((2, 4)), dtype=torch.float32)
        tensors[f"{name}.lora_up.weight"] = torch.tensor(random.standard_normal((4, 2)), dtype=torch.float32)
        tensors[f"{name}.alpha"] = torch.tensor(2.0)
    safetensors.torch.save_file(tensors, tmp_path / "kohya.safetensors")
    config = diffusers.UNet2DConditionModel(
        block_out_channels=(8, 8, 8),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        cross_attention_dim=4,
        attention_head_dim=2,
    ).config
    state, _ = diffusers.StableDiffusionXLPipeline.lora_state_dict(
        str(tmp_path / "kohya.safetensors"), unet_config=config
    )
    safetensors.torch.save_file(
        {key: value.contiguous() for key, value in state.items()}, tmp_path / "theirs.safetensors"
    )
    theirs = checkpoints.read_lora(tmp_path / "theirs.safetensors").parts["unet"]
    network = checkpoints.abstract_model(UNet2DConditionModel, UNet2DConditionConfig.sdxl())
    read = lora_layers.fitted(network, checkpoints.read_lora(tmp_path / "kohya.safetensors").parts["unet"])
    assert set(read) == set(theirs) == set(layers)
    for layer, adapter in read.items():
        np.testing.assert_array_equal(adapter.down, tensors[f"{kohya_name(layer)}.lora_down.weight"])


def test_folders_that_contradict_themselves(case, tmp_path):
    shutil.copytree(case.folder, tmp_path / "mixed")
    path = tmp_path / "mixed" / "unet" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"projection_class_embeddings_input_dim": 90}))
    with raises("mismatched-parts", "32", "UNet", "42"):
        families.load_pipeline(tmp_path / "mixed")
    path.write_text(json.dumps(config | {"addition_time_embed_dim": None}))
    with raises("unsupported-option", "addition_time_embed_dim=None"):
        families.load_pipeline(tmp_path / "mixed")
    index = tmp_path / "mixed" / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"_class_name": "StableDiffusionPipeline"}))
    with pytest.raises(InputError, match=names("text_encoder_2", "StableDiffusionPipeline")):
        families.load_pipeline(tmp_path / "mixed")


@pytest.mark.slow
def test_bfloat16(case, ours):
    rough = one_device(families.load_pipeline(case.folder, "bfloat16", encoder_dtype="float32"))
    found = rough.errors(make_images(SIZE), TEXTS, noise=case.noise, timesteps=TIMESTEPS)
    np.testing.assert_allclose(found, case.found, rtol=0.05)
    assert rough._texts.encoder.empty_table(1, jax.tree.map(lambda x: x[0], ours.tokenize(["a"])))["pooled"].dtype == (
        jnp.bfloat16
    )
