import json

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from tests.expectations import raises
from winobench.checkpoints import sources, weights

STEM = "diffusion_pytorch_model"


def write(folder, *names):
    folder.mkdir(exist_ok=True, parents=True)
    for name in names:
        weights.write_weights(folder / name, {f"{name}.weight": np.zeros(2, np.float32)})


def find(folder, subfolder=None, stem=STEM, **options):
    return weights.find_weights(sources.LocalFolder(folder), subfolder, stem, **options)


def read(*paths):
    return weights.read_weights([str(path) for path in paths])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


@pytest.fixture
def tensors(path):
    tensors = {
        "a": np.linspace(-1, 1, 60, dtype=np.float32).reshape(5, 12),
        "b": np.arange(7, dtype=np.float16),
        "c": np.arange(4, dtype=np.float32).astype(ml_dtypes.bfloat16),
        "scalar": np.float32(2),
        "none": np.zeros((0, 3), np.float32),
    }
    weights.write_weights(path, tensors)
    return tensors


def write_index(folder, name, weight_map):
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64])
def test_round_trip(tmp_path, dtype):
    arrays = {
        "weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4).astype(dtype),
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T.astype(dtype),
        "scalar": np.asarray(3, dtype),
    }
    weights.write_weights(tmp_path / "a.safetensors", arrays)
    result = read(tmp_path / "a.safetensors")
    assert result.keys() == arrays.keys()
    for name, tensor in result.items():
        assert tensor.shape == arrays[name].shape
        values = tensor.read()
        assert values.dtype == dtype
        np.testing.assert_array_equal(values.astype(np.float64), arrays[name].astype(np.float64))


@pytest.mark.parametrize("variant", [None, "fp16"])
def test_shards(tmp_path, variant):
    middle = f".{variant}" if variant else ""
    shards = [f"{STEM}{middle}-00001-of-00002.safetensors", f"{STEM}{middle}-00002-of-00002.safetensors"]
    write(tmp_path / "unet", *shards)
    write_index(tmp_path / "unet", f"{STEM}.safetensors.index{middle}.json", {"a": shards[0], "b": shards[1]})
    paths = find(tmp_path, "unet", variant=variant)
    assert paths == [str(tmp_path / "unet" / shard) for shard in shards]
    assert len(read(*paths)) == 2
    (tmp_path / "unet" / shards[1]).unlink()
    with raises("missing-shards", "00002-of-00002"):
        find(tmp_path, "unet", variant=variant)
    write(tmp_path / "unet", f"{STEM}{middle}.safetensors")
    assert find(tmp_path, "unet", variant=variant) == [str(tmp_path / "unet" / f"{STEM}{middle}.safetensors")]


@pytest.mark.parametrize(
    "weight_map",
    [
        *({}, None, {"a": "../outside.safetensors"}, {"a": "/etc/passwd"}, {"a": 1}, {"a": None}, {"a": ["x"]}),
        {"a": 1, "b": "x.safetensors"},
    ],
)
def test_damaged_index(tmp_path, weight_map):
    write_index(tmp_path, f"{STEM}.safetensors.index.json", weight_map)
    with raises("damaged-index"):
        find(tmp_path)


def test_a_key_in_two_shards_is_an_error(tmp_path):
    for name in ("a.safetensors", "b.safetensors"):
        weights.write_weights(tmp_path / name, {"weight": np.zeros(2), name: np.zeros(2)})
    with raises("repeated-tensor", "b.safetensors", "1"):
        read(tmp_path / "a.safetensors", tmp_path / "b.safetensors")


def test_variants_are_exact_and_listed(tmp_path):
    write(tmp_path, f"{STEM}.fp16.safetensors")
    assert find(tmp_path, variant="fp16")
    with raises("no-weights", f"{STEM}.safetensors", f"{STEM}.fp16.safetensors"):
        find(tmp_path)
    with raises("no-weights", f"{STEM}.bf16.safetensors"):
        find(tmp_path, variant="bf16")


def test_folders_without_weights(tmp_path):
    (tmp_path / "diffusion_flax_model.msgpack").touch()
    with raises("no-weights", "diffusion_flax_model.msgpack"):
        find(tmp_path)
    (tmp_path / "model-Q4_K_M.gguf").touch()
    with raises("no-weights", "model-Q4_K_M.gguf", "GGUF", "safetensors"):
        find(tmp_path)


@pytest.mark.parametrize(("stem", "pickle"), [(STEM, f"{STEM}.bin"), ("model", "pytorch_model.bin")])
def test_pickles_are_refused_with_the_command_that_converts_them(tmp_path, stem, pickle):
    (tmp_path / pickle).touch()
    with raises("weights-are-a-pickle", f"`python -m winobench.checkpoints.convert_pickle {tmp_path}`"):
        find(tmp_path, stem=stem)
    assert find(tmp_path, stem=stem, allow_pickle=True) == [str(tmp_path / pickle)]
    # Safetensors come first, allowed or not.
    write(tmp_path, f"{stem}.safetensors")
    assert find(tmp_path, stem=stem, allow_pickle=True) == [str(tmp_path / f"{stem}.safetensors")]


@pytest.mark.parametrize("kept", [0, 4, 8, 60, -1])
def test_truncated_file(path, kept):
    weights.write_weights(path, {"weight": np.zeros(100, np.float32)})
    path.write_bytes(path.read_bytes()[:kept])
    with raises("incomplete-file", "a.safetensors"):
        read(path)


def test_writing_is_whole_or_not_at_all(tmp_path, path):
    weights.write_weights(path, {"weight": np.zeros(3, np.float32)})
    before = path.read_bytes()
    with pytest.raises(Exception, match="complex128"):
        weights.write_weights(path, {"weight": np.zeros(3, np.complex128)})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.safetensors"]


def _safetensors(path, header, data=b""):
    """A file with a header as it stands, which no library would write."""
    content = header.encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + data)
    return str(path)


def test_a_name_twice_in_a_header_is_refused(tmp_path):
    tensor = '{"dtype": "F32", "shape": [1], "data_offsets": [%d, %d]}'
    header = f'{{"a": {tensor % (0, 4)}, "b": {tensor % (4, 8)}, "a": {tensor % (8, 12)}}}'
    with raises("repeated-tensor", "'a'"):
        read(_safetensors(tmp_path / "twice.safetensors", header, bytes(12)))
    # An inner key, too.
    header = '{"a": {"dtype": "F32", "shape": [1], "shape": [1], "data_offsets": [0, 4]}}'
    with raises("repeated-tensor", "'shape'"):
        read(_safetensors(tmp_path / "inner.safetensors", header, bytes(4)))


@pytest.mark.parametrize("header", ["", "{", "[" * 100_000, '{"a": NaN}', '"\\ud83d"'])
def test_other_faults_of_a_header_are_the_librarys(tmp_path, header):
    with raises("incomplete-file"):
        read(_safetensors(tmp_path / "bad.safetensors", header))


@pytest.mark.usefixtures("tensors")
def test_every_flipped_bit_of_written_weights_is_seen(path):
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    read(path)
    for position in range(start, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with raises("damaged-file", "a.safetensors"):
            read(path)


@pytest.mark.usefixtures("tensors")
def test_names_and_shapes_of_written_weights_are_compared_too(path):
    content = path.read_bytes()
    for old, new in ((b"[5,12]", b"[12,5]"), (b'"a":', b'"z":'), (b'"F16"', b'"I16"'), (b'"b":', b'"A":')):
        assert old in content
        path.write_bytes(content.replace(old, new))
        with raises("damaged-file"):
            read(path)


def test_weights_that_another_tool_has_written_again_are_read(path, tensors):
    changed = {**tensors, "a": tensors["a"] + 1, "scalar": np.asarray(tensors["scalar"])}
    safetensors.numpy.save_file(changed, path, metadata={"format": "pt"})
    np.testing.assert_array_equal(read(path)["a"].read(), tensors["a"] + 1)


def test_the_digest_does_not_depend_on_the_order_in_the_file(path, tensors):
    with safetensors.safe_open(path, "np") as file:
        metadata = file.metadata()
    again = {name: np.asarray(tensors[name]) for name in reversed(tensors)}
    safetensors.numpy.save_file(again, path, metadata=metadata)
    assert read(path).keys() == tensors.keys()


def test_equal_weights_are_equal_files(tmp_path):
    arrays = {"b": np.arange(3, dtype=np.float32), "a": np.ones((2, 2), np.float16)}
    for number in range(8):  # the library orders metadata at random
        weights.write_weights(tmp_path / f"{number}.safetensors", arrays)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    assert set(read(tmp_path / "0.safetensors")) == {"a", "b"}


@pytest.mark.parametrize("subfolder", [None, "unet"])
def test_an_adapter_next_to_the_weights_is_not_passed_over(subfolder, tmp_path):
    folder = tmp_path / (subfolder or "")
    folder.mkdir(exist_ok=True)
    weights.write_weights(folder / "model.safetensors", {"a": np.ones(2, np.float32)})
    assert find(tmp_path, subfolder, "model") == [str(folder / "model.safetensors")]
    (folder / "adapter_config.json").write_text("{}")
    with raises("adapter-next-to-weights", sources.join(subfolder, "adapter_config.json")):
        find(tmp_path, subfolder, "model")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_floats_of_8_bits_are_those_of_torch(path, dtype):
    every = torch.arange(256).to(torch.uint8).view(dtype).reshape(2, 8, 16)
    safetensors.torch.save_file({"first": torch.ones(3), "weight": every}, path)
    values = read(path)["weight"].read()
    np.testing.assert_array_equal(values, every.float().numpy())


def test_dtypes_that_numpy_lacks_are_named(path):
    safetensors.torch.save_file({"weight": torch.ones(3).to(torch.float8_e8m0fnu)}, path)
    with raises("unsupported-dtype", "a.safetensors", "weight"):
        read(path)["weight"].read()


def test_a_variant_of_some_parts(tmp_path):
    source, stems = sources.LocalFolder(tmp_path), {"unet": STEM, "vae": STEM}
    write(tmp_path / "unet", f"{STEM}.fp16.safetensors", f"{STEM}.safetensors")
    write(tmp_path / "vae", f"{STEM}.safetensors")
    assert weights.variants(source, stems, "fp16") == {"unet": "fp16", "vae": None}
    assert weights.variants(source, stems, "bf16") == {"unet": "bf16", "vae": "bf16"}
    assert weights.variants(source, stems, None) == {"unet": None, "vae": None}
