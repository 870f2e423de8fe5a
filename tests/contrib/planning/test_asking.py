"""Language models planned for devices that are not here: the responder's own programs, their collectives and memory."""

import dataclasses
import json
import types

import jax
import pytest

from configs import winoviz, wscplus
from tests.contrib.planning import small
from tests.contrib.planning.test_programs import HAS_CUDA, _environment  # noqa: F401
from tests.expectations import names
from winobench import parallel
from winobench.base.errors import InputError
from winobench.contrib.planning import asking, compiling, plans, programs, text_work, topologies
from winobench.contrib.planning import plan as planning
from winobench.contrib.planning.roofline import Sum
from winobench.models import released
from winobench.models.decoder_config import DecoderConfig
from winobench.models.t5 import T5Config

LAYERS = 2
LLAMA = DecoderConfig(
    vocab_size=512,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=4096,
)
T5 = T5Config(vocab_size=512, d_model=128, d_kv=32, d_ff=256, num_layers=1, num_heads=4, feed_forward_proj="gated-gelu")
ASKED = text_work.Workload("task", "protocol", 100, 100, 40, 0, (), 16, "made up")
OPTIONS = dataclasses.replace(ASKED, options=(1, 2), limit=0, prompt=90, shared=50)


def planned(text, config, asked, model_parallel):
    target = topologies.find(text)
    mesh = parallel.make_mesh(target.devices, model_parallel=model_parallel)
    model = asking.make_model(config, mesh, dtype="bfloat16", batch_size=2)
    return model, asking.plan_batches(model, asked, lambda program: compiling.compile_program(program, target))


@pytest.mark.slow
def test_a_decoder_on_a_tpu():
    pytest.importorskip("libtpu")
    model, found = planned("v5e:2x2", LLAMA, ASKED, 2)
    assert (found.rows, found.shape.prompt, found.shape.answer) == (2, 64, 16)
    # Two for each layer, one for the embedding, two to choose a token; of the end, which the other devices have a part
    # in, one.
    expected = {"all-reduce": 2 * LAYERS + 1 + 2 + 1}
    assert found.answering.collectives == expected
    assert found.answering.turn.collectives == expected
    assert found.answering.turn.seconds < found.answering.seconds
    # The attention of a token to all slots is a matter of the matrix unit, too: of two rows, two heads, both products.
    attention = LAYERS * 2 * 2 * 2 * (2 * 79 * 64)
    kernels = (LAYERS * (4 * 256 * 256 + 3 * 256 * 512) + 256 * 512) // 2
    assert found.answering.turn.operations >= 2 * 2 * kernels + attention
    assert found.cache == 2 * 2 * (64 + 16) * LAYERS * 2 * 256 // 2
    assert found.answering.arguments >= model.room.parameter_bytes


@pytest.mark.skipif(not HAS_CUDA, reason="JAX's CUDA plugin is not installed: pip install 'winobench[cuda]'")
def test_a_decoder_on_gpus():
    _, found = planned("h100:2", LLAMA, ASKED, 2)
    assert found.answering.collectives == found.answering.turn.collectives == {"all-reduce": 2 * LAYERS + 1 + 2}


@pytest.mark.slow
def test_options_and_an_encoder_decoder_on_a_tpu():
    pytest.importorskip("libtpu")
    _, found = planned("v5e:1x1", LLAMA, OPTIONS, 1)
    assert (found.prefix, found.shape.prompt, found.shape.options) == (50, 64, 2)
    assert found.prefix_cache == 64 * LAYERS * 2 * 256 * 2
    assert found.reading.turn is found.answering.turn is None
    assert found.answering.collectives == {}
    _, found = planned("v5e:1x1", T5, OPTIONS, 1)
    # An encoder reads prompts to their end, so that nothing is shared.
    assert (found.prefix, found.reading) == (0, None)
    _, found = planned("v5e:2x2", T5, ASKED, 4)
    # All four devices share one copy, so that no other has to be asked whether it goes on.
    assert found.answering.turn.collectives == {"all-reduce": 3 + 1 + 2}


def devices_of(*arguments, **options):
    turn = programs.Turn({"other": Sum(1, 0.0, 0.0, 0.01)}, {})
    return small.Devices(*arguments, seconds={"question": 0.5}, turn=turn, **options)


def plan_of(folder, devices, *, numbers=(), assumed=planning.Assumptions(), **fields):  # noqa: B008
    (folder / "config.json").write_text(json.dumps(LLAMA.to_dict()))
    config = dataclasses.replace(
        wscplus.Settings(), **{"model": str(folder), "dtype": "bfloat16", "protocol": "toe", **fields}
    )
    return plans.make_plan(config, devices.target, devices=numbers, assumed=assumed, say=lambda _: None)


def test_as_few_devices_share_as_hold_it(monkeypatch, tmp_path):
    whole = asking.make_model(LLAMA, parallel.make_mesh(jax.devices()[:1]), dtype="bfloat16").room.parameter_bytes
    devices = devices_of(monkeypatch, 8, usable=int(0.3 * whole))
    plan = plan_of(tmp_path, devices, numbers=(4, 8), batch_size=2)
    assert (plan.content["model_parallel"], plan.content["copies"], plan.fits) == (4, 2, True)
    assert plan.content["weights"] == pytest.approx(whole / 4, rel=0.01)
    assert "--model_parallel=4" in " ".join(plan.notes)
    # 700 questions, two rows a copy: 350 batches on four devices, of which each writes 1,023 tokens behind the first.
    four, eight = plan.durations
    assert four.parts["reading"] == pytest.approx(350 * 0.5)
    assert four.parts["writing"] == pytest.approx(350 * 1023 * 0.01)
    assert eight.parts["writing"] == pytest.approx(175 * 1023 * 0.01)
    assert four.parts["compiling"] == 3.0
    assert four.parts["loading"] == pytest.approx(whole / 1e9)
    rates = plan.as_json()["batches"][0]["rates"]
    assert rates["tokens"] == pytest.approx(2 * 2 / 0.01)
    assert rates["questions"] == pytest.approx(2 * 2 / (0.5 + 1023 * 0.01))
    with pytest.raises(InputError, match=names("--devices", "6", "4")):
        plan_of(tmp_path, devices, numbers=(6,))


def test_batches_that_do_not_fit_are_halved(monkeypatch, tmp_path):
    devices = devices_of(monkeypatch, 1, usable=10**9, most=2)
    plan = plan_of(tmp_path, devices, assumed=planning.Assumptions(answer_tokens=101), batch_size=9)
    assert plan.durations[0].parts["writing"] == pytest.approx(350 * 100 * 0.01)  # shorter answers
    assert devices.asked == [("question", items) for items in (9, 4, 2)]
    assert (plan.content["batches"][0]["rows"], plan.fits) == (2, True)
    assert "--batch_size=2" in " ".join(plan.notes)
    devices = devices_of(monkeypatch, 2, usable=10_000)  # where not even the weights fit
    plan = plan_of(tmp_path, devices)
    assert (devices.asked, plan.fits, plan.durations) == ([], False, ())


def test_what_the_benchmarks_ask():
    (toe,), unknown = text_work.read(wscplus.Settings().tasks, wscplus.FORMS["standard"]["protocol"], None, None, 4.0)
    assert (toe.name, toe.questions, toe.requests, toe.limit, unknown) == ("wscplus, toe", 700, 700, 1024, [])
    assert 500 < toe.prompt < 700
    (options,), _ = text_work.read("wscplus", "options", None, 10, 4.0)
    assert (options.questions, options.options) == (10, (1, 1, 1))
    assert 0 < options.shared < options.prompt
    config = winoviz.Settings()
    asked, unknown = text_work.read(config.tasks, config.protocol, None, None, 4.0)
    assert {each.task: each.questions for each in asked} == {
        "winoviz_mini_single": 134,
        "winoviz_mini_multi": 102,
        "winoviz_mini_decoupled": 222,
    }
    assert {each.protocol for each in asked} == {"zero_shot"}
    assert unknown == ["winoviz_single", "winoviz_multi", "winoviz_decoupled"]
    (swapped, *_), _ = text_work.read("winoviz_mini_single", "zero_shot_swapped", None, None, 4.0)
    assert (swapped.questions, swapped.requests) == (134, 268)


@pytest.mark.parametrize(("name", "count", "ways"), [("qwen3-8b", 16, [1, 2, 4, 8]), ("flan-t5-base", 8, [1, 2, 4])])
def test_ways_to_share(name, count, ways):
    config, target = types.SimpleNamespace(model_parallel=1), types.SimpleNamespace(devices=range(count))
    heads = asking.heads_of(released.language_model(name))
    assert planning.Job(config, target).ways_to_share(heads) == ways
    assert planning.Job(types.SimpleNamespace(model_parallel=3), target).ways_to_share(heads) == [3]
