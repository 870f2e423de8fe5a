"""The published configurations: parameter trees name by name and shape by shape, and configs in both directions."""

import dataclasses
import functools
import json

import diffusers
import pytest
import torch
import transformers

from tests.parity import published_configs
from tests.parity.harness import check_shapes
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.clip import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTextProjectionConfig
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

DIFFUSERS = {
    "unet": (UNet2DConditionModel, UNet2DConditionConfig, diffusers.UNet2DConditionModel, published_configs.UNETS),
    "vae": (AutoencoderKL, AutoencoderKLConfig, diffusers.AutoencoderKL, published_configs.VAES),
}
NAMES = list(published_configs.UNETS)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", DIFFUSERS)
def test_tree(part, name):
    cls, config_class, torch_class, published = DIFFUSERS[part]
    check_shapes(cls, config_class.from_dict(published[name]), lambda: torch_class.from_config(published[name]))


def in_file(name):
    """Published files have a prefix that transformers 5 has dropped from its attributes."""
    return name if name.startswith(("text_model.", "text_projection.")) else f"text_model.{name}"


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", NAMES)
def test_text_encoder_tree(name):
    published = published_configs.TEXT_ENCODERS[name]
    network = functools.partial(transformers.CLIPTextModel, transformers.CLIPTextConfig(**published))
    check_shapes(CLIPTextModel, CLIPTextConfig.from_dict(published), network, in_file)


def test_tree_of_the_second_text_encoder():
    published = published_configs.SDXL_TEXT_2
    theirs, config = transformers.CLIPTextConfig(**published), CLIPTextProjectionConfig.from_dict(published)
    network = functools.partial(transformers.CLIPTextModelWithProjection, theirs)
    check_shapes(CLIPTextModelWithProjection, config, network, in_file)
    assert transformers.CLIPTextConfig(**config.to_dict()).architectures == ["CLIPTextModelWithProjection"]


@pytest.mark.parametrize(
    ("ours", "published"),
    [
        (UNet2DConditionConfig.sd15(), published_configs.UNETS["sd15"]),
        (UNet2DConditionConfig.sd21_base(), published_configs.UNETS["sd21-base"]),
        (UNet2DConditionConfig.sd21(), published_configs.UNETS["sd21"]),
        (UNet2DConditionConfig.sdxl(), published_configs.UNETS["sdxl"]),
        (AutoencoderKLConfig.sd(), published_configs.VAES["sd15"]),
        (dataclasses.replace(AutoencoderKLConfig.sd(), sample_size=768), published_configs.VAES["sd21-base"]),
        (dataclasses.replace(AutoencoderKLConfig.sd(), sample_size=768), published_configs.VAES["sd21"]),
        (AutoencoderKLConfig.sdxl(), published_configs.VAES["sdxl"]),
        (CLIPTextConfig.sd15(), published_configs.TEXT_ENCODERS["sd15"]),
        (CLIPTextConfig.sd21(), published_configs.TEXT_ENCODERS["sd21-base"]),
        (CLIPTextConfig.sd21(), published_configs.TEXT_ENCODERS["sd21"]),
        (CLIPTextConfig.sd15(), published_configs.TEXT_ENCODERS["sdxl"]),
        (CLIPTextProjectionConfig.sdxl_2(), published_configs.SDXL_TEXT_2),
    ],
)
def test_released_sizes(ours, published):
    assert ours == type(ours).from_dict(published)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", DIFFUSERS)
def test_config_means_the_same_to_torch(part, name, tmp_path):
    """What we write for a published config is, with the defaults filled in, the published config."""
    _, config_class, torch_class, published = DIFFUSERS[part]
    config = config_class.from_dict(published[name])
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    with torch.device("meta"):
        expected = dict(torch_class.from_config(published[name]).config)
        written = dict(torch_class.from_config(torch_class.load_config(tmp_path)).config)
    for settings in (expected, written):
        settings.pop("_name_or_path", None)
        settings.pop("_use_default_values", None)
        settings.pop("_diffusers_version", None)
    assert json.dumps(written, sort_keys=True) == json.dumps(expected, sort_keys=True)
    assert config_class.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("name", NAMES)
def test_text_config_means_the_same_to_torch(name):
    published = published_configs.TEXT_ENCODERS[name]
    config = CLIPTextConfig.from_dict(published)
    expected, written = (transformers.CLIPTextConfig(**values) for values in (published, config.to_dict()))
    fields = ("hidden_act", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    fields += ("vocab_size", "eos_token_id", "bos_token_id", "pad_token_id", "layer_norm_eps", "projection_dim")
    for field in fields:
        assert getattr(written, field) == getattr(expected, field) == published[field]
    assert CLIPTextConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("config_class", "torch_class"),
    [(UNet2DConditionConfig, diffusers.UNet2DConditionModel), (AutoencoderKLConfig, diffusers.AutoencoderKL)],
)
def test_defaults_equal_torch(config_class, torch_class):
    """An option that a file leaves out has the same value here and there, and every option there is known here."""
    with torch.device("meta"):
        defaults = dict(torch_class().config)
    ours = config_class.from_dict(defaults)
    assert ours == config_class()


def test_text_defaults_equal_torch():
    assert CLIPTextConfig.from_dict(transformers.CLIPTextConfig().to_dict()) == CLIPTextConfig()
