"""Plans of fine-tuning: the step compiled for other devices is the one that a training runs."""

import importlib.util

import jax
import pytest
from launch.cloud import planned as jobs

from configs import hardneg as hardneg_config
from launch import configuration
from tests.contrib.planning import small
from tests.contrib.planning.test_programs import _environment  # noqa: F401  # as launch.plan sets it, for each test
from tests.expectations import names
from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.contrib.planning import abstract, compiling, hlo, plans, programs, topologies, training
from winobench.contrib.planning import plan as planning
from winobench.contrib.planning.roofline import Sum
from winobench.runs.training_settings import HardNeg
from winobench.training import hardneg


def config_of(folder, form="paper", **changes):
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    values = {"model": str(folder), "batch_size": 8, "num_steps": 100}
    return options.replaced(HardNeg(), {**hardneg_config.FORMS[form], **values, **changes})


@pytest.mark.slow
def test_the_step_is_that_of_a_training(tiny_pipeline, tmp_path):
    changes = {"lora__text_encoder": True, "validate_every": None, "batch_size": 2, "num_steps": 4}
    config = config_of(tiny_pipeline, "debug", **changes, data__cache_dir=str(tmp_path / "latents"))
    run = hardneg.Training(config, tmp_path / "run")
    batch = next(run._batches_from(0))
    mesh = parallel.make_mesh(jax.devices()[:1])
    program, held = training.step_program(abstract.read_description(config.model), config, mesh, 1)
    planned = jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), program.lower().args_info[0])
    there = jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), (run._state, batch, run._frozen))
    assert planned == there
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves((run._state, run._frozen)))
    assert held == whole + sum(leaf.nbytes for leaf in jax.tree.leaves(batch))


@pytest.mark.slow
def test_only_gradients_are_sent():
    """By the compiler for CPUs, which fuses no attention. Networks of shapes alone take adapters."""
    config, mesh = (
        config_of("small", batch_size=2, remat=False, loss__kind="none"),
        parallel.make_mesh(jax.devices()[:2]),
    )
    program, _ = training.step_program(small.description(side=4), config, mesh, 1)
    module = hlo.parse(program.lower().compile().as_text())
    assert set(compiling.collectives(hlo.kernels(module))) == {"all-reduce"}


@pytest.mark.slow
@pytest.mark.usefixtures("little_effort")
def test_the_step_on_tpus():
    """Attention is fused forward and backward on each chip's own rows; only the adapters' gradients are sent."""
    pytest.importorskip("libtpu")
    target = topologies.find("v5e:2x2")
    mesh = parallel.make_mesh(target.devices)
    config = config_of("small")
    program, _ = training.step_program(small.description(), config, mesh, 2)
    module = hlo.parse(program.lower().compile().as_text())
    kernels = hlo.kernels(module)
    fused = [kernel for kernel in kernels if kernel.kind == hlo.ATTENTION]
    assert sum(kernel.times for kernel in fused) >= 2 * 3
    sent = compiling.collectives(kernels)
    assert set(sent) == {"all-reduce"}
    for lines in module.computations.values():
        for line in lines:
            assert not any(array.dims[-2:] == (1024, 1024) for array in line.results if not array.on_chip)


@pytest.mark.skipif(importlib.util.find_spec("jax_plugins") is None, reason="needs JAX's CUDA plugin")
@pytest.mark.parametrize("devices", [1, 2])
def test_the_step_on_gpus(devices):
    """cuDNN's attention forward and backward, also to the odd number of a text's positions."""
    target = topologies.find(f"h100:{devices}")
    config = config_of("small")
    program, _ = training.step_program(small.description(), config, parallel.make_mesh(target.devices), 1)
    text = program.lower().compile().as_text()
    assert "__cudnn$fmhaSoftmaxBackward" in text
    assert ("all-reduce" in text) == (devices > 1)


def test_a_plan(tmp_path, monkeypatch):
    pytest.importorskip("libtpu")
    small.write(tmp_path / "model")
    target = topologies.find("v5e:2x2")
    config = configuration.load("hardneg:paper", [("model", str(tmp_path / "model")), ("batch_size", "16")])
    made = []

    def compiled(program, target):
        made.append(program)
        if len(made) < 3:
            return None
        kernels = {hlo.KINDS[0]: Sum(1, 1e12, 1e9, 0.5)}
        return programs.Compiled("training step", "row", 4, 10**9, 10**9, 0, kernels, {}, 60.0)

    monkeypatch.setattr(planning, "compile_program", compiled)
    said = []
    plan = plans.make_plan(config, target, price=2.0, say=said.append)
    assert (plan.content["accumulate"], plan.content["batch_size"], len(made)) == (4, 16, 3)
    assert "4 x 1 rows a device" in said[-1]
    steps = -(-8 * 566_747 // 16)
    assert plan.content["num_steps"] == steps
    assert plan.durations[0].parts["training"] == pytest.approx(steps * 0.5)
    assert any("--accumulate=4" in note for note in plan.notes)
    assert (plan.loads[0].row["s a step"], plan.loads[0].row["s to compile"]) == ("0.50", "60")
    assert plan.as_json()["total"] == plan.content["state"] + 10**9
    job = jobs._planned("plan.json", [plan.as_json()], "v5e", 4)
    assert (job.batch_size, job.accumulate, job.hours) == (None, 4, plan.durations[0].total / 3600)
    monkeypatch.setattr(planning, "compile_program", lambda *_: None)
    plan = plans.make_plan(config, target, say=lambda _: None)
    assert not plan.fits
    assert plan.durations == ()


def test_without_known_rows_there_is_no_time(monkeypatch):
    config = config_of("small", num_steps=None, data__name="captions_hardneg_train")
    assert training._steps(config)[0] is None
    assert "--num_steps" in training._steps(config)[1][0]


@pytest.mark.parametrize(
    ("changes", "devices", "words"),
    [({"batch_size": 6}, (), ("6", "4", "batch_size", "8")), ({}, (1, 4), ("--devices", "--accelerator"))],
)
def test_what_cannot_be_planned(changes, devices, words):
    pytest.importorskip("libtpu")
    config = config_of("sd21-base", **changes)
    with pytest.raises(InputError, match=names(*words)):
        plans.make_plan(config, topologies.find("v5e:2x2"), devices=devices, say=lambda _: None)
