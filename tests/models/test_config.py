"""Configs: what is read, what is refused, and in which words."""

import dataclasses
import json

import pytest

from tests.expectations import raises
from tests.parity import published_configs
from winobench.base import options
from winobench.base.errors import InputError
from winobench.models.autoencoder_kl import AutoencoderKLConfig
from winobench.models.bert import BertConfig
from winobench.models.blip_config import BlipConfig
from winobench.models.clip import CLIPTextConfig
from winobench.models.clip_model import CLIPConfig
from winobench.models.config import NetworkConfig
from winobench.models.opt_config import OPTConfig
from winobench.models.t5 import T5Config
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

UNET = published_configs.UNETS["sd15"]
VAE = published_configs.VAES["sd15"]
TEXT = published_configs.TEXT_ENCODERS["sd15"]
OPT = ("unsupported-option", "OPTConfig")
BASES = {
    BlipConfig: {"model_type": "blip"},
    CLIPConfig: next(iter(published_configs.of("clip").values())),
    OPTConfig: {"model_type": "opt", "dropout": 0.1, "_remove_final_layer_norm": False},
}
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


RESNET = {"model_type": "clip_resnet_vision_model"}
# Class -> changes of its config, and the words of the sentence that refuses them.
TOLD = {
    BertConfig: [
        ({"hidden_act": "swish"}, "unsupported-option", "hidden_act='swish'", "'gelu'"),
        ({"position_embedding_type": "r"}, "unsupported-option", "position_embedding_type='r'", "'absolute'"),
        ({"num_attention_heads": 5}, "unsupported-option", "num_attention_heads=5", "hidden_size=768"),
        ({"id2label": {"0": "a", "2": "b"}}, "bad-labels", "id2label", "0, 2"),
        ({"id2label": {"0": "a", "1": "a"}}, "unsupported-option", "labels=('a', 'a')"),
        ({"hidden_dropout_prob": 1.0}, "unsupported-option", "hidden_dropout_prob=1.0", "0", "1"),
        ({"model_type": "roberta"}, "wrong-kind-of-model", "model_type='roberta'", "'bert'"),
        ({"window": 3}, "unknown-option", "window=3"),
    ],
    BlipConfig: [
        ({"nonsense": 1}, "unknown-option", "nonsense=1"),
        ({"model_type": "clip"}, "wrong-kind-of-model", "model_type='clip'", "'blip'"),
        ({"architectures": ["BlipForConditionalGeneration"]}, "no-task-head", "BlipForConditionalGeneration"),
        ({"text_config": [1]}, "not-an-object", "BlipTextConfig", "list"),
        ({"text_config": {"is_decoder": False}}, "unsupported-option", "is_decoder=False", "True"),
        ({"text_config": {"hidden_act": "relu"}}, "unsupported-option", "hidden_act='relu'", "'gelu'"),
        ({"text_config": {"num_attention_heads": 7}}, "unsupported-option", "num_attention_heads=7", "hidden_size=768"),
        ({"vision_config": {"image_size": 100}}, "unsupported-option", "image_size=100", "patch_size=16"),
        ({"vision_config": {"layer_norm_eps": 0}}, "unsupported-option", "layer_norm_eps=0"),
    ],
    CLIPConfig: [
        ({"vision_config": {"num_channels": 1}}, "unsupported-option", "num_channels=1"),
        ({"vision_config": {"patch_size": 300}}, "unsupported-option", "patch_size=300", "image_size=224"),
        ({"vision_config": {"num_attention_heads": 7}}, "unsupported-option", "num_attention_heads=7"),
        ({"vision_config": [3]}, "not-an-object", "CLIPVisionConfig", "list"),
        ({"text_config": {"attention_dropout": 0.5}}, "unsupported-option", "attention_dropout=0.5"),
        ({"projection_dim": 0}, "unsupported-option", "projection_dim=0"),
        ({"surprise": 3}, "unknown-option", "surprise=3"),
        ({"model_type": "blip"}, "wrong-kind-of-model", "model_type='blip'", "'clip'"),
        ({"vision_config": {**RESNET, "depths": [1, 2]}}, "unsupported-option", "depths=(1, 2)"),
        ({"vision_config": {**RESNET, "image_size": 225}}, "unsupported-option", "32"),
        ({"vision_config": {"model_type": "siglip"}}, "wrong-kind-of-model", "model_type='siglip'"),
    ],
    # OPTs of 350 million parameters, of Galactica, and of what was trained before a bug was found.
    OPTConfig: [
        ({"do_layer_norm_before": False}, *OPT, "do_layer_norm_before=False", "True only"),
        ({"word_embed_proj_dim": 512}, *OPT, "word_embed_proj_dim=512", "hidden_size=768"),
        ({"enable_bias": False}, *OPT, "enable_bias=False"),
        ({"activation_function": "gelu"}, *OPT, "activation_function='gelu'", "'relu' only"),
        ({"_remove_final_layer_norm": True}, *OPT, "_remove_final_layer_norm=True", "False only"),
        ({"num_attention_heads": 5}, *OPT, "num_attention_heads=5", "hidden_size=768"),
        ({"eos_token_id": None}, *OPT, "eos_token_id=None", "one token id"),
    ],
    T5Config: [
        (
            {"feed_forward_proj": "gated-x"},
            "unsupported-option",
            "feed_forward_proj='gated-x'",
            "'relu'",
            "'gated-gelu'",
        ),
        ({"decoder_start_token_id": 32128}, "unsupported-option", "decoder_start_token_id=32128", "vocab_size=32128"),
        ({"is_encoder_decoder": False}, "unsupported-option", "True"),
        ({"relative_attention_max_distance": 16}, "unsupported-option", "relative_attention_num_buckets=32"),
        ({"model_type": "umt5"}, "wrong-kind-of-model", "'t5'"),
    ],
}


@pytest.mark.parametrize(
    ("cls", "changes", "words"), [(c, row[0], row[1:]) for c, rows in TOLD.items() for row in rows]
)
def test_what_is_wrong_is_told(cls, changes, words):
    with raises(*words):
        cls.from_dict(BASES.get(cls, {}) | changes)


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
