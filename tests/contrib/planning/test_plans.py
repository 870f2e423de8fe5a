"""Which programs a config asks for, before anything is compiled."""

import dataclasses
import io
import json
import types

import jax
import pytest
from launch.cloud import planned
from rich.console import Console

from launch import configuration
from tests.contrib.planning import small
from tests.expectations import raises
from winobench.base.accelerators import ACCELERATORS
from winobench.contrib.planning import anchors, hlo, plans, scoring, table, topologies
from winobench.contrib.planning import plan as planning
from winobench.contrib.planning.plan import Duration, Plan
from winobench.contrib.planning.programs import Compiled
from winobench.contrib.planning.roofline import Sum
from winobench.diffusion import families

TARGET = types.SimpleNamespace(text="v6e:1x1", accelerator=ACCELERATORS["v6e"], devices=tuple(jax.devices()[:1]))


@pytest.fixture
def plan(monkeypatch):
    described = small.sd3_description()
    monkeypatch.setattr(families, "released", lambda name: described)
    monkeypatch.setattr(scoring, "fit", lambda found, job: scoring.Fit(found, None, ()))

    def make(*overrides):
        overrides = [("model", "sd3-medium"), ("dtype", "bfloat16"), *overrides]
        return plans.make_plan(configuration.load("gdbench:table1", overrides), TARGET).content

    return make


@pytest.mark.slow
def test_what_a_setting_leaves_out_is_not_counted(plan):
    """Of T5 v1.1 XXL's encoder: embedding, projections of attention, three of the feed-forward, norms, distances."""
    of_t5 = 32_128 * 4_096 + 4 * 4_096 * 4_096 + 3 * 4_096 * 10_240 + 3 * 4_096 + 32 * 64
    usual, without = plan(), plan(("pipeline_options", "zero_t5=true"))
    assert usual["weights"]["text encoders"] - without["weights"]["text encoders"] == 2 * of_t5
    assert without["weights"]["text encoders"] > 0
    assert without["weights"]["denoiser"] == usual["weights"]["denoiser"]
    staged = plan(("pipeline_options", "zero_t5=true"), ("encoders", "staged"))
    assert (staged["weights"]["text encoders"], staged["staged"]) == (0, without["weights"]["text encoders"])
    with raises("unknown-name", "zero_t6"):
        plan(("pipeline_options", "zero_t6=true"))


def test_a_plan_of_scoring(tmp_path, monkeypatch):
    small.write(tmp_path)

    def compile_program(program, target):
        sums = {"other": Sum(1, 0.0, 0.0, 0.01 * program.items)}
        return Compiled(program.name, program.noun, program.items, 0, 0, 0, sums, {}, 3.0)

    monkeypatch.setattr(planning, "compile_program", compile_program)
    overrides = [("model", str(tmp_path)), ("tasks", "winoground,clevr"), ("batch_size", "6")]
    config = configuration.load("gdbench:table1", overrides)
    found = plans.make_plan(config, TARGET, devices=(1, 4), price=2.0, say=lambda _: None)
    one, four = found.durations
    # 2,400 and 12,628 pairs, 250 samples; 800 and 574 images.
    assert one.parts["scoring"] == pytest.approx(15_028 * 250 * 0.01)
    assert one.parts["encoding"] == pytest.approx(1_374 * 0.01)
    assert four.parts["scoring"] == pytest.approx(one.parts["scoring"] / 4)
    job = planned._planned("plan.json", [json.loads(json.dumps(found.as_json()))], "v6e", 4)
    assert (job.batch_size, job.accumulate, job.hours) == (6, None, four.total / 3600)
    assert job.dollars == job.hours * 4 * 2


@pytest.mark.parametrize("model", ["openai:gpt-4o", "recorded:answers.csv"])
@pytest.mark.parametrize("config", ["gdbench:table1", "wscplus", "winoviz", "images", "hardneg"])
def test_a_model_that_runs_elsewhere_has_no_plan(config, model):
    with raises("wrong-kind-of-model", model, "runs elsewhere", "dry_run"):
        plans.make_plan(configuration.load(config, [("model", model)]), TARGET)


def plan_of(programs, weights, tables, usable, staged):
    load = scoring.Fit(scoring.Scoring(weights, tables, None, (), staged), programs[0], programs[1:]).load("m")
    return Plan("v6e:2x4", "TFLOP for a pass", usable, None, (load,), (), (), {})


STEP = Compiled("denoising step", "pass", 4, int(1.5e9), 0, 0, {"other": Sum(1, 0.0, 0.0, 0.5)}, {}, 1.0)
TEXTS = dataclasses.replace(STEP, name="text encoder", noun="text", temporaries=int(1.25e9), code=int(0.25e9))


@pytest.mark.parametrize("staged", [False, True])
def test_memory_of_a_device(staged):
    weights = {"denoiser": int(24e9), "autoencoder": int(0.3e9), "text encoders": 0 if staged else int(10e9)}
    plan = plan_of((STEP, TEXTS), weights, int(2e9), int(33.5e9), int(10e9) if staged else 0)
    text = io.StringIO()
    table.print_plans([plan], details=True, console=Console(file=text, width=120))
    rows = [line.split() for line in text.getvalue().splitlines()]
    assert ["text", "encoders", "staged" if staged else "10.00"] in rows
    assert ["tables", "2.00"] in rows
    assert ["sum", "27.80" if staged else "37.80"] in rows
    assert plan.fits == staged
    # 0.3, 10, 2 and 1.5 GB.
    assert (["while", "texts", "are", "encoded,", "without", "the", "denoiser", "13.80"] in rows) == staged
    assert plan.as_json()["total"] == (27.8e9 if staged else 37.8e9)


def test_encoding_that_takes_more_than_scoring():
    """Of sd35-medium: 5 and 12 GB. What encoding needs for itself is not there while passes are scored."""
    texts = dataclasses.replace(TEXTS, temporaries=int(2.5e9), code=0)
    weights = {"denoiser": int(5e9), "autoencoder": int(0.5e9), "text encoders": 0}
    plan = plan_of((STEP, texts), weights, int(2e9), int(16.9e9), int(12e9))
    shown = plan.loads[0].memory
    assert (shown["temporaries, at most"], shown["sum"], shown[scoring.WHILE_ENCODING]) == (1.5e9, 9e9, 17e9)
    assert plan.total == 17e9
    assert not plan.fits


def test_tables_fit_80_columns():
    """Long names, large numbers, and a model that does not fit. Nothing is cut off."""
    sums = {kind: Sum(1_234, 3e14, 5e11, 0.6, 0.3, 0.5) for kind in hlo.KINDS}
    step = dataclasses.replace(STEP, kernels=sums, items=32, collectives={"all-reduce": 1_024})
    named = scoring.Fit(scoring.Scoring({"denoiser": int(1e11)}, int(2e9), None, ()), step, (TEXTS,), 1_024)
    loads = tuple(named.load(name) for name in ("sd21-base", "some-organisation/a-model-with-a-long-name-of-the-hub"))
    about = "TFLOP and GB moved for a pass, passes/s of the devices that share a copy"
    parts = dict.fromkeys(("scoring", "encoding", "loading", "compiling", "tails"), 1e6)
    made = [
        Plan(f"a100-80:{devices}", about, usable, 12.5, loads, (Duration(devices, parts),), (), {})
        for devices, usable in ((1_024, int(143.6e9)), (8, int(63.8e9)))
    ]
    text = io.StringIO()
    table.print_plans(made, details=True, console=Console(file=text, width=80))
    found = text.getvalue()
    assert max(map(len, found.splitlines())) <= 80
    assert "…" not in found
    assert ["a100-80:1024", "103.5", "of", "143.6", "32", "(to", "1024)"] in [
        line.split()[:7] for line in found.splitlines()
    ]
    assert found.count("does not fit") == 2
    assert "Operations bound 83% of it, memory and links 17%" in " ".join(found.split())


def test_what_others_measured():
    assert anchors.note("sd21-base", "v5e") == []
    (said,) = anchors.note("sdxl", "v6e")
    assert all(word in said for word in ("60.8 passes/s", "MLPerf Inference 5.0"))


@pytest.mark.parametrize(
    ("text", "name", "shape"),
    [("v5e:4x4", "v5e", (4, 4)), ("v5p:2x2x1", "v5p", (2, 2, 1)), ("h100:8", "h100", (8,)), ("l4", "l4", (1,))],
)
def test_names(text, name, shape):
    assert topologies.parse(text) == (ACCELERATORS[name], shape)


@pytest.mark.parametrize("text", ["", "h1000:8", "h100:0", "h100:8x8", "v5e:4", "v5e:4x", "l4: 1"])
def test_names_without_sense(text):
    with raises("unknown-accelerator"):
        topologies.parse(text)


def test_too_many():
    with raises("too-many-devices", "8,192"):
        topologies.parse("h100:10000")


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr(topologies.importlib.util, "find_spec", lambda name: None)
    with raises("missing-package", "libtpu", "winobench[tpu]"):
        topologies.find("v5e:2x2")
    with raises("missing-package", "CUDA"):
        topologies.find("h100:8")
