"""winobench eval from the command line to the folder, with a small random pipeline; and its listings."""

import dataclasses
import functools
import json
import re

import pytest

import winobench
import winobench.tasks
from launch import eval as launcher
from tests import launching
from winobench.base import registry
from winobench.evaluation import choice
from winobench.scorers import loading

launch = functools.partial(launching.launch, "launch.eval")


def test_from_the_command_line_to_the_folder(tiny_pipeline, tmp_path):
    words = [
        *("--config=gdbench:debug", f"--model={tiny_pipeline}", "--limit=1"),
        *("--tasks=clevr", "--sampling.num_samples=1"),
    ]
    status, out, err = launch(*words, cwd=tmp_path)
    status_of_log, *_ = launch(*words, "--log=tensorboard", "--workdir=logged", cwd=tmp_path)
    assert (status, status_of_log) == (0, 0), err
    (workdir,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"gdbench-debug-.*-[0-9a-f]{8}", workdir.name)
    assert {path.name for path in workdir.iterdir()} == {"config.json", "errors", "examples", "gallery", "results.json"}

    results = json.loads((workdir / "results.json").read_text())
    assert list(results["tasks"]) == ["clevr"]
    logged = json.loads((tmp_path / "logged" / "results.json").read_text())
    assert [logged[name] for name in ("tasks", "config")] == [results[name] for name in ("tasks", "config")]
    assert any(path.name.startswith("events") for path in (tmp_path / "logged" / "tensorboard").iterdir())
    assert results["config"]["limit"] == 1
    assert results["config"]["model"] == str(tiny_pipeline)
    assert len(results["versions"]["weights"]) == 64
    assert set(results["versions"]["data"]) == {"clevr"}
    assert re.search(r"clevr *\n +accuracy +\d+\.\d +\d+\.\d to \d+\.\d +50\.0", out)
    assert "passes" in err
    assert re.search(rf"computes on \d+ x cpu; records in \S*{workdir.name}", err)
    said = [f"results: runs/{workdir.name}/results.json"]
    said += [f"winobench {word} runs/{workdir.name}" for word in ("view", "report")]
    assert all(line.endswith(end) for line, end in zip(out.splitlines()[-3:], said, strict=True))


@pytest.mark.slow
def test_the_first_lines_say_what_is_evaluated_and_what_is_not(tiny_pipeline, tmp_path, monkeypatch):
    chosen = winobench.get_task("clevr_image")
    far = dataclasses.replace(chosen, name="far", ready=lambda data_dir: "fetch it.")
    named = dataclasses.replace(chosen, name="named", when_named=True)
    monkeypatch.setattr(winobench.tasks, "TASKS", {"clevr_image": chosen, "far": far, "named": named})
    monkeypatch.setattr(choice, "choose_tasks", lambda *_: [chosen])
    words = [f"--model={tiny_pipeline}", "--limit=1", "--sampling.num_samples=1"]
    status, out, err = launch(*words, cwd=tmp_path)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[:3] == [
        f"evaluates {tiny_pipeline} on 1 of 3 tasks about images: clevr_image",
        "  ready, but only by name (--tasks=NAME): named",
        "  without data: 1 (winobench eval --list_tasks says how to get them)",
    ]
    assert "fetch it" not in out
    assert [line.partition(":")[0] for line in lines[-3:]] == [
        "results",
        "for each question, in the browser",
        "for figures, comparisons and examples",
    ]


def test_a_lora_is_passed_on_and_named(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(loading, "load_scorer", lambda *_, diffusion, **__: given.update(diffusion))
    config = launcher.configuration.load("gdbench:debug")
    launcher.load_scorer(config, "clevr-tiny")
    assert "lora" not in given
    assert "lora_scale" not in given
    tiny, hub = registry.resolve("clevr-tiny"), registry.resolve("owner/clevr-tiny")
    assert launcher._display_name(tiny, config, "label") == "clevr-tiny"

    file = tmp_path / "hard-text" / "pytorch_lora_weights.safetensors"
    file.parent.mkdir()
    file.touch()
    other = file.with_name("mine.safetensors")
    other.touch()
    names = {str(file.parent): "hard-text", str(file): "hard-text", str(other): "mine", "owner/adapter": "adapter"}
    # What launch.train has exported is called as the run.
    trained = tmp_path / "hardneg-mixed" / "lora" / "last"
    trained.mkdir(parents=True)
    names |= {f"{trained.parent}/": "hardneg-mixed", str(trained): "hardneg-mixed-last", "owner/lora": "lora"}
    for name, expected in names.items():
        config = dataclasses.replace(config, lora=name, lora_scale=1.0)
        assert launcher._display_name(hub, config, "label") == f"owner/clevr-tiny + {expected}"
        config = dataclasses.replace(config, lora_scale=0.5)
        assert launcher._display_name(tiny, config, "label") == f"clevr-tiny + {expected} x 0.5"
        launcher.load_scorer(config, "clevr-tiny")
        assert (given["lora"], given["lora_scale"]) == (name, 0.5)
