"""Reading of compiled programs: what JAX compiles here, and lines as the compilers for GPUs and TPUs write them."""

import collections
import pathlib
import statistics

import jax
import jax.numpy as jnp
import pytest

from winobench.base import json_files
from winobench.base.accelerators import ACCELERATORS
from winobench.contrib.planning import hlo, roofline
from winobench.models import plain_attention


def read(text):
    return hlo.kernels(hlo.parse(text))


def compiled(function, *shapes):
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return read(jax.jit(function).lower(*arrays).compile().as_text())


def test_products_of_a_program():
    (product,) = [k for k in compiled(jnp.matmul, (8, 32), (32, 16)) if k.operations]
    assert (product.kind, product.operations, product.dtype) == (hlo.PRODUCT, 2 * 8 * 32 * 16, "float32")
    assert product.bytes == 4 * (8 * 32 + 32 * 16 + 8 * 16)


def test_convolutions_of_a_program():
    def convolve(x, kernel):
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    (convolution,) = [k for k in compiled(convolve, (2, 8, 8, 3), (3, 3, 3, 5)) if k.operations]
    assert (convolution.kind, convolution.operations) == (hlo.CONVOLUTION, 2 * (2 * 8 * 8 * 5) * (3 * 3 * 3))


def test_loops_count_as_often_as_they_run():
    def loop(x):
        return jax.lax.fori_loop(0, 7, lambda _, y: jnp.tanh(y @ x), x)

    products = [k for k in compiled(loop, (64, 64)) if k.operations]
    assert sum(k.times * k.operations for k in products) == 7 * 2 * 64**3


def test_a_loop_that_its_data_end_counts_once():
    def loop(x):
        return jax.lax.while_loop(lambda y: y[0, 0] < 1e6, lambda y: jnp.tanh(y @ x), x @ x)

    products = [k for k in compiled(loop, (64, 64)) if k.operations]
    assert [(k.in_open_loop, k.times) for k in products] == [(False, 1), (True, 1)]


GPU = """HloModule jit_step, is_scheduled=true

%fused_slice (p: bf16[32,64,64,320]) -> f32[32,1,1,320] {
  %p = bf16[32,64,64,320]{3,2,1,0} parameter(0)
  %wide = f32[32,64,64,320]{3,2,1,0} convert(%p)
  ROOT %first = f32[32,1,1,320]{3,2,1,0} slice(%wide), slice={[0:32], [0:1], [0:1], [0:320]}
}

%fused_gate (p: bf16[128,2560]) -> bf16[128,1280] {
  %p.1 = bf16[128,2560]{1,0} parameter(0)
  %left = bf16[128,1280]{1,0} slice(%p.1), slice={[0:128], [0:1280]}
  %right = bf16[128,1280]{1,0} slice(%p.1), slice={[0:128], [1280:2560]}
  ROOT %product = bf16[128,1280]{1,0} multiply(%left, %right)
}

ENTRY %main (x: bf16[32,64,64,320], k: bf16[3,3,320,320], q: bf16[32,4096,5,64], h: bf16[128,2560]) -> bf16[128,1280] {
  %x = bf16[32,64,64,320]{3,2,1,0} parameter(0)
  %k = bf16[3,3,320,320]{2,1,0,3} parameter(1)
  %q = bf16[32,4096,5,64]{3,2,1,0} parameter(2)
  %h = bf16[128,2560]{1,0} parameter(3)
  %shift = f32[32,1,1,320]{3,2,1,0} fusion(%x), kind=kLoop, calls=%fused_slice, metadata={op_name="jit(step)/slice"}
  %conv = (bf16[32,64,64,320]{3,2,1,0}, u8[0]{0}) custom-call(%x, %k), window={size=3x3 pad=1_1x1_1}, \
dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward", backend_config={"x":{}}
  %got = bf16[32,64,64,320]{3,2,1,0} get-tuple-element(%conv), index=0
  %fmha = (bf16[32,5,4096,64]{3,1,2,0}, u8[0]{0}) custom-call(%q, %q, %q), \
custom_call_target="__cudnn$fmhaSoftmax", backend_config={"cudnn_fmha_backend_config": {"intermediate_tensor_shape": \
{"element_type": "BF16", "dimensions": ["32", "5", "4096", "4096"]}}}
  %sum = bf16[128,2560]{1,0} all-reduce(%h), replica_groups={}, to_apply=%fused_gate
  ROOT %gate = bf16[128,1280]{1,0} fusion(%sum), kind=kLoop, calls=%fused_gate
}
"""


def test_a_program_of_a_gpu():
    found = {kernel.name: kernel for kernel in read(GPU)}
    assert list(found) == ["shift", "conv", "fmha", "sum", "gate"]
    assert (found["shift"].kind, found["shift"].bytes) == (hlo.COPY, 32 * 320 * (2 + 4))
    assert found["shift"].source == "jit(step)/slice"
    assert found["conv"].kind == hlo.CONVOLUTION
    assert found["conv"].operations == 2 * (32 * 64 * 64 * 320) * (3 * 3 * 320)
    assert found["fmha"].kind == hlo.ATTENTION
    assert found["fmha"].operations == 2 * 2 * 32 * 5 * 4096 * 4096 * 64
    assert found["sum"].kind == hlo.COLLECTIVE
    assert (found["gate"].kind, found["gate"].bytes) == (hlo.OTHER, 128 * (2560 + 1280) * 2)


def test_attention_of_a_program_that_was_compiled_on_its_device():
    """XLA names the scores' dimensions ahead of their type there."""
    there = GPU.replace(
        '{"element_type": "BF16", "dimensions": ["32", "5", "4096", "4096"]}',
        '{"dimensions":["32","5","4096","4096"],"element_type":"BF16","is_dynamic_dimension":[false,false,false,false]}',
    )
    assert there != GPU
    assert read(there) == read(GPU)


LIBRARIES = """HloModule jit_step, is_scheduled=true

%fused_first (p: bf16[32,64,320], q: bf16[32,64,640]) -> bf16[32,1,32] {
  %p = bf16[32,64,320]{2,1,0} parameter(0)
  %q = bf16[32,64,640]{2,1,0} parameter(1)
  %joined = bf16[32,64,960]{2,1,0} concatenate(%p, %q), dimensions={2}
  ROOT %first = bf16[32,1,32]{2,1,0} slice(%joined), slice={[0:32], [0:1], [0:960:30]}
}

ENTRY %main (x: bf16[2048,320], k: bf16[320,2560], b: bf16[2560], p: bf16[32,64,320], q: bf16[32,64,640]) -> bf16[4] {
  %x = bf16[2048,320]{1,0} parameter(0)
  %k = bf16[320,2560]{1,0} parameter(1)
  %b = bf16[2560]{0} parameter(2)
  %p = bf16[32,64,320]{2,1,0} parameter(3)
  %q = bf16[32,64,640]{2,1,0} parameter(4)
  %gated = bf16[2048,1280]{1,0} custom-call(%x, %k, %k, %b, %b), custom_call_target="__gpu$xla.gpu.triton", \
metadata={op_name="jit(step)/geglu/pallas_call"}, backend_config={grid_x = 20 : i32, ir = "conv \\01(fmha) dot"}
  %other = bf16[2048,1280]{1,0} custom-call(%x), custom_call_target="__gpu$xla.gpu.triton", \
metadata={op_name="jit(step)/another/pallas_call"}
  %wide = (bf16[2048,2560]{1,0}, s8[4194304]{0}) custom-call(%x, %k), custom_call_target="__cublas$lt$matmul", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
  ROOT %shift = bf16[32,1,32]{2,1,0} fusion(%p, %q), kind=kLoop, calls=%fused_first
}
"""


def test_kernels_of_libraries_and_of_our_own():
    gated, other, wide, shift = read(LIBRARIES)
    # Values and gates are one product; its weights are given twice and are in memory once.
    assert (gated.kind, gated.operations, gated.dtype) == (hlo.PRODUCT, 2 * 2048 * 320 * 2560, "bfloat16")
    assert gated.bytes == 2 * (2048 * 320 + 320 * 2560 + 2560 + 2048 * 1280)
    assert (other.kind, other.operations) == (hlo.OTHER, 0)
    # Scratch memory is no result.
    assert (wide.kind, wide.operations) == (hlo.PRODUCT, 2 * 2048 * 320 * 2560)
    assert wide.bytes == 2 * (2048 * 320 + 320 * 2560 + 2048 * 2560)
    # Of two arrays together it takes a slice; it can be no more than that of either.
    assert (shift.kind, shift.bytes) == (hlo.COPY, 2 * 3 * 32 * 32)


TPU = """HloModule jit_step, is_scheduled=true

ENTRY %main (a: bf16[32,77,64], b: bf16[32,64,77], q: bf16[1,2,256,64]) -> bf16[32,77,77] {
  %a = bf16[32,77,64]{2,1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[32,64,77]{2,1,0:T(8,128)(2,1)S(1)} parameter(1)
  %q = bf16[1,2,256,64]{3,2,1,0} parameter(2)
  %flash = bf16[1,2,256,64]{3,2,1,0} custom-call(%q, %q, %q), custom_call_target="tpu_custom_call", \
metadata={op_name="jit(step)/pallas_call"}, backend_config={"custom_call_config":{"cost_estimate":{"flops":"1000",\
"transcendentals":"2000","bytes_accessed":"1"}}}, frontend_attributes={kernel="flash_attention"}
  ROOT %flash_attention.product = bf16[32,77,77]{2,1,0} convolution(%a, %b), \
window={size=32 stride=31 lhs_dilate=32}, dim_labels=0bf_0io->0bf, backend_config={"estimated_cycles":"1500"}
}
"""


def test_a_program_of_a_tpu():
    flash, product = read(TPU.replace("%flash =", "%flash_attention.1 ="))
    assert (flash.kind, flash.operations, flash.transcendentals, flash.keys) == (hlo.ATTENTION, 1000, 2000, 256)
    # Written as a convolution over the batch, which is no convolution; the second factor lies on the chip.
    assert (product.kind, product.operations) == (hlo.PRODUCT, 2 * 32 * 77 * 77 * 64)
    assert product.bytes == 2 * 32 * 77 * (64 + 77)
    assert product.cycles == 1500
    assert roofline.seconds(product, ACCELERATORS["v5e"]) == pytest.approx(1e-6)


def test_our_own_kernel_on_a_tpu(monkeypatch):
    """What it says of its work, and the table's cycles for that."""
    v5e, cycles = ACCELERATORS["v5e"], {"v5e": 3.0}
    for unit, seconds in (("operations", 2e-6), ("transcendentals", 4e-6), ("bytes", 3 * 4 * 2 * 256 * 64 / 1.5e9)):
        monkeypatch.setitem(roofline.PALLAS_KERNELS, "gated", roofline.PallasKernel(unit, cycles))
        gated, _ = read(TPU.replace("%flash =", "%gated.7 ="))
        assert (gated.kind, gated.operations, gated.pallas) == (hlo.PRODUCT, 1000, "gated")
        assert roofline.seconds(gated, v5e) == pytest.approx(seconds)


def test_heads_of_a_tpu_are_no_convolution():
    text = """HloModule jit_step

ENTRY %main (x: bf16[32,4096,320,1], k: bf16[5,64,320,1]) -> bf16[32,4096,5,64] {
  %x = bf16[32,4096,320,1]{3,2,1,0} parameter(0)
  %k = bf16[5,64,320,1]{3,2,1,0} parameter(1)
  ROOT %p = bf16[32,4096,5,64]{3,2,1,0} convolution(%x, %k), window={size=1x5 pad=0_0x4_4 rhs_reversal=0x1}, \
dim_labels=0bf1_1oi0->0b1f
}
"""
    (product,) = read(text)
    assert (product.kind, product.operations) == (hlo.PRODUCT, 2 * 32 * 4096 * 320 * 320)


PLAIN = """HloModule jit_attend, is_scheduled=true

%scores (q: bf16[4,8,256,64], k: bf16[4,8,128,64]) -> (f32[4,8,256], f32[4,8,256,128]) {
  %q = bf16[4,8,256,64]{3,2,1,0} parameter(0)
  %k = bf16[4,8,128,64]{3,2,1,0} parameter(1)
  %c = f32[4,8,256,128]{3,2,1,0} convolution(%q, %k), window={size=4x8 stride=3x7 lhs_dilate=4x8}, \
dim_labels=01bf_01oi->01bf, metadata={op_name="jit(f)/...th,...sh->...ts/dot_general"}
  %max = f32[4,8,256]{2,1,0} reduce(%c), dimensions={3}, to_apply=%maximum
  ROOT %both = (f32[4,8,256]{2,1,0}, f32[4,8,256,128]{3,2,1,0}) tuple(%max, %c)
}

%softmax (s: f32[4,8,256,128], m: f32[4,8,256]) -> f32[4,8,256] {
  %s = f32[4,8,256,128]{3,2,1,0} parameter(0)
  %m = f32[4,8,256]{2,1,0} parameter(1)
  %e = f32[4,8,256,128]{3,2,1,0} exponential(%s)
  ROOT %sum = f32[4,8,256]{2,1,0} reduce(%e), dimensions={3}, to_apply=%add
}

%values (v: bf16[4,8,64,128], s: f32[4,8,256,128]) -> f32[4,8,64,256] {
  %v = bf16[4,8,64,128]{3,2,1,0} parameter(0)
  %s = f32[4,8,256,128]{3,2,1,0} parameter(1)
  ROOT %c = f32[4,8,64,256]{3,2,1,0} convolution(%v, %s), window={size=4x8 stride=4x8 pad=3_3x7_7 lhs_dilate=3x7 \
rhs_reversal=1x1}, dim_labels=01bf_01oi->01bf, metadata={op_name="jit(f)/...ts,...sh->...th/dot_general"}
}

ENTRY %main (q: bf16[4,8,256,64], k: bf16[4,8,128,64], v: bf16[4,8,64,128]) -> f32[4,8,64,256] {
  %q = bf16[4,8,256,64]{3,2,1,0} parameter(0)
  %k = bf16[4,8,128,64]{3,2,1,0} parameter(1)
  %v = bf16[4,8,64,128]{3,2,1,0} parameter(2)
  %first = (f32[4,8,256]{2,1,0}, f32[4,8,256,128]{3,2,1,0}) fusion(%q, %k), kind=kOutput, calls=%scores, \
metadata={op_name="jit(f)/...th,...sh->...ts/dot_general"}, backend_config={"estimated_cycles":"10"}
  %highest = f32[4,8,256]{2,1,0} get-tuple-element(%first), index=0
  %all = f32[4,8,256,128]{3,2,1,0} get-tuple-element(%first), index=1
  %second = f32[4,8,256]{2,1,0} fusion(%all, %highest), kind=kLoop, calls=%softmax, \
backend_config={"estimated_cycles":"20"}
  %third = f32[4,8,64,256]{3,2,1,0} fusion(%v, %all), kind=kOutput, calls=%values, \
metadata={op_name="jit(f)/divide"}, backend_config={"estimated_cycles":"30"}
  ROOT %next = f32[4,8,64,256]{3,2,1,0} add(%third, %third), backend_config={"estimated_cycles":"40"}
}
"""


def test_plain_attention_of_a_tpu():
    """Products, one in windows as far apart as they are wide, and what reads the scores."""
    *attention, last = read(PLAIN)
    product = 2 * 4 * 8 * 256 * 128 * 64
    assert [(kernel.kind, kernel.operations) for kernel in attention] == [
        (hlo.ATTENTION, amount) for amount in (product, 0, product)
    ]
    assert last.kind == hlo.OTHER
    on_gpu = read(PLAIN.replace("estimated_cycles", "cycles"))
    assert [kernel.kind for kernel in on_gpu] == [hlo.PRODUCT, hlo.OTHER, hlo.PRODUCT, hlo.OTHER]


def test_plain_attention_has_the_names_that_are_looked_for():
    array = jax.ShapeDtypeStruct((1, 2, 8, 4), jnp.float32)
    part = jax.grad(lambda *arrays: plain_attention.attend_in_parts(*arrays, 128).sum(), (0, 1, 2))
    text = jax.jit(part).lower(array, array, array).compile().as_text()
    assert all(f"{name}/dot_general" in text for name in hlo._PLAIN_ATTENTION)


UPDATES = """HloModule jit_write, is_scheduled=true

%fused_write (cache: bf16[40,128,1792], new: bf16[40,128,1], where: s32[]) -> bf16[40,128,1792] {
  %cache = bf16[40,128,1792]{2,1,0} parameter(0)
  %new = bf16[40,128,1]{2,1,0} parameter(1)
  %where = s32[] parameter(2)
  %renamed = bf16[40,128,1792]{2,1,0} bitcast(%cache)
  ROOT %written = bf16[40,128,1792]{2,1,0} dynamic-update-slice(%renamed, %new, %where, %where, %where)
}

ENTRY %main (cache: bf16[40,128,1792], new: bf16[40,128,1], where: s32[]) -> bf16[40,128,1792] {
  %cache.1 = bf16[40,128,1792]{2,1,0} parameter(0)
  %new.1 = bf16[40,128,1]{2,1,0} parameter(1)
  %where.1 = s32[] parameter(2)
  %in_fusion = bf16[40,128,1792]{2,1,0} fusion(%cache.1, %new.1, %where.1), kind=kLoop, calls=%fused_write
  ROOT %alone = bf16[40,128,1792]{2,1,0} dynamic-update-slice(%in_fusion, %new.1, %where.1, %where.1, %where.1)
}
"""


def test_what_is_changed_in_place_is_not_moved():
    for kernel in read(UPDATES):
        assert 2 * 2 * 40 * 128 <= kernel.bytes <= 2 * 2 * 40 * 128 + 3 * 4


@pytest.mark.parametrize(
    "groups", ["{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "mesh['data'=2,'model'=4] {'model'}", "mesh['a'=4,'b'=2] {'a'}"]
)
def test_what_a_collective_sends(groups):
    text = """HloModule jit_sum

ENTRY %main (x: bf16[16,5120]) -> bf16[64,5120] {
  %x = bf16[16,5120]{1,0} parameter(0)
  %pmax = bf16[16,5120]{1,0} all-reduce(%x), replica_groups=GROUPS, to_apply=%add
  %gathered = bf16[64,5120]{1,0} all-gather(%pmax), replica_groups=GROUPS, dimensions={0}
  ROOT %moved = bf16[64,5120]{1,0} collective-permute(%gathered), source_target_pairs={{0,1}}
}
"""
    summed, gathered, moved = read(text.replace("GROUPS", groups))
    assert [kernel.opcode for kernel in (summed, gathered, moved)] == ["all-reduce", "all-gather", "collective-permute"]
    size = 2 * 16 * 5120
    assert (summed.sent, gathered.sent, moved.sent) == (2 * size * 3 / 4, 4 * size * 3 / 4, 4 * size)
    assert roofline.seconds(summed, ACCELERATORS["h100"]) == pytest.approx(1.75 * summed.sent / 4.5e11)


def test_roofline():
    h100 = ACCELERATORS["h100"]

    def kernel(**numbers):
        defaults = dict.fromkeys(("operations", "bytes", "transcendentals"), 0)
        return hlo.Kernel(
            "k", hlo.OTHER, **{**defaults, "dtype": "bfloat16", "cycles": None, "times": 3, "source": ""} | numbers
        )

    def limit(**numbers):
        (found,) = roofline.by_kind([kernel(times=1, **numbers)], h100).values()
        assert found.seconds == pytest.approx(roofline.TIMES_LIMIT[hlo.OTHER] * found.limit)
        assert found.computing == (found.seconds if found.limit > numbers.get("bytes", 0) / 3.35232e12 else 0)
        return found.limit

    assert limit(operations=989e12) == pytest.approx(1)
    assert limit(operations=989e12, bytes=2 * 3.35232e12) == pytest.approx(2)
    assert limit(operations=67e12, dtype="float32") == pytest.approx(1)
    assert limit(transcendentals=16 * 132 * 1.98e9) == pytest.approx(1)
    # An image's and a text's positions together fill smaller blocks on a TPU than an image's.
    alone, joint = (
        roofline.seconds(kernel(transcendentals=1.75e12, keys=keys, pallas="flash_attention"), ACCELERATORS["v6e"])
        for keys in (4096, 4608)
    )
    assert (alone, joint) == (pytest.approx(3.0), pytest.approx(3.5))
    sums = roofline.by_kind([kernel(bytes=10), kernel(bytes=5)], h100)
    limit = 45 / 3.35232e12
    assert sums == {hlo.OTHER: roofline.Sum(6, 0, 45, pytest.approx(1.75 * limit), pytest.approx(limit), 0)}
    # A TPU's time is its compiler's cycles.
    (found,) = roofline.by_kind([kernel(cycles=1.5e9, bytes=819e9)], ACCELERATORS["v5e"]).values()
    assert (found.seconds, found.limit) == (3, 3)
    (found,) = roofline.by_kind([kernel(cycles=1.5e9, operations=4e14)], ACCELERATORS["v5e"]).values()
    assert (found.seconds, found.limit, found.computing) == (3, 3, 3)
    assert roofline.seconds(kernel(cycles=3e9, operations=197e12), ACCELERATORS["v5e"]) == 2


def test_factors_of_a_gpu_are_those_that_were_measured():
    """Medians by kind. With them the estimate of each measured model is within 17%."""
    measured = json_files.load(pathlib.Path(__file__).parents[3] / "benchmarks" / "results" / "h100-measured.json")
    steps = [each for each in measured["steps"] if "kernels_ms, measured and planned" in each]
    factors = collections.defaultdict(list)
    for each in steps:
        kinds = each["kernels_ms, measured and planned"]
        for kind, (took, limit) in kinds.items():
            factors[kind].append(took / limit)
        estimate = sum(roofline.TIMES_LIMIT[kind] * limit for kind, (_, limit) in kinds.items())
        assert 1e3 * each["batch_size"] / estimate == pytest.approx(each["passes_per_second"], rel=0.17)
    assert len(steps) == 5
    for kind, found in factors.items():
        assert roofline.TIMES_LIMIT[kind] == pytest.approx(statistics.median(found), abs=0.006)


def test_another_text():
    with pytest.raises(ValueError, match="entry computation"):
        hlo.parse("no program")
