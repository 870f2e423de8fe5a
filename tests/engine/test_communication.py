"""Where devices wait for each other: nowhere in an evaluation whose devices are those of one process."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.scorers import fakes, tiny_models
from winobench import parallel
from winobench.engine import tables
from winobench.responders import shapes
from winobench.responders.language_model import LanguageModel
from winobench.runs.requests import Generation, Options, Turn
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.scorers.itm_head import ItmHead

COMMUNICATION = re.compile(
    r" (all-gather|all-reduce|all-to-all|collective-permute|collective-broadcast|reduce-scatter)(-start)?\("
)

IMAGES = [fakes.image(seed) for seed in range(20)]


@pytest.fixture
def programs(monkeypatch):
    """Name of each program that XLA compiles, or finds in its cache -> whether devices wait for each other in it."""
    from jax._src import compiler

    found, compile_program = {}, compiler.compile_or_get_cached

    def recording(*args, **kwargs):
        executable = compile_program(*args, **kwargs)
        for module in executable.hlo_modules():
            found[module.name] = found.get(module.name, False) or bool(COMMUNICATION.search(module.to_string()))
        return executable

    monkeypatch.setattr(compiler, "compile_or_get_cached", recording)
    return found


def unused_mesh(count, model_parallel=1):
    """Devices in an order that no other test has, so that every program is compiled here."""
    return parallel.make_mesh(jax.devices()[:count][::-1], model_parallel=model_parallel)


def test_communication_is_found(programs):
    mesh = unused_mesh(2)
    rows = parallel.put(np.arange(4.0), parallel.split_axis(mesh))
    assert float(jax.jit(jnp.sum)(rows)) == 6
    assert any(programs.values())


def test_devices_of_a_diffusion_model_never_wait_for_each_other(programs):
    images, texts = IMAGES[:9], ["a", "b b", "c c c"]
    for unet in (fakes.UNet(), fakes.SharingUNet()):
        scorer = DiffusionITM(fakes.Pipeline(unet=unet), batch_size=4, mesh=unused_mesh(2))
        errors = scorer.errors(images, texts, num_samples=2)
        one = DiffusionITM(fakes.Pipeline(unet=unet), batch_size=4, mesh=parallel.make_mesh(jax.devices()[:1]))
        np.testing.assert_allclose(errors, one.errors(images, texts, num_samples=2), rtol=1e-6)
    assert {"jit__encode", "jit__write", "jit__empty", "jit_fused_step"} <= programs.keys()
    assert not any(programs.values()), programs


@pytest.mark.slow
def test_devices_of_other_scorers_never_wait_for_each_other(programs, tmp_path):
    """The text encoders and CLIP make use of `tables.Encoder.encode` alone."""
    scorer = ItmHead.from_pretrained(tiny_models.write_blip(tmp_path), mesh=unused_mesh(2))
    scorer.score(IMAGES[:9], ["a red cube", "a blue cube"])
    assert {"jit__encode", "jit__write", "jit__score_pairs"} <= programs.keys()
    assert not any(programs.values()), programs


@pytest.mark.slow
def test_devices_of_a_language_model_never_wait_for_each_other(programs, tiny_language_model, monkeypatch):
    monkeypatch.setattr(shapes, "_SMALLEST_WIDTH", 64)
    model = LanguageModel.from_pretrained(tiny_language_model, mesh=unused_mesh(2), batch_size=1)
    turns = (Turn("user", "Is it yellow?"),)
    list(model.ask([Options(turns, ("yes", "no"))]))
    list(model.ask([Generation(turns, max_tokens=2)]))
    assert {"jit_score_options", "jit_generate"} <= programs.keys()
    assert not any(programs.values()), programs


class Running:
    def __init__(self, monkeypatch):
        self.events = []
        wait = jax.block_until_ready
        monkeypatch.setattr(jax, "block_until_ready", lambda arrays: (self.events.append("wait"), wait(arrays))[1])

    def watch(self, monkeypatch, module, name):
        function = getattr(module, name)

        def watched(*args):
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args)):
                self.events.append(name)
            return function(*args)

        monkeypatch.setattr(module, name, watched)


def test_programs_in_which_devices_wait_run_one_by_one(monkeypatch):
    """Where devices share the parameters there is no other way; on CPUs each program then has the devices alone."""
    from winobench.scorers import denoising

    running = Running(monkeypatch)
    running.watch(monkeypatch, tables, "_encode")
    running.watch(monkeypatch, denoising, "fused_step")
    scorer = DiffusionITM(fakes.Pipeline(), batch_size=2, mesh=unused_mesh(4, model_parallel=2))
    scorer.errors(IMAGES, ["a"], num_samples=1)
    started = [place for place, event in enumerate(running.events) if event != "wait"]
    assert len(started) > 8
    assert all(running.events[place + 1] == "wait" for place in started)


def test_without_such_programs_nothing_is_waited_for(monkeypatch):
    running = Running(monkeypatch)
    scorer = DiffusionITM(fakes.Pipeline(), batch_size=2, mesh=unused_mesh(4))
    scorer.errors(IMAGES, ["a"], num_samples=1)
    assert not running.events


def test_parts_of_all_devices_reach_all_devices():
    values = {"a": np.arange(24.0).reshape(8, 3), "b": np.arange(8)}
    for count, model_parallel in ((1, 1), (2, 1), (8, 1), (4, 2), (8, 4)):
        mesh = unused_mesh(count, model_parallel)
        placed = jax.tree.map(lambda array, mesh=mesh: parallel.put(array, parallel.split_axis(mesh)), values)
        parts = parallel.held_by_all(placed, mesh)
        # Devices that share the parameters may hold parts along other axes, and gather what they have.
        assert len(parts) == (count if model_parallel == 1 else 1)
        for name, array in values.items():
            assert all(part[name].sharding.is_fully_replicated for part in parts)
            assert all(part[name].sharding.device_set == set(mesh.devices.flat) for part in parts)
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), array)
