"""Which programs a config asks for, before anything is compiled."""

import json
import types

import jax
import pytest

from launch import configuration
from launch.cloud import planned
from tests.expectations import raises
from tests.planning import small
from winobench.base.accelerators import ACCELERATORS
from winobench.diffusion import families
from winobench.planning import plan as planning
from winobench.planning import plans, scoring
from winobench.planning.programs import Compiled
from winobench.planning.roofline import Sum

TARGET = types.SimpleNamespace(text="v6e:1x1", accelerator=ACCELERATORS["v6e"], devices=tuple(jax.devices()[:1]))


@pytest.fixture
def plan(monkeypatch):
    """Plans of a Stable Diffusion 3 with few layers, in which no program is compiled."""
    described = small.sd3_description()
    monkeypatch.setattr(families, "released", lambda name: described)
    monkeypatch.setattr(scoring, "fit", lambda found, job: scoring.Fit(found, None, ()))

    def make(*overrides):
        overrides = [("model", "sd3-medium"), ("dtype", "bfloat16"), *overrides]
        return plans.make_plan(configuration.load("gdbench:table1", overrides), TARGET).content

    return make


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
    """10 ms for each item; jobs read it."""
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
