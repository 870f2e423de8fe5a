"""LoRA files: every form of names, what is refused and in which words, the published file, and the way back."""

import json
import os
import pickle
import re
import zipfile

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tests.expectations import names, raises
from tests.models.test_lora import adapted, inputs, network, relative_difference, run
from winobench import checkpoints
from winobench.base.errors import InputError
from winobench.checkpoints import lora_configs, lora_keys
from winobench.diffusion import stable_diffusion
from winobench.models import UNet2DConditionConfig, UNet2DConditionModel, lora

UNET_LAYER = "mid_block.attentions.0.transformer_blocks.0.attn2"
TEXT_LAYER = "text_model.encoder.layers.0.self_attn"
# Ours -> the first names.
UNET_FIRST = {"to_q": "to_q_lora", "to_k": "to_k_lora", "to_v": "to_v_lora", "to_out.0": "to_out_lora"}
TEXT_FIRST = {"q_proj": "to_q_lora", "k_proj": "to_k_lora", "v_proj": "to_v_lora", "out_proj": "to_out_lora"}

# Form -> the names of a layer's two factors and of its alpha.
UNET_FORMS = {
    "peft": lambda layer: [f"unet.{UNET_LAYER}.{layer}.{end}" for end in ("lora_A.weight", "lora_B.weight", "alpha")],
    "peft, bare": lambda layer: [f"{UNET_LAYER}.{layer}.{end}" for end in ("lora_A.weight", "lora_B.weight", "alpha")],
    "lora": lambda layer: [f"unet.{UNET_LAYER}.{layer}.lora.{end}" for end in ("down.weight", "up.weight", "alpha")],
    "lora in a processor": lambda layer: [
        f"unet.{UNET_LAYER}.processor.{layer}.lora.{end}" for end in ("down.weight", "up.weight", "alpha")
    ],
    "lora, bare": lambda layer: [f"{UNET_LAYER}.{layer}.lora.{end}" for end in ("down.weight", "up.weight", "alpha")],
    "processor": lambda layer: [
        f"unet.{UNET_LAYER}.processor.{UNET_FIRST[layer]}.{end}" for end in ("down.weight", "up.weight", "alpha")
    ],
    "processor, bare": lambda layer: [
        f"{UNET_LAYER}.processor.{UNET_FIRST[layer]}.{end}" for end in ("down.weight", "up.weight", "alpha")
    ],
}
TEXT_FORMS = {
    "peft": lambda layer: [
        f"text_encoder.{TEXT_LAYER}.{layer}.{end}" for end in ("lora_A.weight", "lora_B.weight", "alpha")
    ],
    "peft, flat": lambda layer: [
        f"text_encoder.{TEXT_LAYER}.{layer}.{end}".replace("text_model.", "")
        for end in ("lora_A.weight", "lora_B.weight", "alpha")
    ],
    "lora_linear_layer": lambda layer: [
        f"text_encoder.{TEXT_LAYER}.{layer}.lora_linear_layer.{end}" for end in ("down.weight", "up.weight", "alpha")
    ],
    "first": lambda layer: [
        f"text_encoder.{TEXT_LAYER}.{TEXT_FIRST[layer]}.{end}" for end in ("down.weight", "up.weight", "alpha")
    ],
}


def pair(seed, *, width=8, context=None, rank=3):
    generator = np.random.default_rng(seed)
    return (
        generator.standard_normal((rank, context or width)).astype(np.float32),
        generator.standard_normal((width, rank)).astype(np.float32),
    )


def unet_pairs():
    return {name: pair(i, context=12 if name in ("to_k", "to_v") else 8) for i, name in enumerate(UNET_FIRST)}


def text_pairs():
    return {name: pair(10 + i, width=12) for i, name in enumerate(TEXT_FIRST)}


def tensors_of(form, pairs, alpha=None):
    tensors = {}
    for layer, (down, up) in pairs.items():
        names = form(layer)
        tensors |= {names[0]: down, names[1]: up}
        if alpha is not None:
            tensors[names[2]] = np.float32(alpha)
    return tensors


def write(path, tensors, config=None):
    metadata = {"format": "pt"} | ({} if config is None else {"lora_adapter_metadata": json.dumps(config)})
    safetensors.numpy.save_file(
        {name: np.ascontiguousarray(values).reshape(np.shape(values)) for name, values in tensors.items()},
        path,
        metadata,
    )
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_lora_weights.safetensors"


class Pipeline:
    """The networks of a pipeline."""

    DENOISER, LARGE_ENCODERS, NETWORKS = "unet", (), ("unet", "text_encoder")

    def __init__(self, unet=None, text_encoder=None):
        self.unet = unet or network("unet")
        self.text_encoder = text_encoder or network("text")
        self.networks = {"unet": self.unet, "text_encoder": self.text_encoder}


@pytest.mark.parametrize("alpha", [None, 6.0])
@pytest.mark.parametrize("form", UNET_FORMS)
def test_every_form_of_a_unets_names(form, alpha, path):
    pairs = unet_pairs()
    tensors = tensors_of(UNET_FORMS[form], pairs, alpha)
    assert len(tensors) == len(pairs) * (2 if alpha is None else 3)
    read = checkpoints.read_lora(write(path, tensors))
    assert set(read.parts["unet"]) == {f"{UNET_LAYER}.{layer}" for layer in pairs}
    assert "text_encoder" not in read.parts
    assert read.ranks == (3,)
    for layer, (down, up) in pairs.items():
        adapter = read.parts["unet"][f"{UNET_LAYER}.{layer}"]
        np.testing.assert_array_equal(adapter.down, down)
        np.testing.assert_array_equal(adapter.up, up)
        assert adapter.alpha == alpha
        assert adapter.factors.scale == (1 if alpha is None else alpha / 3)


@pytest.mark.parametrize("alpha", [None, 6.0])
@pytest.mark.parametrize("form", TEXT_FORMS)
def test_every_form_of_a_text_encoders_names(form, alpha, path):
    pairs = text_pairs()
    read = checkpoints.read_lora(write(path, tensors_of(TEXT_FORMS[form], pairs, alpha)))
    assert "unet" not in read.parts
    assert set(read.parts["text_encoder"]) == {f"{TEXT_LAYER}.{layer}" for layer in pairs}
    for layer, (down, up) in pairs.items():
        adapter = read.parts["text_encoder"][f"{TEXT_LAYER}.{layer}"]
        np.testing.assert_array_equal(adapter.down, down)
        np.testing.assert_array_equal(adapter.up, up)
        assert adapter.alpha == alpha


@pytest.mark.parametrize("form", UNET_FORMS)
def test_every_form_comes_back_in_the_current_one(form, tmp_path):
    unet_tensors = tensors_of(UNET_FORMS[form], unet_pairs())
    text_tensors = tensors_of(TEXT_FORMS["first"], text_pairs())
    first = write(tmp_path / "a.safetensors", unet_tensors | text_tensors)
    pipeline = Pipeline()
    read = checkpoints.load_lora(pipeline, first, fuse=False)
    saved = checkpoints.save_lora(tmp_path / "saved", unet=pipeline.unet, text_encoder=pipeline.text_encoder)
    assert os.path.basename(saved) == "pytorch_lora_weights.safetensors"
    expected = tensors_of(UNET_FORMS["peft"], unet_pairs()) | tensors_of(TEXT_FORMS["peft"], text_pairs())
    written = safetensors.numpy.load_file(saved)
    assert set(written) == set(expected)
    for name, values in expected.items():
        assert written[name].dtype == np.float32
        np.testing.assert_array_equal(written[name], values)
    assert checkpoints.read_lora(tmp_path / "saved").sha256 == read.sha256


def test_a_scale_is_saved_within_the_values(tmp_path, path):
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs(), alpha=1.0))
    pipeline = Pipeline()
    checkpoints.load_lora(pipeline, path, scale=0.7, fuse=False)
    expected = run(pipeline.unet, *inputs())
    again = Pipeline()
    saved = checkpoints.save_lora(tmp_path / "b", negatives="none", unet=pipeline.unet)
    assert checkpoints.load_lora(again, saved, fuse=False).negatives == "none"
    assert {adapter.scale for adapter in lora.adapters(again.unet).values()} == {1.0}
    # One rounding a value.
    assert relative_difference(run(again.unet, *inputs()), expected) < 1e-6


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_values_become_float32(dtype, path):
    tensors = {name: values.astype(dtype) for name, values in tensors_of(UNET_FORMS["peft"], unet_pairs()).items()}
    read = checkpoints.read_lora(write(path, tensors))
    for name, adapter in read.parts["unet"].items():
        assert adapter.down.dtype == adapter.up.dtype == np.float32
        np.testing.assert_array_equal(adapter.down, tensors[f"unet.{name}.lora_A.weight"].astype(np.float32))


def test_layers_may_differ_in_rank(path):
    tensors = tensors_of(UNET_FORMS["peft"], {"to_q": pair(0, rank=2), "to_out.0": pair(1, rank=5)}, alpha=2.0)
    read = checkpoints.read_lora(write(path, tensors))
    assert read.ranks == (2, 5)
    assert sorted(adapter.factors.scale for adapter in read.parts["unet"].values()) == [2 / 5, 1]


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        ({"unet.r": 3, "unet.lora_alpha": 6}, {"to_q": 2, "to_k": 2, "to_v": 2, "to_out.0": 2}),
        (
            {"unet.r": 3, "unet.lora_alpha": 6, "unet.alpha_pattern": {"to_k": 1, "attn2.to_out.0": 9}},
            {"to_q": 2, "to_k": 1 / 3, "to_v": 2, "to_out.0": 3},
        ),
        # The first pattern counts; a circumflex ties it to the beginning of the name.
        (
            {
                "r": 3,
                "lora_alpha": 6,
                "alpha_pattern": {
                    "^to_k": 1,
                    "transformer_blocks\\.[0-9]+.*to_[kv]": 9,
                    ".*to_v": 3,
                    "^mid_block.*to_q": 12,
                },
            },
            {"to_q": 4, "to_k": 3, "to_v": 3, "to_out.0": 2},
        ),
        (
            {"unet.r": 3, "unet.lora_alpha": 6, "unet.use_rslora": True},
            dict.fromkeys(("to_q", "to_k", "to_v", "to_out.0"), pytest.approx(6 / 3**0.5)),
        ),
        ({"text_encoder.lora_alpha": 6}, {"to_q": 1, "to_k": 1, "to_v": 1, "to_out.0": 1}),
    ],
)
def test_pefts_config_in_the_metadata(config, scales, path):
    read = checkpoints.read_lora(write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()), config))
    assert {
        name.rpartition("attn2.")[2]: adapter.factors.scale for name, adapter in read.parts["unet"].items()
    } == scales


@pytest.mark.slow
def test_fused_is_apart_times_the_scale(path):
    tensors = tensors_of(UNET_FORMS["processor, bare"], unet_pairs()) | tensors_of(
        TEXT_FORMS["peft"], text_pairs(), 6.0
    )
    write(path, tensors)
    outputs = {}
    for scale, fuse in ((0.0, True), (0.5, False), (0.5, True), (1.0, True)):
        pipeline = Pipeline()
        checkpoints.load_lora(pipeline, path, scale=scale, fuse=fuse)
        assert bool(lora.adapters(pipeline.unet)) is not fuse
        outputs[scale, fuse] = (run(pipeline.unet, *inputs()), run(pipeline.text_encoder, *inputs("text")))
    base = Pipeline()
    plain = (run(base.unet, *inputs()), run(base.text_encoder, *inputs("text")))
    for part in (0, 1):
        np.testing.assert_array_equal(outputs[0.0, True][part], plain[part])
        assert relative_difference(outputs[0.5, False][part], plain[part]) > 0.01
        assert relative_difference(outputs[0.5, False][part], outputs[1.0, True][part]) > 0.01
        # Float32: fusing changes the order of two products.
        assert relative_difference(outputs[0.5, True][part], outputs[0.5, False][part]) < 1e-5


def first_unet_layer(change):
    """A file's tensors, the first layer's changed."""
    down, up = pair(0)
    return change(f"unet.{UNET_LAYER}.to_q.lora_A.weight", down, f"unet.{UNET_LAYER}.to_q.lora_B.weight", up)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({}, "holds no tensors"),
        (
            first_unet_layer(lambda a, down, b, up: {a: down}),
            r"lora_A\.weight has no counterpart \(up of .*attn2\.to_q\)",
        ),
        (first_unet_layer(lambda a, down, b, up: {b: up}), r"lora_B\.weight has no counterpart \(down of"),
        (
            first_unet_layer(lambda a, down, b, up: {a: down, b: up[:, :2]}),
            r"lora_A\.weight has the rank 3, but .*lora_B\.weight the rank 2: the file is damaged",
        ),
        (
            first_unet_layer(lambda a, down, b, up: {a: down[:, :, None], b: up[:, :, None]}),
            r"has the shape \[3, 8, 1\] and .* the shape \[8, 3, 1\], but only factors of dense layers and of",
        ),
        (
            first_unet_layer(lambda a, down, b, up: {a: np.where(down > 0, np.nan, down), b: up}),
            r"lora_A\.weight holds values that are not finite",
        ),
        (
            first_unet_layer(lambda a, down, b, up: {a: down, b: up, a.removeprefix("unet."): down}),
            "are two names of the same tensor",
        ),
        (
            first_unet_layer(
                lambda a, down, b, up: {a: down, b: up, a.replace("lora_A.weight", "alpha"): np.ones(2, np.float32)}
            ),
            r"alpha has the shape \[2\], but must be one number",
        ),
        (
            first_unet_layer(lambda a, down, b, up: {a: down, b: up, "unet.conv_in.weight": up}),
            r"no LoRA factors as diffusers names them \(unet\.conv_in\.weight\): only plain LoRA",
        ),
        (
            first_unet_layer(lambda a, down, b, up: {a: down, b: up, a.replace("A.w", "magnitude_vector.w"): up}),
            "this is a DoRA, which is not supported",
        ),
        (
            first_unet_layer(lambda a, down, b, up: {"lora_unet_mid_block_attn2_to_q.lora_down.weight": down}),
            "has no counterpart",
        ),
        ({"unet.attn1.processor.to_x_lora.down.weight": np.ones((3, 8), np.float32)}, "are no LoRA factors as"),
    ],
)
def test_what_is_no_lora(tensors, words, path):
    write(path, tensors)
    with pytest.raises(InputError, match=words) as error:
        checkpoints.read_lora(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"unet.use_dora": True}, ("unsupported-option", "use_dora=True")),
        ({"unet.lora_alpha": "8"}, ("bad-value", "lora_alpha", "'8'")),
        ({"unet.r": 4}, ("mismatched-parts", "rank", "4", "3")),
        ({"lora_alpha": 3}, ("mismatched-parts", "rank", "8", "3")),  # peft's rank where a config has none
        (3, ("not-json",)),
    ],
)
def test_metadata_that_cannot_be_used(config, words, path):
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()), config)
    with raises(*words):
        checkpoints.read_lora(path)


def peft_folder(folder, config, *, tensors=None, name="adapter_model.safetensors"):
    """A folder of peft's with the adapters of one attention layer, of rank 3."""
    tensors = tensors_of(UNET_FORMS["peft, bare"], unet_pairs()) if tensors is None else tensors
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / name, {f"base_model.model.{key}": values for key, values in tensors.items()})
    if config is not None:
        base = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": ["attn2.to_q", *unet_pairs()]}
        (folder / "adapter_config.json").write_text(json.dumps(base | config))
    return folder


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "mine.safetensors"])
def test_a_file_is_never_read_without_the_config_next_to_it(name, tmp_path):
    """Nor are tensors of peft's without any, whose strength nothing says."""
    folder = peft_folder(tmp_path / "a", {"use_rslora": True, "alpha_pattern": {"to_v": 3}}, name=name)
    read = checkpoints.read_lora(folder / name)
    scales = {layer[-4:]: adapter.factors.scale for layer, adapter in read.parts["unet"].items()}
    assert scales == pytest.approx({"to_q": 12**0.5, "to_k": 12**0.5, "to_v": 3**0.5, "ut.0": 12**0.5})
    if name == "adapter_model.safetensors":
        assert checkpoints.read_lora(folder).sha256 == read.sha256
    else:
        with raises("missing-files", "adapter_config.json", "adapter_model.safetensors"):
            checkpoints.read_lora(folder)
    os.remove(folder / "adapter_config.json")
    with raises("missing-files", name, "adapter_config.json"):
        checkpoints.read_lora(folder / name)


def test_folders_of_networks(tmp_path):
    """Each network's adapter in a folder of its name; all of them are read, or none."""
    peft_folder(tmp_path / "unet", {})
    text = tensors_of(TEXT_FORMS["peft"], text_pairs())
    text = {key.removeprefix("text_encoder."): value for key, value in text.items()}
    targets = {"target_modules": list(text_pairs()), "lora_alpha": 1}
    peft_folder(tmp_path / "text_encoder", targets, tensors=text)
    read = checkpoints.read_lora(tmp_path)
    scales = {part: {one.factors.scale for one in adapters.values()} for part, adapters in read.parts.items()}
    assert scales == {"unet": {2}, "text_encoder": {1 / 3}}
    assert read.file == str(tmp_path)
    assert set(checkpoints.read_lora(tmp_path / "text_encoder").parts) == {"text_encoder"}
    os.remove(tmp_path / "text_encoder" / "adapter_config.json")
    with raises("missing-files", "text_encoder/adapter_model.safetensors"):
        checkpoints.read_lora(tmp_path)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"peft_type": "LOHA"}, ("unsupported-option", "LOHA")),
        ({"peft_type": None}, ("not-a-lora", "peft_type")),
        ({"use_dora": True}, ("unsupported-option", "use_dora=True")),
        ({"lora_bias": True}, ("unsupported-option", "lora_bias=True")),
        ({"bias": "lora_only"}, ("unsupported-option", "bias='lora_only'")),
        ({"modules_to_save": ["conv_out"]}, ("unsupported-option", "modules_to_save")),
        ({"init_lora_weights": "pissa_niter_4"}, ("unsupported-option", "init_lora_weights='pissa_niter_4'")),
        ({"option_of_later": 1}, ("unsupported-option", "option_of_later=1")),
        ({"r": 4}, ("mismatched-parts", "4", "3")),
        ({"r": 0}, ("out-of-range", "r")),
        ({"rank_pattern": {"to_k": 4}}, ("mismatched-parts", "to_k", "4", "3")),
        ({"rank_pattern": [4]}, ("not-an-object", "rank_pattern")),
        ({"alpha_pattern": {"to_k": None}}, ("bad-value", "alpha_pattern")),
        ({"target_modules": ["to_q"]}, ("mismatched-parts", "target_modules")),
        ({"target_modules": "(a|b)*"}, ("mismatched-parts", "target_modules")),
        ({"target_modules": 3}, ("wrong-type", "target_modules")),
        ({"exclude_modules": ["to_q"]}, ("mismatched-parts", "target_modules")),
        ({"layers_to_transform": [5], "layers_pattern": "attentions"}, ("mismatched-parts", "target_modules")),
        ({"use_rslora": 1}, ("wrong-type", "use_rslora")),
    ],
)
def test_configs_of_peft_that_cannot_be_used(config, words, tmp_path):
    with raises(*words):
        checkpoints.read_lora(peft_folder(tmp_path / "a", config))


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": "all-linear", "lora_dropout": 0.1, "task_type": None, "fan_in_fan_out": True},
        {"target_modules": r".*attn[12]\.(to_[qkv]|to_out\.0)", "init_lora_weights": "gaussian", "modules_to_save": []},
        {"layers_to_transform": 0, "layers_pattern": ["x", "attentions"], "loftq_config": {}, "qalora_group_size": 16},
    ],
)
def test_options_of_peft_that_change_no_strength(config, tmp_path):
    read = checkpoints.read_lora(peft_folder(tmp_path / "a", config))
    assert {adapter.factors.scale for adapter in read.parts["unet"].values()} == {2}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.diffusion_model.double_blocks.0.img_mlp.0.lora_A.weight", ("unet", "double_blocks.0.img_mlp.0")),
        ("double_blocks.1.processor.qkv_lora1.down.weight", ("unet", "double_blocks.1.img_attn.qkv")),
        ("diffusion_model.double_blocks.1.processor.proj_lora2.down.weight", ("unet", "double_blocks.1.txt_attn.proj")),
        ("single_blocks.2.processor.qkv_lora.down.weight", ("unet", "single_blocks.2.qkv")),
        ("single_blocks.2.processor.proj_lora.down.weight", ("unet", "single_blocks.2.linear2")),
        (f"text_encoders.clip_l.transformer.{TEXT_LAYER}.q.lora_A.weight", ("text_encoder", f"{TEXT_LAYER}.q")),
        (f"text_encoders.clip_g.transformer.{TEXT_LAYER}.q.lora_down.weight", ("text_encoder_2", f"{TEXT_LAYER}.q")),
        (f"{TEXT_LAYER}.q.lora_A.weight", ("text_encoder", f"{TEXT_LAYER}.q")),
        ("lora_unet_down_blocks_0_downsamplers_0_conv.lora_down.weight", ("unet", "down_blocks.0.downsamplers.0.conv")),
        ("lora_unet_input_blocks_0_0.lora_down.weight", ("unet", "conv_in")),
        ("lora_unet_out_2.lora_down.weight", ("unet", "conv_out")),
        ("double_blocks.1.processor.qkv_lora3.down.weight", None),
    ],
)
def test_names_of_other_programs(name, expected):
    assert lora_keys.parse(name) == (expected and (*expected, "down"))


@pytest.mark.parametrize(
    ("name", "depths", "expected"),
    [
        ("input_blocks_4_1_proj_in", (2, 2, 2), "down_blocks.1.attentions.0.proj_in"),
        ("input_blocks_3_1_proj_in", (1, 1), "down_blocks.1.attentions.0.proj_in"),
        ("input_blocks_3_0_op", (2, 2), "down_blocks.0.downsamplers.0.conv"),
        ("output_blocks_3_0_in_layers_2", (1, 2), "up_blocks.1.resnets.0.conv1"),
        ("output_blocks_2_2_conv", (2, 2), "up_blocks.0.upsamplers.0.conv"),
        ("middle_block_2_out_layers_3", (2,), "mid_block.resnets.1.conv2"),
        ("middle_block_1_proj_out", (2,), "mid_block.attentions.0.proj_out"),
        ("input_blocks_9_0_op", (2, 2), None),
    ],
)
def test_blocks_of_the_original_code(name, depths, expected):
    assert lora_keys.of_original_block(name, depths) == expected


def test_two_alphas_must_agree(path):
    tensors = tensors_of(UNET_FORMS["peft"], unet_pairs(), alpha=6.0)
    config = {"unet.r": 3, "unet.lora_alpha": 6}
    assert {one.alpha for one in checkpoints.read_lora(write(path, tensors, config)).parts["unet"].values()} == {6}
    with raises("mismatched-parts", "6", "7"):
        checkpoints.read_lora(write(path, tensors, config | {"unet.lora_alpha": 7}))
    del tensors[f"unet.{UNET_LAYER}.to_k.alpha"]
    with raises("incomplete-file", "alpha", f"{UNET_LAYER}.to_k"):
        checkpoints.read_lora(write(path, tensors))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lora_mid.weight", "LoCon"),
        ("hada_w1_a", "LoHa"),
        ("lokr_w1", "LoKr"),
        ("dora_scale", "DoRA"),
        ("lora_up.bias", "lora_bias"),
        ("diff", "differences"),
        ("norm_q.weight", "control LoRA"),
    ],
)
def test_adapters_of_other_kinds_are_named(name, kind, path):
    tensors = tensors_of(UNET_FORMS["peft"], unet_pairs())
    tensors[f"lora_unet_mid_block_x.{name}"] = np.ones((2, 2), np.float32)
    with raises("not-a-lora", kind):
        checkpoints.read_lora(write(path, tensors))


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (
            {"up_blocks.9.attn1.to_q": pair(0)},
            r"the UNet2DConditionModel has no .*up_blocks\.9\.attn1\.to_q",
        ),
        (
            {f"{UNET_LAYER}.to_q": pair(0, width=16)},
            r"shapes \[16, 3\] and \[3, 16\], but the layer .* takes 8 features",
        ),
        ({f"{UNET_LAYER}.to_k": pair(0)}, r"shapes \[8, 3\] and \[3, 8\], but the layer .* takes 12 features to 8"),
    ],
)
def test_loras_of_other_models_change_nothing(tensors, words, path):
    """The text encoder's part fits, but is not loaded either."""
    named = {
        f"unet.{name}.{end}": v
        for name, values in tensors.items()
        for end, v in zip(("lora_A.weight", "lora_B.weight"), values, strict=True)
    }
    write(path, named | tensors_of(TEXT_FORMS["peft"], text_pairs()))
    pipeline = Pipeline()
    with pytest.raises(InputError, match=words) as error:
        checkpoints.load_lora(pipeline, path)
    assert str(error.value).startswith(f"{path}: ")
    assert not lora.adapters(pipeline.unet)
    assert not lora.adapters(pipeline.text_encoder)
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()) | tensors_of(TEXT_FORMS["peft"], {"q_proj": pair(0)}))
    before = checkpoints.weights_sha256(pipeline.unet)
    with pytest.raises(InputError, match="the CLIPTextModel takes 12 features to 12"):
        checkpoints.load_lora(pipeline, path)
    assert checkpoints.weights_sha256(pipeline.unet) == before


def test_one_lora_apart_at_a_time(path):
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()))
    pipeline = Pipeline()
    checkpoints.load_lora(pipeline, path, fuse=False)
    with pytest.raises(InputError, match="has LoRA adapters already: fuse them"):
        checkpoints.load_lora(pipeline, path)
    lora.fuse(pipeline.unet)
    checkpoints.load_lora(pipeline, path)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), "1", True])
def test_bad_scales(scale, path):
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()))
    with pytest.raises(InputError, match="but must be a finite number"):
        checkpoints.load_lora(Pipeline(), path, scale=scale)


def test_where_files_are_looked_for(path, tmp_path, monkeypatch):
    tensors = tensors_of(UNET_FORMS["peft"], unet_pairs())
    write(path, tensors)
    expected = checkpoints.read_lora(path).sha256
    assert checkpoints.read_lora(tmp_path).sha256 == expected
    monkeypatch.setenv("HOME", str(tmp_path))
    assert checkpoints.read_lora("~/pytorch_lora_weights.safetensors").sha256 == expected
    other = tmp_path / "other"
    other.mkdir()
    write(other / "mine.safetensors", tensors)
    assert checkpoints.read_lora(other / "mine.safetensors").sha256 == expected
    with pytest.raises(InputError, match=names("pytorch_lora_weights.safetensors", "mine.safetensors")):
        checkpoints.read_lora(other)
    with pytest.raises(InputError, match=names("none.safetensors")):
        checkpoints.read_lora(other / "none.safetensors")
    with pytest.raises(InputError, match="is neither an existing folder nor a hub id"):
        checkpoints.read_lora(other / "none")
    (other / "notes.txt").write_text("")
    with pytest.raises(InputError, match=names("notes.txt")):
        checkpoints.read_lora(other / "notes.txt")


def test_a_cut_off_file(path):
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match="is not a complete safetensors file"):
        checkpoints.read_lora(path)


def test_code_in_a_pickle_is_not_run(tmp_path):
    class Attack:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harm"),))

    with zipfile.ZipFile(tmp_path / "pytorch_lora_weights.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"unet.x.lora_A.weight": Attack()}))
    with pytest.raises(InputError, match="could run code when it is opened"):
        checkpoints.read_lora(tmp_path, allow_pickle=True)
    assert not (tmp_path / "harm").exists()


def test_the_published_file_fits_sd21_base(reference_data):
    """256 tensors, saved from a GPU: each of SD 2.1-base's 128 attention projections gets its two, and none is left."""
    folder = reference_data / "lora" / "noneg"
    with pytest.raises(InputError, match=names("-m", "convert_pickle")):
        checkpoints.read_lora(folder)
    read = checkpoints.read_lora(folder, allow_pickle=True)
    unet = checkpoints.abstract_model(UNet2DConditionModel, UNet2DConditionConfig.sd21_base())
    wanted = {name for name in lora.linear_layers(unet) if unet.lora_targets["all"].fullmatch(name)}
    assert len(wanted) == 128
    assert set(read.parts["unet"]) == wanted
    assert "text_encoder" not in read.parts
    assert read.ranks == (4,)
    assert {adapter.alpha for adapter in read.parts["unet"].values()} == {None}
    lora.check_fit(unet, {name: adapter.factors for name, adapter in read.parts["unet"].items()})
    # It was trained: none of the second factors is still zero.
    assert all(np.abs(adapter.up).max() > 0 for adapter in read.parts["unet"].values())
    other = checkpoints.abstract_model(UNet2DConditionModel, UNet2DConditionConfig.sd15())
    with pytest.raises(InputError, match="the adapter is of another model"):
        lora.check_fit(other, {name: adapter.factors for name, adapter in read.parts["unet"].items()})


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(InputError, match=r"^there is no LoRA to save: none of the networks has adapters$"):
        checkpoints.save_lora(tmp_path / "new", unet=network())
    assert not (tmp_path / "new").exists()
    module = adapted()
    name, adapter = next(iter(lora.adapters(module).items()))
    adapter.up.set_value(jnp.full_like(adapter.up[...], jnp.inf))
    with pytest.raises(InputError, match=f"^the adapter of unet.{name} holds values that are not finite"):
        checkpoints.save_lora(tmp_path / "new", unet=module)
    with pytest.raises(InputError, match="has LoRA adapters, which its files have no place for: fuse them first"):
        checkpoints.save_model(module, tmp_path / "new")


def test_hashes_tell_loras_apart(tmp_path):
    tensors = tensors_of(UNET_FORMS["peft"], unet_pairs())
    changed = tensors | {f"unet.{UNET_LAYER}.to_q.lora_B.weight": pair(99)[1]}
    variants = {
        "same": tensors_of(UNET_FORMS["processor, bare"], unet_pairs()),
        "same alpha": tensors_of(UNET_FORMS["lora"], unet_pairs(), alpha=3.0),
        "values": changed,
        "alpha": tensors_of(UNET_FORMS["peft"], unet_pairs(), alpha=1.0),
        "part": {name: values for name, values in tensors.items() if ".to_q." not in name},
    }
    hashes = {
        name: checkpoints.read_lora(write(tmp_path / f"{i}.safetensors", values)).sha256
        for i, (name, values) in enumerate(({"": tensors} | variants).items())
    }
    assert hashes["same"] == hashes["same alpha"] == hashes[""]
    assert len(set(hashes.values())) == 4


@pytest.mark.slow
def test_a_pipeline_forgets_what_it_knew(tiny_pipeline, path):
    """Its fingerprint, and the functions compiled for the former weights."""
    pipeline = stable_diffusion.StableDiffusion.from_pretrained(tiny_pipeline)
    prints, states = [pipeline.fingerprint], [np.asarray(pipeline.encode_texts(["a red cube"]))]
    layer = "text_model.encoder.layers.0.self_attn.q_proj"
    down, up = pair(0, width=24)
    write(path, {f"text_encoder.{layer}.lora_A.weight": down, f"text_encoder.{layer}.lora_B.weight": up})
    for scale in (0.5, 1.0):
        checkpoints.load_lora(pipeline, path, scale=scale, fuse=False)
        prints.append(pipeline.fingerprint)
        states.append(np.asarray(pipeline.encode_texts(["a red cube"])))
        pipeline = stable_diffusion.StableDiffusion.from_pretrained(tiny_pipeline)
    checkpoints.load_lora(pipeline, path)
    prints.append(pipeline.fingerprint)
    assert len(set(prints)) == 4
    assert relative_difference(states[1], states[0]) > 1e-3
    assert relative_difference(states[2], states[1]) > 1e-3
    assert relative_difference(pipeline.encode_texts(["a red cube"]), states[2]) < 1e-5


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_, np.int64, np.complex64])
@pytest.mark.parametrize("which", [0, 1])
def test_factors_that_are_no_floating_point_numbers(dtype, which, path):
    tensors = tensors_of(UNET_FORMS["peft"], unet_pairs())
    name = sorted(tensors)[which]
    tensors[name] = np.asarray(tensors[name]).astype(dtype)
    with pytest.raises(InputError, match=f"{re.escape(name)} holds {np.dtype(dtype).name}, not floating point numbers"):
        checkpoints.read_lora(write(path, tensors))


def test_an_alpha_may_be_a_whole_number(path):
    tensors = {name: values for name, values in tensors_of(UNET_FORMS["peft"], {"to_q": pair(0)}, alpha=6.0).items()}
    alpha = next(name for name in tensors if name.endswith("alpha"))
    for value, message in ((np.int64(6), None), (np.bool_(True), "holds bool")):
        write(path, tensors | {alpha: value})
        if message is None:
            assert [adapter.factors.scale for adapter in checkpoints.read_lora(path).parts["unet"].values()] == [2]
        else:
            with pytest.raises(InputError, match=message):
                checkpoints.read_lora(path)


@pytest.mark.parametrize("pattern", ["x" * 1500, "(", "[a", "*"])
def test_patterns_that_are_no_expressions(pattern, path):
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()), {"unet.r": 3, "unet.alpha_pattern": {pattern: 4}})
    with raises("bad-name", "alpha_pattern"):
        checkpoints.read_lora(path)


@pytest.mark.parametrize("pattern", ["(.|.)*(.|.)*[!?]", "(?R)"])
def test_patterns_that_take_for_ever(pattern, path, monkeypatch):
    monkeypatch.setattr(lora_configs.PeftConfig.__init__, "__defaults__", (0.2,))
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()), {"unet.r": 3, "unet.alpha_pattern": {pattern: 4}})
    with raises("bad-name", "patterns"):
        checkpoints.read_lora(path)


@pytest.mark.parametrize(
    "name",
    ["input_blocks", "input_blocks_4", "input_blocks_x_1_to_q", "middle_block_7_to_q", "output_blocks_1_", "_", "To_Q"],
)
def test_names_of_kohyas_kind_without_sense_are_told(name, path):
    write(path, {f"lora_unet_{name}.lora_down.weight": np.zeros((2, 4), np.float32)})
    with pytest.raises(InputError, match="no LoRA factors"):
        checkpoints.read_lora(path)
