"""Configs: what is read, what is refused, and in which words."""

import dataclasses
import json

import pytest

from tests.expectations import raises
from tests.parity import published_configs
from winobench.base import options
from winobench.base.errors import InputError
from winobench.models.autoencoder_kl import AutoencoderKLConfig
from winobench.models.clip import CLIPTextConfig
from winobench.models.config import NetworkConfig
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

UNET = published_configs.UNETS["sd15"]
VAE = published_configs.VAES["sd15"]
TEXT = published_configs.TEXT_ENCODERS["sd15"]
PUBLISHED = {UNet2DConditionConfig: UNET, AutoencoderKLConfig: VAE, CLIPTextConfig: TEXT}


def test_values_are_read():
    config = UNet2DConditionConfig.from_dict(published_configs.UNETS["sd21"])
    assert config.attention_head_dim == (5, 10, 20, 20)
    assert config.per_level("attention_head_dim") == (5, 10, 20, 20)
    assert config.per_level("layers_per_block") == (2, 2, 2, 2)
    assert config.use_linear_projection
    assert config.upcast_attention
    assert AutoencoderKLConfig.from_dict(VAE).scaling_factor == 0.18215
    assert AutoencoderKLConfig.from_dict(VAE).downsampling == 8
    assert CLIPTextConfig.from_dict(TEXT).hidden_act == "quick_gelu"


@pytest.mark.parametrize(("cls", "values"), PUBLISHED.items())
def test_configs_are_values(cls, values):
    one, two = cls.from_dict(values), cls.from_dict(json.loads(json.dumps(values)))
    assert one == two
    assert hash(one) == hash(two)
    with pytest.raises(AttributeError):
        one.in_channels = 9


REFUSED = {
    UNet2DConditionConfig: [
        *(("num_heads", 8), ("only_cross_attention", [True, False, False, False]), ("num_class_embeds", 10)),
        *(("mid_block_type", None), ("dropout", 0.1), ("up_block_types", ["UpBlock2D"] * 3), ("norm_eps", -1e-5)),
        ("down_block_types", ["CrossAttnDownBlock2D", "AttnDownBlock2D"] * 2),
        *(("block_out_channels", [320, 640, 1280, 1281]), ("layers_per_block", [2, 2]), ("attention_head_dim", 7)),
        *(("transformer_layers_per_block", [[1, 2], 1, 1, 1]), ("act_fn", "mish"), ("downsample_padding", 2)),
        *(("conv_in_kernel", 4), ("flip_sin_to_cos", "yes"), ("freq_shift", 160), ("time_embedding_dim", 0)),
    ],
    AutoencoderKLConfig: [
        *(("tiling", True), ("down_block_types", ["AttnDownEncoderBlock2D"] * 4), ("block_out_channels", [])),
        *(("layers_per_block", [2, 2, 2, 2]), ("norm_num_groups", 48), ("scaling_factor", None), ("use_quant_conv", 1)),
    ],
    CLIPTextConfig: [
        *(("rope_theta", 1e4), ("attention_dropout", 0.1), ("num_attention_heads", 7), ("eos_token_id", [2, 3])),
        *(("vocab_size", 0), ("pruned_heads", {"0": [1]})),
    ],
}


@pytest.mark.parametrize(("cls", "key", "value"), [(cls, *row) for cls, rows in REFUSED.items() for row in rows])
def test_refused(cls, key, value):
    """The class, the key and the value are all in the one sentence."""
    shown = tuple(tuple(v) if isinstance(v, list) else v for v in value) if isinstance(value, list) else value
    with pytest.raises(InputError) as caught:
        cls.from_dict({**PUBLISHED[cls], key: value})
    message = str(caught.value)
    assert message.startswith(f"{cls.__name__}: ")
    assert f"{key}={options.quote(shown)}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("cls", "key", "value"),
    [
        (UNet2DConditionConfig, "_name_or_path", "somewhere"),
        (UNet2DConditionConfig, "addition_embed_type_num_heads", 64),
        (UNet2DConditionConfig, "only_cross_attention", [False] * 4),
        (UNet2DConditionConfig, "dropout", 0.0),
        (CLIPTextConfig, "dtype", "float16"),
        (CLIPTextConfig, "pruned_heads", {}),
    ],
)
def test_options_without_effect(cls, key, value):
    assert cls.from_dict({**PUBLISHED[cls], key: value}) == cls.from_dict(PUBLISHED[cls])


@pytest.mark.parametrize(
    ("cls", "values"),
    [(UNet2DConditionConfig, VAE), (AutoencoderKLConfig, UNET), (CLIPTextConfig, {"model_type": "t5"})],
)
def test_config_of_another_network(cls, values):
    named = values.get("_class_name", values.get("model_type"))
    with raises("wrong-kind-of-model", str(cls.__name__), f"'{named}'", f"'{cls._class_value}'"):
        cls.from_dict(values)


def test_direct_construction_is_checked():
    with raises("not-an-object", "list"):
        UNet2DConditionConfig.from_dict([1])
    with raises("unsupported-option", "act_fn='mish'"):
        UNet2DConditionConfig(act_fn="mish")
    with raises("unsupported-option", "block_out_channels="):
        UNet2DConditionConfig(block_out_channels=[320, 640, 1280, 1280])


def test_written_for_diffusers():
    """Diffusers' pipelines overwrite a small sample_size in configs that claim a version before 0.9."""
    written = UNet2DConditionConfig(sample_size=16).to_dict()
    assert written["_class_name"] == "UNet2DConditionModel"
    assert tuple(map(int, written["_diffusers_version"].split("."))) >= (0, 9, 0)
    assert written["block_out_channels"] == [320, 640, 1280, 1280]
    assert CLIPTextConfig().to_dict()["model_type"] == "clip_text_model"


@pytest.mark.parametrize("annotation", [int, "int"])
def test_counts_are_found_however_they_are_annotated(annotation):
    fields = [("width", annotation, 1), ("pad_token_id", annotation, 0), ("name", str, "")]
    cls = dataclasses.make_dataclass("Config", fields, bases=(NetworkConfig,), frozen=True)
    cls()._require_counts()
    with raises("unsupported-option", "width=0"):
        cls(width=0)._require_counts()
