"""The restricted unpickler, on files that torch wrote and on files that nobody should write."""

import collections
import contextlib
import copyreg
import io
import os
import pickle
import struct
import sys
import time
import tracemalloc
import zipfile

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tests.expectations import raises
from winobench.base.errors import InputError
from winobench.contrib.model_files import torch_pickles

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.bin"


def expect(path, *words):
    with raises(*words):
        torch_pickles.read_torch_pickle(path)


def test_every_dtype_and_layout_that_torch_writes(path):
    torch.manual_seed(0)
    base = torch.randn(6, 8)
    tensors = {dtype: (base * 3).to(getattr(torch, dtype)) for dtype in DTYPES}
    tensors |= {
        "transposed": base.T,
        "part": base[2:5, 1::2],
        "shared": base,
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "image": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(base + 1),
    }
    torch.save(tensors, path)
    ours = torch_pickles.read_torch_pickle(path)
    assert list(ours) == list(tensors)
    for name, tensor in tensors.items():
        values = ours[name].read()
        assert ours[name].shape == values.shape == tuple(tensor.shape)
        assert values.dtype.name == str(tensor.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(values.astype(np.float64), tensor.detach().double().numpy(), err_msg=name)


def test_a_state_dict_with_its_metadata(path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(module.state_dict(), path)
    ours = torch_pickles.read_torch_pickle(path)
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(ours[name].read(), tensor.numpy())


def test_published_file_saved_on_a_gpu(reference_data):
    path = reference_data / "lora" / "noneg" / "pytorch_lora_weights.bin"
    ours = torch_pickles.read_torch_pickle(path)
    theirs = torch.load(path, map_location="cpu", weights_only=True)
    assert list(ours) == list(theirs)
    assert len(ours) == 256
    for name, tensor in theirs.items():
        np.testing.assert_array_equal(ours[name].read(), tensor.numpy())


def write_archive(path, program: bytes, members: dict[str, bytes] | None = None, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program)
        for name, content in (members or {}).items():
            archive.writestr(f"archive/{name}", content)


class Runs:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "attack",
    [
        lambda marker: Runs(os.system, f"touch {marker}"),
        lambda marker: Runs(eval, f"open({str(marker)!r}, 'w')"),
        lambda marker: Runs(open, str(marker), "w"),
        lambda marker: Runs(getattr, "text", "upper"),
        lambda marker: {"deep": [({"er": Runs(exec, f"open({str(marker)!r}, 'w')")},)]},
        lambda marker: Runs(copyreg._reconstructor, Runs, object, None),
    ],
    ids=["system", "eval", "open", "getattr", "deep", "copyreg"],
)
def test_code_is_refused_and_not_run(tmp_path, path, attack):
    marker = tmp_path / "marker"
    program = pickle.dumps({"weight": attack(marker)}, protocol=2)
    write_archive(path, program)
    expect(path, "unsafe-pickle")
    assert not marker.exists()
    if sys.platform != "win32":
        # The attack is a real one: the ordinary unpickler runs it (most leave the marker).
        pickle.loads(program)
        assert marker.exists() or any(name in program for name in (b"getattr", b"copy_reg"))


@pytest.mark.parametrize(
    "name",
    [
        "torch load",
        "torch FloatStorage.__class__",
        "torch._utils _rebuild_device_tensor_from_numpy",
        "torch._utils _rebuild_tensor_v2.__init__.__globals__",
        "numpy.core.multiarray _reconstruct",
        "collections OrderedDict.fromkeys",
    ],
)
def test_other_names_are_refused(path, name):
    module, function = name.split()
    program = b"\x80\x02}X\x01\x00\x00\x00wc" + f"{module}\n{function}\n".encode() + b"s."
    write_archive(path, program)
    expect(path, "unsafe-pickle", f"{module}.{function}")


class Storage:
    def __init__(self, key, size):
        self.key, self.size = key, size


class Program(pickle.Pickler):
    def persistent_id(self, item):
        if isinstance(item, Storage):
            return ("storage", torch.FloatStorage, item.key, "cpu", item.size)
        return None


class Tensor:
    def __init__(self, *arguments, state=None):
        self.arguments, self.state = arguments, state

    def __reduce__(self):
        call = (torch._utils._rebuild_tensor_v2, (*self.arguments, False, collections.OrderedDict()))
        return call if self.state is None else (*call, self.state)


def write_tensor(path, tensor, content=b"\x00" * 16):
    buffer = io.BytesIO()
    Program(buffer, protocol=2).dump({"weight": tensor})
    write_archive(path, buffer.getvalue(), {"data/0": content})


def test_the_forged_files_below_are_valid_but_for_their_fault(path):
    write_tensor(path, Tensor(Storage("0", 4), 0, (2, 2), (2, 1)), struct.pack("<4f", 1, 2, 3, 4))
    np.testing.assert_array_equal(torch_pickles.read_torch_pickle(path)["weight"].read(), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor(Storage("0", 4), 0, (5,), (1,)),
        Tensor(Storage("0", 4), 0, (2, 2), (1000, 1)),
        Tensor(Storage("0", 4), 0, (10**9,), (0,)),
        Tensor(Storage("0", 4), -2, (2,), (1,)),
        Tensor(Storage("0", 4), 0, (2,), (-1,)),
        Tensor(Storage("0", 4), 0, (2,), (1, 1)),
        Tensor(Storage("0", 4), 0, (2.0,), (1,)),
        Tensor(None, 0, (2,), (1,)),
        # Changed after the fact, by the BUILD instruction.
        Tensor(Storage("0", 4), 0, (2,), (1,), state=[Storage("0", 4), 0, (10**6,), (1,)]),
    ],
)
def test_shapes_beyond_the_file_are_refused(path, tensor):
    write_tensor(path, tensor)
    expect(path, "unsafe-pickle")


def test_a_storage_that_claims_more_than_it_has_is_damage(path):
    write_tensor(path, Tensor(Storage("0", 10**6), 0, (10**6,), (1,)))
    tensor = torch_pickles.read_torch_pickle(path)["weight"]
    with raises("damaged-file", "weights.bin"):
        tensor.read()


def test_known_functions_cannot_be_changed(path):
    """BUILD, here with the state {"a": 1}, could otherwise replace a function's defaults."""
    program = b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sbs."
    write_archive(path, program)
    with pytest.raises(InputError):
        torch_pickles.read_torch_pickle(path)
    assert not hasattr(torch_pickles._Description, "a")


@pytest.mark.parametrize(
    "state",
    [
        b"}X\x08\x00\x00\x00__init__K\x01s",
        b"N}X\x08\x00\x00\x00__init__K\x01s\x86",
        b"N}X\x0c\x00\x00\x00__setstate__K\x01s\x86",
    ],
)
@pytest.mark.parametrize("made", [b"", b")R"], ids=["class", "instance"])
@pytest.mark.parametrize("name", [b"collections\nOrderedDict", b"torch._utils\n_rebuild_parameter"])
def test_known_classes_keep_their_methods(path, name, made, state):
    before = [dict(vars(each)) for each in torch_pickles._CLASSES.values()]
    program = b"\x80\x02}X\x01\x00\x00\x00wc" + name + b"\n" + made + state + b"bs."
    write_archive(path, program)
    with pytest.raises(InputError):
        torch_pickles.read_torch_pickle(path)
    assert [dict(vars(each)) for each in torch_pickles._CLASSES.values()] == before


@pytest.mark.parametrize("odd", [b")", b"(K\x01K\x02t", b"(NK\x00))t", b"(]]]]t", b"(X\x01\x00\x00\x00aNNNt", b"K\x01"])
def test_odd_arguments_of_known_functions_are_refused(path, odd):
    program = b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n" + odd + b"Rs."
    write_archive(path, program)
    with pytest.raises(InputError):
        torch_pickles.read_torch_pickle(path)


def nested_tuples(depth: int) -> bytes:
    """Leaves a tuple on the stack that holds one twice that holds one twice ...: its hash and its text take 2^depth."""
    return b")" + b"".join(b"q%ch%c\x86" % (number, number) for number in range(depth))


def nested(begin: bytes, end: bytes) -> bytes:
    """Keys that hold 90 times what the one before is."""
    return b"\x80\x02}(K\x00q\x00" + (begin + b"h\x00" * 90 + end + b"q\x00") * 10 + b"K\x01u."


BOMBS = {
    "a key of nested tuples": b"\x80\x02}" + nested_tuples(40) + b"K\x01s.",
    "keys of nested tuples": b"\x80\x02}(" + nested_tuples(40) + b"K\x01u.",
    "pairs with such a key": b"\x80\x02ccollections\nOrderedDict\n((" + nested_tuples(40) + b"K\x01\x86ttR.",
    "a storage of nested tuples": b"\x80\x02}X\x01\x00\x00\x00w" + nested_tuples(40) + b"Qs.",
    "many lists": b"\x80\x02" + b"]" * 15_000_000 + b".",
    "many lists, one in the other": b"\x80\x02" + b"]" * 400_000 + b"a" * 399_999 + b".",
    "a large program": b"\x80\x02" + b"]" * 60_000_000 + b".",
    "a number of a megabyte": b"\x80\x02\x8b\x00\x00\x10\x00" + b"\x7f" * 2**20 + b".",
    "a text that is longer than the file": b"\x80\x02X\xff\xff\xff\x7fa.",
    "marks": b"\x80\x02" + b"(" * 400_000 + b"t" * 400_000 + b".",
    "a far place in the table of values": b"\x80\x02}r\xff\xff\xff\xff.",
    "bytes of 10 GB": b"\x80\x04\x8e" + struct.pack("<Q", 10 * 2**30) + b"a.",
    "a frame of 10 GB": b"\x80\x04\x95" + struct.pack("<Q", 10 * 2**30) + b"].",
    "one list many times": b"\x80\x02](" + b"2" * 1_000_000 + b"e.",
    "a tuple of one tuple many times": b"\x80\x02}(" + b"K\x01" * 90 + b"tq\x00(" + b"h\x00" * 1000 + b"tK\x01s.",
    "storages of storages": b"\x80\x02}(K\x00q\x00"
    + b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nh\x00h\x00\x86X\x03\x00\x00\x00cpuK\x01tQq\x00" * 40
    + b"K\x01u.",
    "parameters of tuples": nested(b"ctorch._utils\n_rebuild_parameter\n(", b"t\x85R"),
    "tuples to which nothing is appended": nested(b"(", b"t(e"),
    "tuples behind a mark that is gone": nested(b"K\x00(", b"t(0"),
    "copies of a dictionary": b"\x80\x02}("
    + b"".join(b"M" + struct.pack("<H", n) + b"N" for n in range(6_000))
    + b"uq\x00\x85q\x01ccollections\nOrderedDict\nq\x02("
    + b"h\x02h\x01R" * 4_000
    + b"l.",
    "an unknown opcode": b"\x80\x02\xfe.",
    "nothing": b"",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused_quickly(path, bomb):
    write_archive(path, BOMBS[bomb], compression=zipfile.ZIP_DEFLATED)
    started = time.process_time()
    with pytest.raises(InputError) as error:
        torch_pickles.read_torch_pickle(path)
    assert time.process_time() - started < 3
    assert error.value.code in ("not-weights", "too-large", "unsafe-pickle")
    assert len(str(error.value)) < 500 + len(str(path))


@pytest.mark.parametrize("bomb", ["a far place in the table of values", "bytes of 10 GB", "copies of a dictionary"])
def test_bombs_take_no_memory(bomb):
    tracemalloc.start()
    with contextlib.suppress(Exception):
        torch_pickles._unpickle(BOMBS[bomb])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**28


def test_an_encrypted_or_oddly_packed_archive_is_one_sentence(path):
    torch.save({"weight": torch.zeros(4)}, path)
    content = bytearray(path.read_bytes())
    for place in range(len(content)):
        if content[place : place + 4] == b"PK\x01\x02":
            content[place + 8] |= 1  # "encrypted", in the archive's list of members
    path.write_bytes(content)
    expect(path, "cannot-read", "weights.bin")


def test_a_huge_byte_order_is_not_read(path):
    program = pickle.dumps({}, protocol=2)
    write_archive(path, program, {"byteorder": b" " * 10**6}, zipfile.ZIP_DEFLATED)
    expect(path, "damaged-file", "byteorder")


@hypothesis.given(st.binary(max_size=200) | st.lists(st.sampled_from(b"}]()0aueqhjRbQstN\x85\x86\x87\x88K")).map(bytes))
def test_any_program_is_refused_or_read(program):
    with contextlib.suppress(Exception):
        assert torch_pickles._unpickle(b"\x80\x02" + program) is not os.system


def test_compressed_values_are_refused(path):
    buffer = io.BytesIO()
    Program(buffer, protocol=2).dump({"weight": Tensor(Storage("0", 4), 0, (4,), (1,))})
    write_archive(path, buffer.getvalue(), {"data/0": b"\x00" * 16}, zipfile.ZIP_DEFLATED)
    expect(path, "compressed-weights")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more"])
def test_files_that_are_no_archives(path, content):
    path.write_bytes(content)
    expect(path, "damaged-file")


def test_legacy_format_is_refused(path):
    torch.save({"weight": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)
    expect(path, "damaged-file", "PyTorch", "1.6")


def test_truncated_archive(path):
    torch.save({"weight": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:-500])
    expect(path, "damaged-file", "weights.bin")


@pytest.mark.parametrize("content", [{"weight": 1}, {1: torch.zeros(2)}, {"nested": {"weight": torch.zeros(2)}}, [1]])
def test_anything_but_named_tensors_is_refused(path, content):
    torch.save(content, path)
    expect(path, "not-weights", "weights.bin")
