"""``winobench plan``: what a config takes on accelerators that are not here."""

import json

import jax
import pytest

from tests.launch import test_json
from tests.launching import launch, launch_process, refuse
from winobench.contrib.planning import plan as plan_module
from winobench.contrib.planning import programs
from winobench.contrib.planning.roofline import Sum

PLAN = "launch.plan"
V5E = "--accelerator=v5e:1x1"
LLAMA = {"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128}
LLAMA |= {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 4096}


@pytest.fixture
def cache(tmp_path):
    return {"WINOBENCH_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def here(monkeypatch):
    """Lets `topologies.prepare` leave this process's devices as they are."""
    jax.devices()  # before `topologies.prepare` sets where JAX looks for them
    monkeypatch.setattr(jax.config, "update", lambda *_: None)


def compiled(program, target):
    turn = programs.Turn({"other": Sum(1, 0.0, 0.0, 0.01)}, {"all-reduce": 6})
    sums = {"other": Sum(1, 0.0, 0.0, 0.5)}
    return programs.Compiled(program.name, program.noun, program.items, 0, 0, 0, sums, turn.collectives, 3.0, turn)


@pytest.mark.parametrize("launched", [launch, pytest.param(launch_process, marks=pytest.mark.slow)])
def test_a_language_model_on_a_tpu(launched, tmp_path, cache, here, monkeypatch):
    """From a folder with its config alone; only a new process compiles, too."""
    pytest.importorskip("libtpu")
    if launched is launch:
        monkeypatch.setattr(plan_module, "compile_program", compiled)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    words = ("--config=wscplus", f"--model={tmp_path}", "--dtype=bfloat16", "--model_parallel=2")
    words += ("--batch_size=4", "--accelerator=v5e:2x2", "--devices=2,4", "--answer_tokens=200")
    words += ("--price=1.2", "--details", f"--output={tmp_path / 'plan.json'}", "--json")
    status, out, err = launched(PLAN, *words, **cache)
    assert status == 0, err
    document = test_json.validated("plans", out)
    assert document == json.loads((tmp_path / "plan.json").read_text())
    (plan,) = document["plans"]
    assert plan["fits"]
    (batch,) = plan["batches"]
    assert (plan["model_parallel"], plan["copies"], batch["rows"]) == (2, 2, 4)
    # Two in the layer, the embedding's, two to choose a token, and one to see whether any row goes on.
    assert batch["answering"]["collectives"] == batch["answering"]["turn"]["collectives"] == {"all-reduce": 6}
    two, four = plan["durations"]
    token = batch["rates"]["token"]
    assert two["writing"] == pytest.approx(175 * 199 * token)
    assert four["writing"] == pytest.approx(88 * 199 * token)
    assert batch["rates"]["tokens"] == pytest.approx(2 * 4 / token)
    shown = ("wscplus, toe", "tokens/s", "700 questions", "keys and values", "6 all-reduce", "memory of a device")
    assert all(text in err for text in (*shown, "dollars"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--accelerator=v9:4"], ["v9:4", "v5e", "h100"]),
        (["--model=sd15,sd21", V5E], ["--model", "sd15,sd21"]),
        (["--config=winoviz", "--model=openai:gpt-4o", V5E], ["openai:gpt-4o", "--dry_run"]),
        (["--config=winoviz", "--model=flan-t5-small", "--protocol=toe", V5E], ["toe", "zero_shot"]),
        (["--config=hardneg", "--devices=1,4", V5E], ["--devices", "--accelerator"]),
        (["--config=nli", V5E], ["gdbench", "hardneg"]),
        (["--config=images", "--model=clevr-tiny,clip-rn50", V5E], ["clip-rn50"]),
    ],
)
def test_bad_input_is_one_sentence(words, named, cache, here):
    pytest.importorskip("libtpu")
    refuse(PLAN, *words, named=named, **cache)
