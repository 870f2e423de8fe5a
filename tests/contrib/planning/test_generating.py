"""Plans of generating images: the programs compiled for other devices are those of `Pipeline.generate`."""

import dataclasses
import importlib.util
import io
import json
import re
import types

import jax
import pytest
from launch.cloud import planned as jobs
from rich.console import Console

from launch import configuration
from tests.contrib.planning import small
from tests.contrib.planning.test_programs import _environment  # noqa: F401  # as launch.plan sets it, for each test
from tests.expectations import raises
from winobench import parallel
from winobench.base.accelerators import ACCELERATORS
from winobench.contrib.planning import abstract, compiling, generating, hlo, plans, programs, table, topologies
from winobench.contrib.planning import plan as planning
from winobench.contrib.planning.programs import Compiled
from winobench.contrib.planning.roofline import Sum
from winobench.contrib.planning.topologies import Target
from winobench.diffusion import families, pure_functions
from winobench.diffusion.stable_diffusion import StableDiffusion

STEPS = {"num_steps": 3, "guidance_scale": 3.0}


def programs_of(description, devices, dtype="bfloat16", **options):
    pipeline = abstract.make_pipeline(description, dtype)
    found = generating.make_generator(pipeline, parallel.make_mesh(devices), **{**STEPS, **options})
    return found, found.programs(2)


@pytest.mark.parametrize(
    ("count", "options"), [(1, {}), (2, {"sampler": "euler_ancestral", "guidance_scale": 1.0, "image_size": 16})]
)
@pytest.mark.slow
def test_the_programs_are_those_that_draw(tiny_pipeline, monkeypatch, count, options):
    """To the letter, as JAX's compilers take them; but for the place of the text encoders, which arrays have not."""
    ran = []

    def noted(function):
        def call(*arguments):
            ran.append(function.lower(*arguments).as_text())
            return function(*arguments)

        return call

    pipeline = StableDiffusion.from_pretrained(tiny_pipeline)
    for name in ("call", "call_on_rows"):
        monkeypatch.setattr(pure_functions, name, noted(getattr(pure_functions, name)))
    mesh = parallel.make_mesh(jax.devices()[:count])
    pipeline.generate(["a red cube"], batch_size=2 * count, mesh=mesh, **{**STEPS, **options})
    monkeypatch.undo()
    description = families.read_description(tiny_pipeline)
    found, (loop, decoder, texts) = programs_of(description, jax.devices()[:count], "float32", **options)
    loop, decoder, texts = (program.lower().as_text() for program in (loop, decoder, texts))
    texts = re.sub(r"  sdy\.mesh @empty_mesh.*\n| \{sdy\.sharding = #sdy\.sharding<@empty_mesh[^>]*>\}", "", texts)
    assert found.encodings == (1 if "guidance_scale" in options else 2)
    assert ran == [texts] * found.encodings + [loop, decoder]
    networks = pipeline.networks.values()
    assert sum(found.weights.values()) == sum(
        leaf.nbytes for network in networks for leaf in jax.tree.leaves(pure_functions.functional.split(network)[1])
    )


def test_guidance_that_the_network_is_told():
    """FLUX.1's dev takes it as a number: no empty text is read, and nothing is computed twice."""
    found, (loop, *_) = programs_of(small.flux_description(1, 1), jax.devices()[:1])
    shared, rows = loop.lower().args_info[0]
    assert found.encodings == 1
    assert shared.empty is None
    assert rows.states["guidance"].shape == (2,)


@pytest.mark.slow
@pytest.mark.usefixtures("little_effort")
@pytest.mark.parametrize(("text", "package"), [("v5e:2x2", "libtpu"), ("h100:2", "jax_plugins")])
def test_all_programs_of_a_device(text, package):
    """The loop counts by its steps, attention is fused, and no device waits for another."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    target = topologies.find(text)
    of_two, of_four = (programs_of(small.description(16), target.devices, num_steps=steps)[1] for steps in (2, 4))
    two, *others = (compiling.compile_program(program, target) for program in of_two)
    four = compiling.compile_program(of_four[0], target)
    assert four.operations == pytest.approx(2 * two.operations, rel=1e-3)
    # As `test_the_step_on_a_tpu` counts them, in each step.
    assert two.kernels[hlo.ATTENTION].count == 2 * 8
    assert two.turn is None
    assert all(program.collectives == {} and program.seconds > 0 for program in (two, *others))


def compiled(program):
    seconds = {"text": 0.01, "image": 1.0 if "loop" in program.name else 0.1}[program.noun] * program.items
    kernels = {"matrix product": Sum(1, 1e12 * program.items, 1e9 * program.items, seconds)}
    temporaries = 10**9 * program.items if program.noun == "image" else 0
    return Compiled(program.name, program.noun, program.items, temporaries, 0, 0, kernels, {}, 60.0)


@pytest.fixture
def planned(monkeypatch):
    asked = []

    def compile_program(program, target):
        asked.append((program.name, program.items))
        return compiled(program)

    monkeypatch.setattr(planning, "compile_program", compile_program)

    class Device:
        platform = "cpu"
        device_kind = "cpu"

        def __init__(self, number):
            self.id, self.process_index = number, number // 4

    def make(*overrides, room=16.9e9, **options):
        accelerator = dataclasses.replace(ACCELERATORS["v5e"], memory=int(room))
        target = Target("v5e:2x4", accelerator, tuple(map(Device, range(8))))
        config = configuration.load("images:paper", overrides)
        return plans.make_plan(config, target, say=lambda _: None, **options), asked

    return make


@pytest.mark.slow
def test_a_plan(planned):
    plan, asked = planned(("model", "sd15"), ("lora", "none,FILE"), ("dtype", "bfloat16"), price=2.0, devices=(8, 1))
    assert asked == [("text encoders", 32), ("decoder", 8), ("loop of 50 steps", 8)]
    content = json.loads(json.dumps(plan.as_json()))
    (model,) = content["generators"]
    weights = sum(model["weights"].values())
    assert (model["batch"], model["loras"], model["sharing"], content["images"]) == (8, 2, 4, 208)
    assert model["weights"]["denoiser"] == pytest.approx(2 * 860e6, rel=0.01)
    assert plan.total == model["total"] == weights + model["others"] + 8 * 10**9
    # The texts of four devices and the empty one, 32 rows each, are read on one device.
    assert model["seconds_per_image"] == pytest.approx((8 + 0.8 + 2 * 0.32) / 8)
    assert model["images_per_second"] == pytest.approx(8 / 9.44)
    # 2 TFLOP, and those of two runs of the encoders for 32 texts, for four devices of eight images.
    assert plan.loads[0].row["TFLOP"] == f"{2 + 2 * 32 / 4 / 8:.1f}"
    assert plan.fits
    eight, one = plan.durations
    # 104 of the pictures in each of two processes, 32 at once; or all of them in one process of one device, 8 at once.
    assert (eight.parts["generation"], one.parts["generation"]) == pytest.approx((2 * 4 * 8, 2 * 26 * 8))
    assert (eight.parts["texts"], one.parts["texts"]) == pytest.approx((2 * 4 * 0.64, 2 * 26 * 0.16))
    assert eight.parts["loading"] == pytest.approx(2 * weights / 1e9)
    assert eight.with_cache == pytest.approx(eight.total - 3 * 60)
    job = jobs._planned("plan.json", [content], "v5e", 8)
    assert (job.batch_size, job.accumulate, job.hours) == (8, None, eight.total / 3600)
    text = io.StringIO()
    table.print_plans([plan], details=True, console=Console(file=text, width=100))
    rows = [line.split() for line in text.getvalue().splitlines()]
    shown = ["v5e:2x4", f"{plan.total / 1e9:.1f}", "of", "16.9", "8", "4.0", "4.0", "1.18", "0.847"]
    assert shown in rows
    dollars = f"{eight.total / 3600 * 8 * 2:.2f}"
    assert any(row[:2] == ["8", "v5e"] and row[-1] == dollars for row in rows)
    assert any("published size" in note for note in plan.notes)


def test_no_more_pictures_than_fit(planned, tmp_path):
    small.write(tmp_path / "one")
    small.write(tmp_path / "two")
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    options = ("model", f"{one},{two}"), ("prompts", "clevr:14")
    plan, asked = planned(*options, room=6.5e9)
    assert [(each.name, each.programs[0].items) for each in plan.loads] == [(one, 4), (two, 4)]
    tried = [*["text encoders", "decoder"] * 2, "loop of 50 steps"]
    assert [name for name, _ in asked] == tried * 2
    assert plan.fits
    assert {note for note in plan.notes if "batch_size" in note} == {
        f"v5e:2x4 needs --batch_size=4 for {name}" for name in (one, two)
    }
    for room, said, compiled in ((0.5e9, "not even one image", {"text encoders", "decoder"}), (1e5, "no room", set())):
        asked.clear()
        plan, asked = planned(*options, room=room)
        assert [each.programs for each in plan.loads] == [(), ()]
        assert {name for name, _ in asked} == compiled
        assert not plan.fits
        assert plan.durations == ()
        assert [name in note and said in note for name, note in zip((one, two), plan.notes, strict=True)] == [True] * 2
    text = io.StringIO()
    table.print_plans([plan], details=True, console=Console(file=text, width=200))
    assert "does not fit" in text.getvalue()


@pytest.mark.slow
def test_encoders_that_leave_before_the_denoiser_comes(planned):
    flux = ("model", "flux1-dev"), ("dtype", "bfloat16"), ("batch_size", "1"), ("guidance_scale", "3.5")
    resident, asked = planned(*flux, room=30e9)
    assert (resident.loads[0].programs, asked) == ((), [])
    assert any("--encoders=staged" in note for note in resident.notes)
    staged, asked = planned(*flux, ("encoders", "staged"), room=30e9)
    (model,) = staged.content["generators"]
    assert [name for name, _ in asked] == ["text encoders", "decoder", "loop of 50 steps"]
    weights = model["weights"]
    assert model["batch"] == 1
    assert staged.total == weights["denoiser"] + weights["autoencoder"] + model["others"] + 10**9
    assert not any("staged" in note for note in staged.notes)


def test_encoders_need_room_where_few_blocks_leave_them_out():
    weights = {"denoiser": 5, "autoencoder": 1, "text encoders": 12}
    loop = programs.Program("loop", generating.IMAGE, 4, None)
    made = generating.Generator(weights, lambda items: (loop,), lambda items: items, 1, 1, staged=True)
    target = types.SimpleNamespace(accelerator=types.SimpleNamespace(usable_memory=13))
    job = planning.Job(types.SimpleNamespace(batch_size=4), target, say=lambda _: pytest.fail("it was compiled"))
    assert generating.fit(made, job) == (0, ())


@pytest.mark.parametrize(
    ("overrides", "code", "words"),
    [
        ([("model", "clip-rn50")], "wrong-kind-of-model", ("clip-rn50",)),
        ([("model", "sd15"), ("sampler", "flow_euler")], "wrong-kind-of-sampler", ("flow_euler", "ddim")),
    ],
)
def test_what_cannot_be_planned(planned, overrides, code, words):
    with raises(code, *words):
        planned(*overrides)


def test_processes_of_gpus():
    if importlib.util.find_spec("jax_plugins") is None:
        pytest.skip("needs JAX's CUDA plugin")
    assert len(generating._of_one_process(topologies.find("h100:16"))) == planning.DEVICES_PER_HOST["gpu"]
