"""Compiled programs, read: the kernels of XLA's scheduled HLO text, with operations, bytes and the compiler's cycles.

A *kernel* is an instruction that runs by itself on the device: a fusion, a call of a library, a copy. Loops count as
often as they run. Where the data end a loop, as over the tokens of a text, its kernels count once (``in_open_loop``).
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

KINDS = ("matrix product", "convolution", "attention", "copy", "collective", "other")
PRODUCT, CONVOLUTION, ATTENTION, COPY, COLLECTIVE, OTHER = KINDS
"""``copy`` are kernels that only move numbers: transposes, slices, conversions, gathers, broadcasts."""

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")

_BITS = {"pred": 8, "token": 0, "opaque": 0}
# What names memory or ends of work that something else does.
_FREE = {
    *("parameter", "constant", "bitcast", "get-tuple-element", "tuple", "after-all", "opt-barrier", "partition-id"),
    *("replica-id", "copy-done", "slice-done", "async-done", "async-update", "domain", "add-dependency"),
    # Prefetches of the TPU, which run next to other kernels and are counted where the data are used.
    *("copy-start", "slice-start"),
}
_MOVES = {
    *("parameter", "constant", "bitcast", "bitcast-convert", "broadcast", "concatenate", "convert", "copy"),
    *("dynamic-slice", "dynamic-update-slice", "gather", "get-tuple-element", "iota", "pad", "reshape", "slice"),
    *("transpose", "tuple"),
}
_SLICES = {"slice", "dynamic-slice", "gather"}
# What changes a part of an array in place -> which of its operands is written there.
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
_FREE_CALLS = {"ConcatBitcast", "AssumeGatherIndicesInBound"}
# A kernel of Pallas' Triton form, and the name of `winobench.models.fused_geglu`'s kernel.
_TRITON_CALL, _GEGLU = "__gpu$xla.gpu.triton", "/geglu/"
# Calls that are given scratch memory next to their result, of a fixed size. Nothing says how much of it is used.
_WORKSPACE_CALLS = ("__cublas",)
# A Pallas kernel on a TPU. Its ``cost_estimate`` has its operations and bytes.
_PALLAS_CALL = "tpu_custom_call"
_ATTENTION_CALLS = ("fmha", "flash_attention", "packed_attention", "splash")
# Products of `winobench.models.plain_attention` by their names in JAX: scores, values, and gradients.
_SCORES = "...th,...sh->...ts"
_PLAIN_ATTENTION = (_SCORES, "...ts,...sh->...th", "...th,...ts->...hs")


@dataclasses.dataclass(frozen=True)
class Array:
    dtype: str  # as HLO writes it, e.g. ``bf16``
    dims: tuple[int, ...]
    on_chip: bool = False  # in a TPU's own memory, so that no bytes of the device's memory are moved for it

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes of the device's memory, without the padding of tiles."""
        if self.on_chip:
            return 0
        bits = _BITS[self.dtype] if self.dtype in _BITS else int(re.match(r"[a-z]+(\d+)", self.dtype)[1])
        return (self.size * bits + 7) // 8


@dataclasses.dataclass(frozen=True)
class Instruction:
    name: str
    opcode: str
    results: tuple[Array, ...]
    operands: tuple[str, ...]
    attributes: str
    number: int | None = None  # in the brackets of a ``parameter`` or ``constant``

    def attribute(self, name: str) -> str | None:
        """The value of ``name=value``, or of ``name={value}``."""
        match = re.search(rf"(?<![\w]){name}=(\{{[^}}]*\}}|\"[^\"]*\"|[^,\s]+)", self.attributes)
        return None if match is None else match[1].strip('{}"%')

    @property
    def target(self) -> str:
        """The called program of a custom call, or nothing."""
        return (self.attribute("custom_call_target") or "") if self.opcode == "custom-call" else ""

    @property
    def bytes(self) -> int:
        """Bytes of all results."""
        return sum(array.bytes for array in self.results)


@dataclasses.dataclass(frozen=True)
class Module:
    """A program: computations by name, each a list of instructions in the order in which they run."""

    computations: dict[str, list[Instruction]]
    entry: str

    def called_by(self, each: Instruction, name: str) -> list[Instruction]:
        """The computation that an attribute of an instruction names, or nothing."""
        return self.computations.get(each.attribute(name) or "", [])


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An instruction that runs by itself."""

    name: str
    kind: str  # one of `KINDS`
    operations: float  # of the matrix units
    dtype: str  # of the factors, in NumPy's words. Empty without products
    bytes: int  # read and written in the device's memory
    transcendentals: float  # exponentials and their like of an attention kernel
    cycles: int | None  # by the TPU's compiler
    times: int  # how often it runs, or in one turn of an open loop
    source: str  # the JAX operation that it comes from
    opcode: str = ""  # without ``-start``
    sent: float = 0.0  # bytes that each device sends to others in a collective
    in_open_loop: bool = False
    keys: int = 0  # positions of the keys of an attention kernel
    pallas: str = ""  # ``name`` of a Pallas kernel on a TPU (`winobench.contrib.planning.roofline.PALLAS_KERNELS`)


def parse(text: str) -> Module:
    """Reads the text of a compiled program (``compiled.as_text()``)."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = None, None
    for line in text.splitlines():
        if line[:1] in ("%", "E") and line.endswith("{"):
            name = re.match(r"(?:ENTRY )?%?([^\s(]+)", line)[1]
            current = computations.setdefault(name, [])
            if line.startswith("ENTRY"):
                entry = name
        elif line[:1] == "}":
            current = None
        elif current is not None and (instruction := _instruction(line)) is not None:
            current.append(instruction)
    if entry is None:
        raise ValueError("the text has no entry computation: it is not a compiled HLO module")
    return Module(computations, entry)


def kernels(module: Module) -> list[Kernel]:
    """All kernels of a program, in the order of the entry computation. Those of loops after each other."""
    return list(_kernels(module, module.entry, 1, False))


def _instruction(line: str) -> Instruction | None:
    match = re.match(r"\s+(?:ROOT )?%?([^\s=]+) = ", line)
    if match is None:
        return None
    rest = line[match.end() :]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    results, rest = _arrays(rest[:end]), rest[end:].lstrip()
    opening = rest.index("(")
    closing = _closing(rest, opening)
    operands = tuple(re.findall(r"%([^\s,()]+)", rest[opening + 1 : closing]))
    inside = rest[opening + 1 : closing]
    number = int(inside) if inside.isdigit() else None
    return Instruction(match[1], rest[:opening], results, operands, rest[closing + 1 :], number)


def _closing(text: str, opening: int) -> int:
    """Index of the bracket that closes the one at an index."""
    depth = 0
    for index in range(opening, len(text)):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            depth -= 1
            if depth == 0:
                return index
    raise ValueError(f"a bracket is not closed in the line {text[:80]!r}")


def _arrays(text: str) -> tuple[Array, ...]:
    found = re.findall(r"(\w+)\[([\d,<=]*)\](?:\{([^}]*)\})?", text)
    return tuple(
        Array(dtype, tuple(int(d.lstrip("<=")) for d in dims.split(",") if d), "S(1)" in layout)
        for dtype, dims, layout in found
    )


def _kernels(module: Module, name: str, times: int, in_open_loop: bool) -> Iterator[Kernel]:
    instructions = module.computations[name]
    by_name = {instruction.name: instruction for instruction in instructions}
    for instruction in instructions:
        # An asynchronous operation counts where it starts.
        if instruction.opcode in _FREE or instruction.opcode.endswith("-done") or instruction.target in _FREE_CALLS:
            continue
        if instruction.opcode in ("call", "while", "conditional"):
            runs = _trip_count(module, instruction) if instruction.opcode == "while" else 1
            for called in _called(instruction):
                yield from _kernels(module, called, times * (runs or 1), in_open_loop or runs is None)
        else:
            yield _kernel(module, instruction, by_name, times, in_open_loop)


def _called(each: Instruction) -> list[str]:
    if each.opcode == "conditional":
        # All branches are counted by the first: they are of one size in the programs that are read here.
        return re.findall(r"%?([^\s,{}]+)", each.attribute("branch_computations") or "")[:1]
    names = ("to_apply", "calls") if each.opcode == "call" else ("body",)
    return [called for name in names if (called := each.attribute(name))][:1]


def _trip_count(module: Module, each: Instruction) -> int | None:
    """Turns of a loop; None if its data decide."""
    known = re.search(r'"known_trip_count":\{"n":"?(\d+)', each.attributes)
    if known:
        return int(known[1])
    constants = [line.number for line in module.called_by(each, "condition") if line.opcode == "constant"]
    return max(filter(None, constants), default=None)


def _kernel(
    module: Module, instruction: Instruction, by_name: dict[str, Instruction], times: int, in_open_loop: bool
) -> Kernel:
    body = module.called_by(instruction, "calls") if instruction.opcode == "fusion" else []
    kind, operations, dtype, transcendentals = _work(instruction, body, by_name, module)
    cycles = re.search(r'"estimated_cycles":"(\d+)"', instruction.attributes)
    source = re.search(r'op_name="([^"]*)"', instruction.attributes)
    return Kernel(
        name=instruction.name,
        kind=kind,
        operations=operations,
        dtype=dtype,
        bytes=_moved(instruction, body, by_name),
        transcendentals=transcendentals,
        cycles=int(cycles[1]) if cycles else None,
        times=times,
        source=source[1] if source else "",
        opcode=instruction.opcode.removesuffix("-start"),
        sent=_sent(instruction, by_name) if kind == COLLECTIVE else 0.0,
        in_open_loop=in_open_loop,
        keys=_keys(instruction, by_name) if kind == ATTENTION else 0,
        pallas=instruction.name.partition(".")[0] if instruction.target == _PALLAS_CALL else "",
    )


def _keys(each: Instruction, by_name: dict[str, Instruction]) -> int:
    """Positions of the keys of an attention kernel, whose second operand they are; 0 where they are not found."""
    operands = [by_name[name].results[0] for name in each.operands[1:2] if name in by_name and by_name[name].results]
    return operands[0].dims[-2] if operands and len(operands[0].dims) in (3, 4) else 0


def _work(
    instruction: Instruction, body: Sequence[Instruction], by_name: dict[str, Instruction], module: Module
) -> tuple[str, float, str, float]:
    """Kind, operations of the matrix units, dtype of their factors, and transcendentals."""
    if instruction.opcode.removesuffix("-start") in COLLECTIVES:
        return COLLECTIVE, 0.0, "", 0.0
    if instruction.target and any(name in instruction.target + instruction.name for name in _ATTENTION_CALLS):
        return _attention(instruction, by_name)
    if instruction.target == _PALLAS_CALL:
        operations, transcendentals = _said(instruction) or (0.0, 0.0)
        dtype = _numpy_name(by_name[instruction.operands[0]].results[0].dtype)
        return (PRODUCT if operations else OTHER), operations, dtype, transcendentals
    total, dtype, convolves = 0.0, "", False
    for line, scope in _lines(module, [instruction, *body], by_name):
        amount = _operations(line, scope)
        if amount:
            convolves |= _is_convolution(line, scope)
            total += amount
            dtype = dtype or _numpy_name(scope[line.operands[0]].results[0].dtype)
    moves = all(line.opcode in _MOVES for line in (body or [instruction]))
    kind = COPY if moves else OTHER
    if total:
        kind = CONVOLUTION if convolves else PRODUCT
    if kind != COPY and _is_plain_attention(module, instruction, body, by_name):
        kind = ATTENTION
    return kind, total, dtype, 0.0


def _is_plain_attention(
    module: Module, instruction: Instruction, body: Sequence[Instruction], by_name: dict[str, Instruction]
) -> bool:
    """Whether a kernel of a TPU computes a product of plain attention, or reads scores as the softmax does.

    On GPUs, estimates by kind are of fused attention.
    """
    if "estimated_cycles" not in instruction.attributes:
        return False
    names = _PLAIN_ATTENTION
    lines = [line for line, _ in _lines(module, [instruction, *body], by_name) if line.opcode == "convolution"]
    if not lines:
        operands = [by_name[name] for name in instruction.operands if name in by_name]
        names, lines = (_SCORES,), [_made_by(operand, by_name) for operand in operands]
    return any(name in (line.attribute("op_name") or "") for line in lines for name in names)


def _made_by(line: Instruction, by_name: dict[str, Instruction]) -> Instruction:
    """The kernel whose result an instruction takes or renames."""
    while line.opcode in ("get-tuple-element", "bitcast") and line.operands[0] in by_name:
        line = by_name[line.operands[0]]
    return line


def _lines(
    module: Module, lines: Sequence[Instruction], outer: dict[str, Instruction]
) -> Iterator[tuple[Instruction, dict[str, Instruction]]]:
    """Instructions of a kernel and of fusions within it, with the instructions that their operands name."""
    scope = outer | {line.name: line for line in lines}
    for line in lines:
        yield line, scope
        if line is not lines[0] and line.opcode == "fusion":
            yield from _lines(module, [line, *module.called_by(line, "calls")], scope)


def _said(each: Instruction) -> tuple[float, float] | None:
    """Operations of the matrix units and transcendentals by a Pallas kernel's ``cost_estimate``."""
    estimate = re.search(r'"cost_estimate":(\{[^}]*\})', each.attributes)
    if estimate is None:
        return None
    found = dict(re.findall(r'"(\w+)":"?(\d+)', estimate[1]))
    return float(found.get("flops", 0)), float(found.get("transcendentals", 0))


def _attention(instruction: Instruction, by_name: dict[str, Instruction]) -> tuple[str, float, str, float]:
    dtype = _numpy_name(instruction.results[0].dtype)
    if (estimate := _said(instruction)) is not None:
        return ATTENTION, estimate[0], dtype, estimate[1]
    # In either order: a program that was compiled on its device names the dimensions ahead of their type.
    scores = re.search(r'"intermediate_tensor_shape": ?\{[^{}\[\]]*"dimensions": ?\[([^\]]*)\]', instruction.attributes)
    size = math.prod(int(dim) for dim in re.findall(r"\d+", scores[1])) if scores else 0
    width = by_name[instruction.operands[0]].results[0].dims[-1]
    # Backward, five products instead of two.
    products = 5 if "Backward" in instruction.target else 2
    return ATTENTION, 2.0 * products * size * width, dtype, float(size)


def _operations(line: Instruction, scope: dict[str, Instruction]) -> float:
    """Multiplications and additions of a product or a convolution; 0 for everything else."""
    target = line.target
    if line.opcode == "dot" or "gemm" in target or "matmul" in target:
        dims = scope[line.operands[0]].results[0].dims
        contracted = line.attribute("lhs_contracting_dims")
        if contracted is None:
            match = re.search(r'"lhs_contracting_dimensions": ?\["?([\d", ]*)\]', line.attributes)
            contracted = match[1] if match else str(len(dims) - 1)
        depth = math.prod(dims[int(axis)] for axis in re.findall(r"\d+", contracted))
        return 2.0 * line.results[0].size * depth
    if target == _TRITON_CALL and _GEGLU in line.attributes:
        x, kernel = (scope[operand].results[0] for operand in line.operands[:2])
        return 2.0 * x.size * kernel.dims[1]
    if line.opcode == "convolution" or "conv" in target:
        spatial, inputs = _kernel_shape(line, scope)
        groups = int(line.attribute("batch_group_count") or 1)
        return 2.0 * line.results[0].size * math.prod(spatial) * inputs / groups
    return 0.0


def _kernel_shape(line: Instruction, scope: dict[str, Instruction]) -> tuple[list[int], int]:
    """The width of a convolution's kernel along each axis of positions, and the number of features that it sums over.

    XLA's TPU compiler writes matrix products as convolutions. A batch is then an axis of positions whose window is as
    wide as the batch, over inputs so far apart that each position has one of them. Heads of a result are then an axis
    along which a single input is padded on both sides. Both count as a width of 1.
    """
    inputs, kernel = re.match(r"(\w+)_(\w+)->", line.attribute("dim_labels")).groups()
    widths, sizes = (scope[operand].results[0].dims for operand in line.operands[:2])
    window = dict(re.findall(r"(\w+)=([\dx_-]+)", line.attribute("window") or ""))
    positions = sorted(axis for axis in kernel if axis.isdigit())

    def width(position: int, axis: str) -> int:
        size, inside = sizes[kernel.index(axis)], widths[inputs.index(axis)]
        of_axis = {name: values.split("x")[position] for name, values in window.items()}
        apart, stride = (int(of_axis.get(name, 1)) for name in ("lhs_dilate", "stride"))
        before = int(of_axis.get("pad", "0").partition("_")[0])
        if apart >= size or inside == 1:
            return 1
        # Windows whose stride is their own size: each input is in one of them.
        windows = {(before + apart * number) // size for number in range(inside)}
        return 1 if stride == size and len(windows) == inside else size

    return [width(position, axis) for position, axis in enumerate(positions)], sizes[kernel.index("i")]


def _is_convolution(line: Instruction, scope: dict[str, Instruction]) -> bool:
    """Whether a product slides over positions. TPUs write every product as a convolution."""
    return line.attribute("dim_labels") is not None and max(_kernel_shape(line, scope)[0], default=1) > 1


def _sent(each: Instruction, by_name: dict[str, Instruction]) -> float:
    """Bytes that each device sends, in a ring."""
    operands = sum(by_name[name].bytes for name in each.operands)
    whole = max([operands, *(array.bytes for array in each.results)])
    opcode = each.opcode.removesuffix("-start")
    if opcode == "collective-permute":
        return operands
    return (2 * operands if opcode == "all-reduce" else whole) * (1 - 1 / _participants(each))


def _participants(instruction: Instruction) -> float:
    """Number of devices in each group of a collective. Infinite where the program names none."""
    # By their numbers, as [groups, devices of each], or as axes of a mesh.
    if named := re.search(r"replica_groups=\{\{([\d,]+)\}", instruction.attributes):
        return len(named[1].split(","))
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]", instruction.attributes):
        return int(counted[1])
    if axes := re.search(r"replica_groups=mesh\[([^\]]*)\] *\{([^}]*)\}", instruction.attributes):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", axes[1]))
        return math.prod(int(sizes[name]) for name in re.findall(r"'(\w+)'", axes[2]))
    return math.inf


def _moved(instruction: Instruction, body: Sequence[Instruction], by_name: dict[str, Instruction]) -> int:
    """Bytes that a kernel reads and writes. Only slices count where it takes slices or changes a part in place."""
    total, changed = _written(instruction, body, by_name)
    parameters = {line.number: line for line in body if line.opcode == "parameter"}
    users: dict[str, list[Instruction]] = collections.defaultdict(list)
    for line in body:
        for operand in line.operands:
            users[operand].append(line)
    for number, name in enumerate(instruction.operands):
        if name not in by_name or name in instruction.operands[:number] or number in changed:
            continue
        read = by_name[name].bytes
        if number in parameters:
            read = min(read, _read(parameters[number], users, {}))
        elif instruction.opcode in _SLICES:
            read = min(read, instruction.results[0].bytes)
        total += read
    return total


def _written(
    instruction: Instruction, body: Sequence[Instruction], by_name: dict[str, Instruction]
) -> tuple[int, frozenset[int]]:
    """Bytes that a kernel writes, and which of its operands it changes in place."""
    if not body:
        if instruction.target.startswith(_WORKSPACE_CALLS):
            return instruction.results[0].bytes, frozenset()
        if instruction.opcode not in _UPDATES:
            return instruction.bytes, frozenset()
        return by_name[instruction.operands[_UPDATES[instruction.opcode]]].bytes, frozenset({0})
    inside = {line.name: line for line in body}
    root = body[-1]
    total, changed = 0, set()
    for result in [inside[name] for name in root.operands] if root.opcode == "tuple" else [root]:
        line = _renamed(result, inside)
        target = _renamed(inside[line.operands[0]], inside) if line.opcode in _UPDATES else None
        if target is not None and target.opcode == "parameter":
            changed.add(target.number)
            line = inside[line.operands[_UPDATES[line.opcode]]]
        total += line.bytes
    return total, frozenset(changed)


def _renamed(line: Instruction, inside: dict[str, Instruction]) -> Instruction:
    """The instruction that an instruction of a fusion is another name of."""
    while line.opcode == "bitcast" and line.operands[0] in inside:
        line = inside[line.operands[0]]
    return line


def _read(line: Instruction, users: dict[str, list[Instruction]], known: dict[str, int]) -> int:
    """Bytes that a fusion reads of an operand, or of an array with its elements. Fills in `known` by name."""
    if line.name in known:
        return known[line.name]
    whole, total = line.bytes, 0
    for user in users.get(line.name, []):
        if user.opcode in _SLICES and user.operands[0] == line.name:
            total += user.results[0].bytes
        elif user.opcode == "concatenate":
            # At most the part of the whole that is read, such as a slice.
            total += min(whole, _read(user, users, known))
        elif len(user.results) == 1 and user.results[0].size == line.results[0].size and user.opcode != "fusion":
            total += _read(user, users, known) * line.results[0].bytes // max(user.results[0].bytes, 1)
        else:
            known[line.name] = whole
            return whole
    known[line.name] = min(whole, total) if users.get(line.name) else whole
    return known[line.name]


def _numpy_name(dtype: str) -> str:
    names = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "s8": "int8", "f8e4m3fn": "float8_e4m3fn"}
    return names.get(dtype, dtype)
