"""Adapters that are added to the weights: each form against its published formula, in NumPy."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

from tests.checkpoints.test_lora_layers import WIDTH, Network
from tests.expectations import raises
from tests.models.test_lora import network
from winobench import checkpoints
from winobench.models import lora

DENSE, CONV, NORM = "mid_block.attentions.0.proj_in", "down_blocks.0.resnets.0.conv1", "mid_block.resnets.0.norm1"
QUERY = "mid_block.attentions.0.transformer_blocks.0.attn2.to_q"
RANDOM = np.random.default_rng(4)
TOLERANCE = 1e-6  # of the largest new weight


def random(*shape):
    return 0.5 * RANDOM.standard_normal(shape, np.float32)


class Pipeline:
    DENOISER, LARGE_ENCODERS, NETWORKS = "unet", (), ("unet",)

    def __init__(self, unet=None):
        self.networks = {"unet": unet or network("unet")}


def parameters(module, layer):
    """A layer's weight and bias in torch's layout, in double precision."""
    owner, part = lora.weighted_layers(module)[layer]
    weight = np.asarray(getattr(owner, part)[...], np.float64)
    bias = None if owner.bias is None else np.asarray(owner.bias[...], np.float64)
    return weight.transpose({1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}[weight.ndim]), bias


def write(path, tensors):
    safetensors.numpy.save_file({name: np.array(values, order="C") for name, values in tensors.items()}, path)
    return path


def loaded(path, tensors, unet=None, **options):
    pipeline = Pipeline(unet)
    checkpoints.load_lora(pipeline, write(path, tensors), **options)
    return pipeline.networks["unet"]


def tucker(core, a, b):
    return np.einsum("rshw,ro,si->oihw", core, a, b, dtype=np.float64)


def kron(first, second):
    return np.einsum("ab,cd...->acbd...", first, second).reshape(len(first) * len(second), -1, *second.shape[2:])


def dora(scale, weight, axis):
    return scale * weight / np.sqrt(np.sum(np.square(weight), axis, keepdims=True))


LOHA = {"w1_a": random(8, 2), "w1_b": random(2, 8), "w2_a": random(8, 2), "w2_b": random(2, 8)}
FLAT = {"w1_a": random(8, 2), "w1_b": random(2, 72), "w2_a": random(8, 2), "w2_b": random(2, 72)}
CORES = {"w1_a": random(2, 8), "w1_b": random(2, 8), "w2_a": random(2, 8), "w2_b": random(2, 8)}
T1, T2, W1, W2, A, B = random(2, 2, 3, 3), random(2, 2, 3, 3), random(2, 4), random(4, 2), random(4, 3), random(3, 2)
A2, B2, SMALL = random(3, 4), random(3, 2), random(3, 3, 3, 3)
KERNEL, OUT, IN, DIFF = random(4, 2, 3, 3), random(8), random(8), random(8, 8)
DOWN, UP, DOWN3, MID = random(3, 8), random(8, 3), random(3, 8, 1, 1), random(3, 3, 3, 3)
PAIR = {"lora_down.weight": DOWN, "lora_up.weight": UP}


def named(kind, factors):
    return {f"{kind}_{name}": values for name, values in factors.items()}


def hada(parts):
    return (parts["w1_a"] @ parts["w1_b"]) * (parts["w2_a"] @ parts["w2_b"])


# Name -> (layer, tensors by the end of their names, alpha / rank, the formula of the new weight; w is the old one).
# Alpha is 3, and 1 without a rank.
FORMS = {
    "LoHa": (DENSE, named("hada", LOHA), lambda w: w + 1.5 * hada(LOHA)[..., None, None]),
    "LoHa of a convolution": (CONV, named("hada", FLAT), lambda w: w + 1.5 * hada(FLAT).reshape(8, 8, 3, 3)),
    "LoHa with cores": (
        CONV,
        named("hada", CORES | {"t1": T1, "t2": T2}),
        lambda w: w + 1.5 * tucker(T1, CORES["w1_a"], CORES["w1_b"]) * tucker(T2, CORES["w2_a"], CORES["w2_b"]),
    ),
    "LoKr": (QUERY, named("lokr", {"w1": W1, "w2_a": A, "w2_b": B}), lambda w: w + kron(W1, A @ B)),
    "LoKr of two products": (
        QUERY,
        named("lokr", {"w1_a": W1[:, :3], "w1_b": A.T, "w2_a": A, "w2_b": B}),
        lambda w: w + kron(W1[:, :3] @ A.T, A @ B),
    ),
    # Its alpha is passed over.
    "LoKr of whole factors": (QUERY, named("lokr", {"w1": W1, "w2": W2}), lambda w: w + kron(W1, W2)),
    "LoKr of a kernel": (CONV, named("lokr", {"w1": W1, "w2": KERNEL}), lambda w: w + kron(W1, KERNEL)),
    "LoKr with a core": (
        CONV,
        named("lokr", {"w1": W1, "w2_a": A2, "w2_b": B2, "t2": SMALL}),
        lambda w: w + kron(W1, tucker(SMALL, A2, B2)),
    ),
    "LoCon with a core": (
        CONV,
        {"lora_down.weight": DOWN3, "lora_mid.weight": MID, "lora_up.weight": UP[..., None, None]},
        lambda w: w + tucker(MID, UP.T, DOWN3[..., 0, 0]),
    ),
    "DoRA": (QUERY, PAIR | {"dora_scale": OUT[:, None]}, lambda w: dora(OUT[:, None], w + UP @ DOWN, 1)),
    "DoRA by inputs": (QUERY, PAIR | {"dora_scale": IN[None]}, lambda w: dora(IN, w + UP @ DOWN, 0)),
    "DoRA of a LoHa": (
        QUERY,
        named("hada", LOHA) | {"dora_scale": OUT[:, None]},
        lambda w: dora(OUT[:, None], w + 1.5 * hada(LOHA), 1),
    ),
    "difference": (QUERY, {"diff": DIFF}, lambda w: w + DIFF),
    "difference of a norm": (NORM, {"w_norm": OUT, "b_norm": IN}, lambda w: w + OUT),
    "difference of a bias": (CONV, {"diff_b": IN}, lambda w: w),
}


@pytest.mark.parametrize("name", FORMS)
def test_formulas(name, tmp_path):
    layer, tensors, formula = FORMS[name]
    word = f"lora_unet_{layer.replace('.', '_')}"
    file = {f"{word}.{end}": values for end, values in tensors.items()}
    if not tensors.keys() & {"diff", "diff_b", "w_norm"}:
        file[f"{word}.alpha"] = np.float32(3)
    weight, bias = parameters(network("unet"), layer)
    unet = loaded(tmp_path / "a.safetensors", file)
    got, got_bias = parameters(unet, layer)
    expected = formula(weight)
    assert np.abs(got - expected).max() < TOLERANCE * np.abs(expected).max()
    if bias is not None:
        moved = tensors.get("diff_b", tensors.get("b_norm", 0))
        np.testing.assert_allclose(got_bias, bias + moved, rtol=1e-6)
    read = checkpoints.read_lora(tmp_path / "a.safetensors")
    changed = {end: values + (end == max(file)) for end, values in file.items()}
    assert read.sha256 != checkpoints.read_lora(write(tmp_path / "b.safetensors", changed)).sha256
    if name != "LoCon with a core":
        with raises("unsupported-option", layer, "fuse_lora=True"):
            loaded(tmp_path / "a.safetensors", file, fuse=False)


def test_factors_with_a_core_are_a_pair_that_can_stay_apart(tmp_path):
    layer, tensors, _ = FORMS["LoCon with a core"]
    file = {f"unet.{layer}.{end}": values for end, values in tensors.items()}
    apart = loaded(tmp_path / "a.safetensors", file, fuse=False)
    assert list(lora.adapters(apart)) == [layer]
    lora.fuse(apart)
    fused = loaded(tmp_path / "a.safetensors", file)
    np.testing.assert_array_equal(parameters(apart, layer)[0], parameters(fused, layer)[0])


def test_the_scale_reaches_all_forms(tmp_path):
    file = {f"unet.{QUERY}.{end}": values for end, values in FORMS["LoKr of whole factors"][1].items()}
    file |= {f"unet.{NORM}.diff": OUT, f"unet.{NORM}.diff_b": IN}
    unet, base = loaded(tmp_path / "a.safetensors", file, scale=0.5), network("unet")
    np.testing.assert_allclose(parameters(unet, QUERY)[0], parameters(base, QUERY)[0] + 0.5 * kron(W1, W2), atol=1e-6)
    for got, old, moved in zip(parameters(unet, NORM), parameters(base, NORM), (OUT, IN), strict=True):
        np.testing.assert_allclose(got, old + 0.5 * moved, atol=1e-6)


class Flow(Pipeline):
    def __init__(self):
        super().__init__(Network())
        self.networks["unet"].lora_targets = {"all": ...}


@pytest.mark.parametrize("form", ["LoKr", "DoRA", "lora_bias", "difference"])
def test_layers_that_are_one_in_the_original_code(form, tmp_path):
    """Of 4, 2 and 2 outputs. A row is computed as of the whole layer."""
    down, up, rows = random(1, WIDTH), random(8, 1), random(8)
    tensors = {
        "LoKr": {"lokr_w1": W1[:, :2], "lokr_w2": W2},
        "DoRA": {"lora_A.weight": down, "lora_B.weight": up, "lora_magnitude_vector": rows},
        "lora_bias": {"lora_A.weight": down, "lora_B.weight": up, "lora_B.bias": rows},
        "difference": {"diff": random(8, WIDTH), "diff_b": rows},
    }[form]
    file = {f"diffusion_model.layers.0.attention.qkv.{end}": values for end, values in tensors.items()}
    layers = [f"layers.0.attention.to_{part}" for part in "qkv"]
    before = [parameters(Network(), layer) for layer in layers]
    weight, bias = (np.concatenate(parts) for parts in zip(*before, strict=True))
    expected = weight + (kron(W1[:, :2], W2) if form == "LoKr" else tensors.get("diff", up @ down))
    if form == "DoRA":
        expected = dora(rows[:, None], expected, 1)
    pipeline = Flow()
    checkpoints.load_lora(pipeline, write(tmp_path / "a.safetensors", file))
    after = [parameters(pipeline.networks["unet"], layer) for layer in layers]
    got, got_bias = (np.concatenate(parts) for parts in zip(*after, strict=True))
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(got_bias, bias + (rows if form in ("lora_bias", "difference") else 0), atol=1e-6)
    if form == "difference":
        with raises("lora-misfit", "[7]", "[4]"):
            checkpoints.load_lora(Flow(), write(tmp_path / "b.safetensors", file | {max(file): rows[:7]}))


WORD = f"lora_unet_{QUERY.replace('.', '_')}"


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (named("hada", LOHA | {"w1_b": random(2, 9)}), ("damaged-file", "hada_w1_b", "[2, 9]")),
        (named("hada", FLAT), ("lora-misfit", "[8, 72]", "[8, 8]")),
        (named("hada", LOHA | {"t1": T1}), ("damaged-file", "hada_t1")),
        (named("lokr", {"w1": W1, "w2": W1}), ("lora-misfit", "[4, 16]")),
        ({"diff": DIFF[:4]}, ("lora-misfit", "[4, 8]")),
        (PAIR | {"lora_up.bias": OUT}, ("lora-misfit", "bias", QUERY)),
        (PAIR | {"dora_scale": OUT[:3, None]}, ("lora-misfit", "3", "8")),
        (PAIR | {"lora_mid.weight": MID}, ("damaged-file", "lora_mid.weight")),
    ],
)
def test_what_does_not_fit_changes_nothing(tensors, words, tmp_path):
    file = {f"{WORD}.{end}": values for end, values in tensors.items()} | {"lora_unet_conv_in.diff_b": OUT}
    unet = network("unet")
    before = checkpoints.weights_sha256(unet)
    with raises(*words):
        loaded(tmp_path / "a.safetensors", file, unet)
    assert checkpoints.weights_sha256(unet) == before


def test_zeros_for_what_has_no_adapter_are_passed_over(tmp_path):
    """Programs that take the difference of two models write them. Diffusers passes over them, too."""
    none = {
        "lora_unet_mid_block_positions.diff": np.zeros((7, 12), np.float32),
        "text_encoders.t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.q.diff": np.zeros((3, 3), np.float32),
    }
    file = {f"{WORD}.diff": DIFF}
    unet = loaded(tmp_path / "a.safetensors", file | none)
    np.testing.assert_allclose(parameters(unet, QUERY)[0], parameters(network("unet"), QUERY)[0] + DIFF, atol=1e-6)
    for name, zeros in none.items():
        with raises("lora-misfit"):
            loaded(tmp_path / "a.safetensors", file | {name: zeros + 1})


def test_weights_in_the_hosts_memory_stay_there(tmp_path):
    unet = network("unet")
    graph, state = nnx.split(unet)
    unet = nnx.merge(graph, jax.tree.map(np.asarray, state))
    file = {f"{WORD}.{end}": values for end, values in FORMS["LoKr"][1].items()} | {"lora_unet_conv_in.diff_b": OUT}
    loaded(tmp_path / "a.safetensors", file, unet)
    expected = loaded(tmp_path / "a.safetensors", file)
    for got, wanted in zip(jax.tree.leaves(nnx.state(unet)), jax.tree.leaves(nnx.state(expected)), strict=True):
        assert isinstance(got, np.ndarray)
        assert not got.flags.writeable
        np.testing.assert_array_equal(got, wanted)


def test_configs_of_peft_state_the_kind(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LOKR", "r": 4, "alpha": 6}))
    factors = {f"base_model.model.{QUERY}.lokr_{name}": values for name, values in (("w1", W1), ("w2", W2))}
    unet = loaded(tmp_path / "adapter_model.safetensors", factors)
    expected = parameters(network("unet"), QUERY)[0] + 1.5 * kron(W1, W2)
    np.testing.assert_allclose(parameters(unet, QUERY)[0], expected, atol=1e-6)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LOHA", "r": 4, "alpha": 6}))
    with raises("mismatched-parts", "LOHA", "LOKR", QUERY):
        loaded(tmp_path / "adapter_model.safetensors", factors)
