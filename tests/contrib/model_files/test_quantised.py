import json

import numpy as np
import pytest
import safetensors.torch
import torch

from tests.expectations import raises
from winobench.checkpoints import weights

EIGHT_BITS = torch.float8_e4m3fn
SCALE, ROWS = torch.tensor(0.37), torch.rand((6, 1), generator=torch.Generator().manual_seed(1))


def described(content):
    return torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=torch.uint8)


def read(folder, *shards):
    paths = [str(folder / f"{number}.safetensors") for number in range(len(shards))]
    for path, tensors in zip(paths, shards, strict=True):
        safetensors.torch.save_file({key: value.clone() for key, value in tensors.items()}, path)
    return weights.read_weights(paths)


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [EIGHT_BITS, torch.float8_e5m2])
@pytest.mark.parametrize(
    ("scale", "others"),
    [
        ({"a.scale_weight": SCALE}, {"a.scale_input": SCALE, "scaled_fp8": torch.zeros(0, dtype=EIGHT_BITS)}),
        ({"a.weight_scale": SCALE}, {"a.input_scale": SCALE, "a.comfy_quant": described({"format": "float8_e4m3fn"})}),
        ({"a.weight_scale": SCALE[None].bfloat16()}, {}),
        ({"a.weight_scale": ROWS}, {}),
    ],
)
def test_floats_of_8_bits_are_multiplied_by_their_scales(dtype, scale, others, tmp_path):
    stored, rest = random(6, 4).to(dtype), {"a.bias": random(6), "norm.scale": random(3)}
    # The factors may lie in another shard.
    found = read(tmp_path, {"a.weight": stored, **rest}, scale | others)
    assert found.keys() == {"a.weight", *rest}
    (factor,) = scale.values()
    np.testing.assert_array_equal(found["a.weight"].floats(), (stored.float() * factor.float()).numpy())
    np.testing.assert_array_equal(found["norm.scale"].floats(), rest["norm.scale"].numpy())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a.weight_scale_inv", SCALE),
        ("a.weight_scale_2", SCALE),
        ("a.weight_scale", torch.ones(6)),
        ("a.weight_scale", torch.ones(4, 1)),
        ("b.weight_scale", SCALE),  # of a weight in full precision
        ("c.weight_scale", SCALE),  # of none
        ("c.input_scale", SCALE),
        ("a_weight_scale", SCALE),
        ("a.comfy_quant", described({"format": "nvfp4"})),
        ("a.comfy_quant", described({"format": "float8_e4m3fn", "rotated": True})),
        ("a.comfy_quant", torch.zeros(3, dtype=torch.uint8)),
    ],
)
def test_other_factors_of_8_bits_are_refused(name, value, tmp_path):
    tensors = {"a.weight": random(6, 4).to(EIGHT_BITS), "b.weight": random(2, 2), name: value}
    with raises("unsupported-checkpoint", "0.safetensors", name):
        read(tmp_path, tensors)
    tensors = {"a.weight": tensors["a.weight"], "a.scale_weight": SCALE, "a.weight_scale": SCALE}
    with raises("unsupported-checkpoint", "a.weight_scale"):
        read(tmp_path, tensors)


def test_bytes_of_4_bits_are_read_by_their_definition(tmp_path):
    generator = np.random.default_rng(0)
    table, inner_table = (generator.normal(size=size).astype(np.float32) for size in (16, 256))
    codes = generator.integers(0, 16, 7 * 19)
    padded = np.append(codes, 0)  # half a byte is left
    blocks, inner = generator.integers(0, 256, 9), generator.normal(size=3).astype(np.float32)
    largest = np.asarray([inner_table[code] * inner[index // 4] for index, code in enumerate(blocks)]) + np.float32(0.5)
    state = {"blocksize": 16, "shape": [7, 19], "nested_blocksize": 4, "nested_offset": 0.5}
    tensors = {
        "": torch.tensor((padded[::2] << 4 | padded[1::2])[:, None], dtype=torch.uint8),
        ".absmax": torch.tensor(blocks, dtype=torch.uint8),
        ".quant_map": torch.tensor(table),
        ".nested_absmax": torch.tensor(inner),
        ".nested_quant_map": torch.tensor(inner_table),
        ".quant_state.bitsandbytes__nf4": described(state),
    }
    named = {f"a.weight{name}": tensor for name, tensor in tensors.items()}
    result = read(tmp_path, named)
    expected = [table[code] * largest[index // 16] for index, code in enumerate(codes)]
    assert result.keys() == {"a.weight"}
    assert result["a.weight"].shape == (7, 19)
    np.testing.assert_array_equal(result["a.weight"].floats(), np.reshape(expected, (7, 19)).astype(np.float32))
    del named["a.weight.nested_absmax"]
    with raises("unsupported-checkpoint", "bitsandbytes__nf4"):
        read(tmp_path, named)


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [True, False])
def test_4_bits_as_bitsandbytes_packs_them(kind, nested, tmp_path):
    functional = pytest.importorskip("bitsandbytes.functional")
    packed, state = functional.quantize_4bit(random(24, 40), quant_type=kind, compress_statistics=nested)
    parts = {f"a.weight.{key}": value for key, value in state.as_dict(packed=True).items()}
    found = read(tmp_path, {"a.weight": packed, **parts})["a.weight"].floats()
    np.testing.assert_array_equal(found, functional.dequantize_4bit(packed, state).numpy())


def test_8_bits_of_bitsandbytes(tmp_path):
    stored, largest = torch.randint(-127, 128, (6, 4), dtype=torch.int8), ROWS[:, 0]
    tensors = {"a.weight": stored, "a.SCB": largest, "a.weight_format": torch.tensor(0, dtype=torch.uint8)}
    found = read(tmp_path, tensors)
    assert found.keys() == {"a.weight"}
    np.testing.assert_allclose(found["a.weight"].floats(), (stored * largest[:, None] / 127).numpy(), rtol=1e-6)
    with raises("unsupported-checkpoint", "a.SCB"):  # rows in another order
        read(tmp_path, tensors | {"a.weight_format": torch.tensor(2, dtype=torch.uint8)})
