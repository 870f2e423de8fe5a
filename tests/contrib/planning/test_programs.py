"""Programs compiled for accelerators that are not here: what their compilers make of a small network.

TPUs need the package libtpu, which comes with ``winobench[test]``; GPUs JAX's CUDA plugin (``winobench[cuda]``).
"""

import importlib.util
import os
import types

import jax
import pytest

from tests.contrib.planning import small
from winobench import parallel
from winobench.contrib.planning import abstract, compiling, hlo, programs, scoring, topologies
from winobench.scorers import denoising

HAS_CUDA = importlib.util.find_spec("jax_plugins") is not None


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    """As `topologies.prepare` sets it, for these tests alone."""
    jax.devices()  # those of the other tests, which are asked for where JAX looks for them first
    with monkeypatch.context() as patch:
        patch.setattr(jax.config, "update", lambda *_: None)
        patch.setattr(os, "environ", dict(os.environ))
        topologies.prepare()
        wanted = dict(os.environ)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))


def scorer_on(text, described=None, **options):
    target = topologies.find(text)
    pipeline = abstract.make_pipeline(described or small.description(), "bfloat16")
    return target, scoring.make_scoring(pipeline, parallel.make_mesh(target.devices), **options)


def text_of(program):
    return program.lower().compile().as_text()


def scores_in_memory(module, positions):
    """Float32 arrays of a program's entry, in the device's memory, with scores of all positions against others."""
    return [
        array
        for instruction in module.computations[module.entry]
        for array in instruction.results
        if array.dtype == "f32" and not array.on_chip and len(array.dims) >= 3 and array.dims[-2] == positions
    ]


@pytest.mark.slow
def test_the_step_on_a_tpu():
    pytest.importorskip("libtpu")
    _, found = scorer_on("v5e:2x2", small.description(16), batch=4)
    compiled = found.step.lower().compile()
    module = hlo.parse(compiled.as_text())
    kernels = hlo.kernels(module)
    attention = [kernel for kernel in kernels if kernel.kind == hlo.ATTENTION]
    # The image to itself and to the text, in each of two blocks down and up, and in the middle.
    assert sum(kernel.times for kernel in attention) == 8
    assert not [kernel for kernel in kernels if kernel.kind == hlo.COLLECTIVE]
    assert not [array for array in scores_in_memory(module, 16**2) if array.dims[-1] in (77, 128, 16**2)]
    # Beside the table of latents, which is turned around once, there is room for what lies between layers.
    assert compiled.memory_analysis().temp_size_in_bytes - 4 * found.tables < 20e6
    assert all(kernel.cycles is not None for kernel in kernels if kernel.operations and kernel.kind != hlo.ATTENTION)


@pytest.mark.slow
def test_the_step_of_one_stream_on_a_tpu():
    """Z-Image: texts of several lengths do not keep the kernel from it."""
    pytest.importorskip("libtpu")
    _, found = scorer_on("v5e:2x2", small.z_image(), batch=4)
    module = hlo.parse(text_of(found.step))
    kernels = hlo.kernels(module)
    # The image, the text, and both.
    assert sum(kernel.times for kernel in kernels if kernel.kind == hlo.ATTENTION) == 3
    assert not [kernel for kernel in kernels if kernel.kind == hlo.COLLECTIVE]
    assert not [array for positions in (256, 512, 768) for array in scores_in_memory(module, positions)]
    assert text_of(found.encoders[1])


def test_what_a_compiler_has_said_is_kept(monkeypatch):
    pytest.importorskip("libtpu")
    target = topologies.find("v5e:1x1")
    array = jax.ShapeDtypeStruct((128, 128), "float32", sharding=jax.sharding.SingleDeviceSharding(target.devices[0]))
    product = programs.Program("product", "row", 128, lambda _: jax.jit(lambda x: x @ x).lower(array))
    first = compiling.compile_program(product, target)
    assert first.items == 128
    assert first.seconds > 0
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *_: pytest.fail("it was compiled again"))
    assert compiling.compile_program(product, target) == first


@pytest.mark.skipif(not HAS_CUDA, reason="JAX's CUDA plugin is not installed: pip install 'winobench[cuda]'")
@pytest.mark.slow
def test_the_step_on_a_gpu():
    _, found = scorer_on("h100:8", batch=4)
    module = hlo.parse(text_of(found.step))
    kernels = hlo.kernels(module)
    assert sum(kernel.times for kernel in kernels if kernel.kind == hlo.ATTENTION) == 8
    assert not [kernel for kernel in kernels if kernel.kind == hlo.COLLECTIVE]
    # Kernels of convolutions lie as cuDNN takes them.
    assert not [kernel for kernel in kernels if kernel.kind == hlo.COPY and "params" in kernel.source]
    # GEGLU is one kernel in each of four blocks, sums around layers are parts of products, and nothing joins the skips
    # but what normalises them.
    assert sum("/geglu/" in kernel.source and kernel.kind == hlo.PRODUCT for kernel in kernels) == 4
    large = [kernel for kernel in kernels if not kernel.operations and kernel.bytes > 1e6]
    assert not [kernel for kernel in large if kernel.source.endswith(("/add", "/concatenate"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "package"), [("v5e:16x16", "libtpu"), pytest.param("h100:64", "jax_plugins", id="64 GPUs")]
)
def test_a_pod_has_no_collectives_and_each_device_does_the_same(text, package):
    pytest.importorskip(package, reason=f"{package} is not installed")
    target, found = scorer_on(text, small.description(8), batch=4)
    alone, one = scorer_on(text.partition(":")[0], small.description(8), batch=4)
    assert len(target.devices) == 64 * (4 if package == "libtpu" else 1)
    for program, single in zip((found.step, *found.encoders), (one.step, *one.encoders), strict=True):
        many, few = compiling.compile_program(program, target), compiling.compile_program(single, alone)
        assert many.collectives == {}, program.name
        assert many.operations == few.operations
        assert many.temporaries == pytest.approx(few.temporaries, rel=0.05)


@pytest.mark.parametrize(
    ("size", "dtype", "resident", "batch"),
    [
        (64, "bfloat16", 4.3e9, 32),  # SD 2.1-base
        (128, "bfloat16", 10.9e9, 8),  # SDXL
        (128, "float32", 16.0e9, 1),
    ],
)
def test_batch_of_a_described_device(size, dtype, resident, batch):
    pytest.importorskip("libtpu")
    mesh = parallel.make_mesh(topologies.find("v5e:1x1").devices)
    denoiser = types.SimpleNamespace(config=types.SimpleNamespace(width_per_position=320), dtype=dtype)
    pipeline = types.SimpleNamespace(denoiser=denoiser)
    assert denoising.usual_batch_size(pipeline, (size, size, 4), mesh, int(resident)) == batch
