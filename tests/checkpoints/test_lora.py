"""LoRA files: every form of names, refusals, the published file, and the way back."""

import json
import os

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tests.expectations import raises
from tests.models.test_lora import adapted, network
from winobench import checkpoints
from winobench.checkpoints import lora_configs, lora_keys
from winobench.models import lora
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

UNET_LAYER = "mid_block.attentions.0.transformer_blocks.0.attn2"
TEXT_LAYER = "text_model.encoder.layers.0.self_attn"
# Ours -> the first names.
UNET_FIRST = {"to_q": "to_q_lora", "to_k": "to_k_lora", "to_v": "to_v_lora", "to_out.0": "to_out_lora"}
TEXT_FIRST = {"q_proj": "to_q_lora", "k_proj": "to_k_lora", "v_proj": "to_v_lora", "out_proj": "to_out_lora"}

# Form -> the names of a layer's two factors and of its alpha: {0} is the block, {1} the layer, {2} its first name.
PEFT, DOWN_UP = ("lora_A.weight", "lora_B.weight", "alpha"), ("down.weight", "up.weight", "alpha")
UNET_FORMS = {
    "peft": ("unet.{0}.{1}.", PEFT),
    "peft, bare": ("{0}.{1}.", PEFT),
    "lora": ("unet.{0}.{1}.lora.", DOWN_UP),
    "lora in a processor": ("unet.{0}.processor.{1}.lora.", DOWN_UP),
    "lora, bare": ("{0}.{1}.lora.", DOWN_UP),
    "processor": ("unet.{0}.processor.{2}.", DOWN_UP),
    "processor, bare": ("{0}.processor.{2}.", DOWN_UP),
}
TEXT_FORMS = {
    "peft": ("text_encoder.{0}.{1}.", PEFT),
    "peft, flat": (f"text_encoder.{TEXT_LAYER.removeprefix('text_model.')}.{{1}}.", PEFT),
    "lora_linear_layer": ("text_encoder.{0}.{1}.lora_linear_layer.", DOWN_UP),
    "first": ("text_encoder.{0}.{2}.", DOWN_UP),
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
    start, ends = form
    for layer, (down, up) in pairs.items():
        block = TEXT_LAYER if layer in TEXT_FIRST else UNET_LAYER
        names = [start.format(block, layer, (UNET_FIRST | TEXT_FIRST).get(layer)) + end for end in ends]
        tensors |= {names[0]: down, names[1]: up}
        if alpha is not None:
            tensors[names[2]] = np.float32(alpha)
    return tensors


def write(path, tensors, config=None):
    metadata = {"format": "pt"} | ({} if config is None else {"lora_adapter_metadata": json.dumps(config)})
    tensors = {name: np.ascontiguousarray(values).reshape(np.shape(values)) for name, values in tensors.items()}
    safetensors.numpy.save_file(tensors, path, metadata)
    return path


def expect(path, *words):
    with raises(*words) as error:
        checkpoints.read_lora(path)
    return str(error.value)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_lora_weights.safetensors"


class Pipeline:
    DENOISER, LARGE_ENCODERS, NETWORKS = "unet", (), ("unet", "text_encoder")

    def __init__(self, unet=None, text_encoder=None):
        self.unet = unet or network("unet")
        self.text_encoder = text_encoder or network("text")
        self.networks = {"unet": self.unet, "text_encoder": self.text_encoder}


@pytest.mark.parametrize("alpha", [None, 6.0])
@pytest.mark.parametrize(
    ("part", "form"), [*(("unet", form) for form in UNET_FORMS), *(("text_encoder", form) for form in TEXT_FORMS)]
)
def test_every_form_of_names(part, form, alpha, path):
    forms, block, pairs = (
        (UNET_FORMS, UNET_LAYER, unet_pairs()) if part == "unet" else (TEXT_FORMS, TEXT_LAYER, text_pairs())
    )
    tensors = tensors_of(forms[form], pairs, alpha)
    assert len(tensors) == len(pairs) * (2 if alpha is None else 3)
    read = checkpoints.read_lora(write(path, tensors))
    assert set(read.parts) == {part}
    assert set(read.parts[part]) == {f"{block}.{layer}" for layer in pairs}
    assert read.ranks == (3,)
    for layer, (down, up) in pairs.items():
        adapter = read.parts[part][f"{block}.{layer}"]
        np.testing.assert_array_equal(adapter.down, down)
        np.testing.assert_array_equal(adapter.up, up)
        assert adapter.alpha == alpha
        assert adapter.factors.scale == (1 if alpha is None else alpha / 3)


def test_the_first_form_comes_back_in_the_current_one(tmp_path):
    unet_tensors = tensors_of(UNET_FORMS["processor, bare"], unet_pairs())
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
    again = Pipeline()
    saved = checkpoints.save_lora(tmp_path / "b", negatives="none", unet=pipeline.unet)
    assert checkpoints.load_lora(again, saved, fuse=False).negatives == "none"
    assert {adapter.scale for adapter in lora.adapters(again.unet).values()} == {1.0}
    for name, adapter in lora.adapters(again.unet).items():
        before = lora.adapters(pipeline.unet)[name]
        np.testing.assert_array_equal(adapter.down[...], before.down[...])
        np.testing.assert_allclose(adapter.up[...], before.up[...] * before.scale, rtol=1e-6)  # one rounding a value


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


# The first one counts; a circumflex ties it to the beginning of the name.
PATTERNS = {"^to_k": 1, "transformer_blocks\\.[0-9]+.*to_[kv]": 9, ".*to_v": 3, "^mid_block.*to_q": 12}
SOME = {"to_k": 1, "attn2.to_out.0": 9}
OF_UNET = {"unet.r": 3, "unet.lora_alpha": 6}


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        (OF_UNET, dict.fromkeys(UNET_FIRST, 2)),
        ({"r": 3, "lora_alpha": 6, "alpha_pattern": PATTERNS}, {"to_q": 4, "to_k": 3, "to_v": 3, "to_out.0": 2}),
        (OF_UNET | {"unet.use_rslora": True}, dict.fromkeys(UNET_FIRST, pytest.approx(6 / 3**0.5))),
        (OF_UNET | {"unet.alpha_pattern": SOME}, {"to_q": 2, "to_k": 1 / 3, "to_v": 2, "to_out.0": 3}),
        ({"text_encoder.lora_alpha": 6}, dict.fromkeys(UNET_FIRST, 1)),
    ],
)
def test_pefts_config_in_the_metadata(config, scales, path):
    read = checkpoints.read_lora(write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()), config))
    found = {name.rpartition("attn2.")[2]: adapter.factors.scale for name, adapter in read.parts["unet"].items()}
    assert found == scales


@pytest.mark.parametrize(
    ("metadata", "alpha"),
    [
        ({"unet.lora_alpha": "6", "unet.r": "3"}, 6),
        ({"lora_alpha": "6.0", "r": "3"}, 6),
        ({"alpha": "6"}, 6),
        ({"network_alpha": "1.5", "network_dim": "3"}, 1.5),
        ({"ss_network_alpha": "6", "ss_network_dim": "3", "ss_network_args": "{}"}, 6),
        ({"lora_config": json.dumps({"lora_alpha": 6, "rank": 3})}, 6),
        ({"adapter_config": json.dumps({"unet": {"lora_alpha": "6", "r": 3}, "text_encoder": {"lora_alpha": 9}})}, 6),
        ({"unet.lora_alpha": "6", "unet.use_rslora": "true"}, 6 * 3**0.5),
        ({"lora_alpha": "6", "alpha_pattern": json.dumps({"to_.*": 12})}, 12),
        ({"text_encoder.lora_alpha": "6"}, None),
        ({"title": "alpha", "steps": "16"}, None),
    ],
)
def test_alphas_in_the_metadata_of_other_programs(metadata, alpha, path, caplog):
    tensors = tensors_of(UNET_FORMS["peft"], unet_pairs())
    safetensors.numpy.save_file(tensors, path, {"format": "pt"} | metadata)
    found = checkpoints.read_lora(path)
    assert {adapter.alpha for adapter in found.parts["unet"].values()} == {alpha}
    assert len(caplog.records) == any("alpha" in key or "config" in key for key in metadata)


@pytest.mark.parametrize("key", ["lora_scale", "strength", "conv_alpha", "unet.lora_weight"])
def test_strengths_that_are_not_read_are_named(key, path, caplog):
    safetensors.numpy.save_file(tensors_of(UNET_FORMS["peft"], unet_pairs()), path, {key: "0.8"})
    assert {adapter.alpha for adapter in checkpoints.read_lora(path).parts["unet"].values()} == {None}
    (record,) = caplog.records
    assert f"{key}=0.8" in record.getMessage()


def test_a_tensors_alpha_counts_more_than_the_metadata(path):
    tensors = {name: np.asarray(one) for name, one in tensors_of(UNET_FORMS["peft"], unet_pairs(), alpha=6.0).items()}
    safetensors.numpy.save_file(tensors, path, {"lora_alpha": "12", "r": "7"})
    assert {adapter.alpha for adapter in checkpoints.read_lora(path).parts["unet"].values()} == {6}


@pytest.mark.parametrize("metadata", [{"lora_alpha": "6", "r": "4"}, {"lora_alpha": "6", "unet.config": '{"alpha":7}'}])
def test_metadata_that_contradicts_is_refused(metadata, path):
    safetensors.numpy.save_file(tensors_of(UNET_FORMS["peft"], unet_pairs()), path, metadata)
    expect(path, "mismatched-parts")


A, B, ALPHA = (f"unet.{UNET_LAYER}.to_q.{end}" for end in PEFT)
DOWN, UP = pair(0)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({}, ("empty-file",)),
        ({A: DOWN}, ("incomplete-file", A, "up", f"{UNET_LAYER}.to_q")),
        ({B: UP}, ("incomplete-file", B, "down")),
        ({A: DOWN, B: UP[:, :2]}, ("damaged-file", A, B, "3", "2")),
        ({A: DOWN[:, :, None], B: UP[:, :, None]}, ("wrong-shape", A, "[3, 8, 1]", "[8, 3, 1]")),
        ({A: np.where(DOWN > 0, np.nan, DOWN), B: UP}, ("not-finite", A)),
        ({A: DOWN, B: UP, A.removeprefix("unet."): DOWN}, ("repeated-tensor", A)),
        ({A: DOWN, B: UP, ALPHA: np.ones(2, np.float32)}, ("wrong-shape", ALPHA, "[2]")),
        ({A: DOWN, B: UP, ALPHA: np.bool_(True)}, ("wrong-dtype", ALPHA, "bool")),
        ({A: DOWN, B: UP, "unet.conv_in.weight": UP}, ("not-a-lora", "unet.conv_in.weight", "LyCORIS")),
        ({"lora_unet_mid_block_attn2_to_q.lora_down.weight": DOWN}, ("incomplete-file",)),
        ({"unet.attn1.processor.to_x_lora.down.weight": DOWN}, ("not-a-lora",)),
        *(
            ({A: DOWN, B: UP, f"lora_unet_mid_block_x.{name}": np.ones((2, 2), np.float32)}, ("not-a-lora", kind))
            for name, kind in {"oft_blocks": "OFT", "on_input": "IA3", "norm_q.weight": "control LoRA"}.items()
        ),
        *(
            ({A: DOWN, B: UP, f"lora_unet_mid_block_x.{name}": np.ones((2, 2), np.float32)}, ("incomplete-file", name))
            for name in ("lora_mid.weight", "hada_w1_a", "lokr_w1", "lokr_t2", "dora_scale", "lora_up.bias")
        ),
        *(
            ({f"lora_unet_{name}.lora_down.weight": DOWN}, ("not-a-lora",))
            for name in ("input_blocks", "input_blocks_x_1_q", "middle_block_7_q", "output_blocks_1_", "_", "To_Q")
        ),
        *(
            ({A: DOWN, B: UP} | {name: np.ones((3, 3), dtype)}, ("wrong-dtype", name, np.dtype(dtype).name))
            for name in (A, B)
            for dtype in (np.int8, np.bool_, np.complex64)
        ),
    ],
)
def test_files_that_cannot_be_used(tensors, words, path):
    write(path, tensors)
    assert expect(path, *words).startswith(str(path))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"unet.use_dora": True}, ("mismatched-parts", "use_dora=True")),
        ({"unet.lora_alpha": "8"}, ("bad-value", "lora_alpha", "'8'")),
        ({"unet.r": 4}, ("mismatched-parts", "rank", "4", "3")),
        ({"lora_alpha": 3}, ("mismatched-parts", "rank", "8", "3")),  # peft's rank where a config has none
        (3, ("not-json",)),
        *(
            ({"unet.r": 3, "unet.alpha_pattern": {pattern: 4}}, ("bad-name", "alpha_pattern"))
            for pattern in ("x" * 1500, "(", "[a", "*")
        ),
        # They would take for ever.
        *(({"unet.r": 3, "unet.alpha_pattern": {p: 4}}, ("bad-name",)) for p in ("(.|.)*(.|.)*[!?]", "(?R)")),
    ],
)
def test_metadata_that_cannot_be_used(config, words, path, monkeypatch):
    monkeypatch.setattr(lora_configs.PeftConfig.__init__, "__defaults__", (0.2,))
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()), config)
    expect(path, *words)


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
    expect(folder / name, "missing-files", name, "adapter_config.json")


def test_folders_of_networks(tmp_path):
    peft_folder(tmp_path / "unet", {})
    text = tensors_of(TEXT_FORMS["peft"], text_pairs())
    text = {key.removeprefix("text_encoder."): value for key, value in text.items()}
    targets = {"target_modules": list(text_pairs()), "lora_alpha": 1}
    peft_folder(tmp_path / "text_encoder", targets, tensors=text)
    read = checkpoints.read_lora(tmp_path)
    scales = {part: {adapter.factors.scale for adapter in adapters.values()} for part, adapters in read.parts.items()}
    assert scales == {"unet": {2}, "text_encoder": {1 / 3}}
    assert read.file == str(tmp_path)
    assert set(checkpoints.read_lora(tmp_path / "text_encoder").parts) == {"text_encoder"}
    os.remove(tmp_path / "text_encoder" / "adapter_config.json")
    expect(tmp_path, "missing-files", "text_encoder/adapter_model.safetensors")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"peft_type": "LOHA"}, ("mismatched-parts", "LOHA", "LORA")),
        ({"peft_type": "OFT"}, ("unsupported-option", "OFT")),
        ({"peft_type": None}, ("not-a-lora", "peft_type")),
        ({"use_dora": True}, ("mismatched-parts", "use_dora=True")),
        ({"lora_bias": True}, ("mismatched-parts", "lora_bias=True")),
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
        ({"layers_to_transform": [5], "layers_pattern": "attentions"}, ("mismatched-parts", "target_modules")),
        ({"use_rslora": 1}, ("wrong-type", "use_rslora")),
    ],
)
def test_configs_of_peft_that_cannot_be_used(config, words, tmp_path):
    expect(peft_folder(tmp_path / "a", config), *words)


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
        ("single_blocks.2.processor.qkv_lora.down.weight", ("unet", "single_blocks.2.qkv")),
        ("single_blocks.2.processor.proj_lora.down.weight", ("unet", "single_blocks.2.linear2")),
        (f"text_encoders.clip_l.transformer.{TEXT_LAYER}.q.lora_A.weight", ("text_encoder", f"{TEXT_LAYER}.q")),
        (f"{TEXT_LAYER}.q.lora_A.weight", ("text_encoder", f"{TEXT_LAYER}.q")),
        ("lora_unet_down_blocks_0_downsamplers_0_conv.lora_down.weight", ("unet", "down_blocks.0.downsamplers.0.conv")),
        ("lora_unet_input_blocks_0_0.lora_down.weight", ("unet", "conv_in")),
        ("double_blocks.1.processor.qkv_lora3.down.weight", None),
    ],
)
def test_names_of_other_programs(name, expected):
    assert lora_keys.parse(name) == (expected and (*expected, "down"))


@pytest.mark.parametrize(
    ("name", "depths", "expected"),
    [
        ("input_blocks_4_1_proj_in", (2, 2, 2), "down_blocks.1.attentions.0.proj_in"),
        ("input_blocks_3_0_op", (2, 2), "down_blocks.0.downsamplers.0.conv"),
        ("output_blocks_3_0_in_layers_2", (1, 2), "up_blocks.1.resnets.0.conv1"),
        ("output_blocks_2_2_conv", (2, 2), "up_blocks.0.upsamplers.0.conv"),
        ("middle_block_2_out_layers_3", (2,), "mid_block.resnets.1.conv2"),
        ("input_blocks_9_0_op", (2, 2), None),
    ],
)
def test_blocks_of_the_original_code(name, depths, expected):
    assert lora_keys.original_block_to_diffusers(name, depths) == expected


def test_two_alphas_must_agree_and_one_may_be_a_whole_number(path):
    tensors = tensors_of(UNET_FORMS["peft"], unet_pairs(), alpha=6.0)
    config = {"unet.r": 3, "unet.lora_alpha": 6}
    assert {one.alpha for one in checkpoints.read_lora(write(path, tensors, config)).parts["unet"].values()} == {6}
    expect(write(path, tensors, config | {"unet.lora_alpha": 7}), "mismatched-parts", "6", "7")
    del tensors[f"unet.{UNET_LAYER}.to_k.alpha"]
    expect(write(path, tensors), "incomplete-file", "alpha", f"{UNET_LAYER}.to_k")
    whole = tensors_of(UNET_FORMS["peft"], {"to_q": pair(0)}) | {ALPHA: np.int64(6)}
    assert [one.factors.scale for one in checkpoints.read_lora(write(path, whole)).parts["unet"].values()] == [2]


@pytest.mark.parametrize(
    ("name", "width", "words"),
    [
        ("up_blocks.9.attn1.to_q", 8, ("UNet2DConditionModel", "up_blocks.9.attn1.to_q")),
        (f"{UNET_LAYER}.to_q", 16, ("[16, 3]", "[3, 16]", "8")),
    ],
)
def test_loras_of_other_models_change_nothing(name, width, words, path):
    named = {f"unet.{name}.{end}": values for end, values in zip(PEFT[:2], pair(0, width=width), strict=True)}
    write(path, named | tensors_of(TEXT_FORMS["peft"], text_pairs()))
    pipeline = Pipeline()
    with raises("lora-misfit", *words) as error:
        checkpoints.load_lora(pipeline, path)
    assert str(error.value).startswith(f"{path}: ")
    assert not lora.adapters(pipeline.unet)
    assert not lora.adapters(pipeline.text_encoder)


def test_a_text_encoders_lora_of_another_model_changes_no_denoiser(path):
    pipeline = Pipeline()
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()) | tensors_of(TEXT_FORMS["peft"], {"q_proj": pair(0)}))
    before = checkpoints.weights_sha256(pipeline.unet)
    with raises("lora-misfit", "CLIPTextModel", "12"):
        checkpoints.load_lora(pipeline, path)
    assert checkpoints.weights_sha256(pipeline.unet) == before


def test_one_lora_apart_at_a_time(path):
    write(path, tensors_of(UNET_FORMS["peft"], unet_pairs()))
    pipeline = Pipeline()
    checkpoints.load_lora(pipeline, path, fuse=False)
    with raises("has-lora"):
        checkpoints.load_lora(pipeline, path)
    lora.fuse(pipeline.unet)
    checkpoints.load_lora(pipeline, path)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), "1", True])
def test_bad_scales(scale, path):
    with raises("out-of-range"):
        checkpoints.load_lora(None, path, scale=scale)


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
    (other / "notes.txt").write_text("")
    for source, words in (
        (other, ("no-such-file", "pytorch_lora_weights.safetensors", "mine.safetensors")),
        (other / "none.safetensors", ("no-such-file", "none.safetensors")),
        (other / "none", ("no-such-model",)),
        (other / "notes.txt", ("unsupported-file-format", "notes.txt")),
    ):
        expect(source, *words)


def test_the_published_file_fits_sd21_base(reference_data):
    """256 tensors, saved from a GPU: each of SD 2.1-base's 128 attention projections gets its two, and none is left."""
    folder = reference_data / "lora" / "noneg"
    expect(folder, "weights-are-a-pickle", "-m", "convert_pickle")
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


def test_what_cannot_be_saved(tmp_path):
    with raises("no-lora"):
        checkpoints.save_lora(tmp_path / "new", unet=network())
    assert not (tmp_path / "new").exists()
    module = adapted()
    name, adapter = next(iter(lora.adapters(module).items()))
    adapter.up.set_value(jnp.full_like(adapter.up[...], jnp.inf))
    with raises("not-finite", f"unet.{name}"):
        checkpoints.save_lora(tmp_path / "new", unet=module)
    with raises("cannot-be-saved", "LoRA"):
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
