"""Four commands as one: their words, their order, and where one fails."""

import json
import pathlib
import subprocess
import types

import pytest

from tests import launching
from tests.launch import test_json
from tests.tiny_vision_language import write_vision_language


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """The words of each command, instead of running it. Evaluations leave their results."""
    given = []

    def run(words, **_):
        given.append(words[3:])
        if words[3] == "eval" and not (tmp_path / "run" / "matching" / "a").exists():
            for label in ("a", "b"):
                (folder := tmp_path / "run" / "matching" / label).mkdir(parents=True)
                (folder / "results.json").write_text("{}")
        return types.SimpleNamespace(returncode=3 if words[3] == fails[0] else 0)

    fails = [None]
    monkeypatch.setattr(subprocess, "run", run)
    return given, fails


def understand(*words):
    return launching.launch("launch.understand", *words)


def test_the_commands_name_the_same_models_and_folders(commands, tmp_path):
    given, _ = commands
    run = tmp_path / "run"
    words = ["--model=sd15,sdxl", "--prompts=geneval2:FILE", "--judge=qwen3-vl-8b", "--seeds=1,2"]
    status, out, err = understand(*words, "--tasks=@spatial", "--num_prompts=5", f"--workdir={run}")
    assert status == 0, err
    draw, judge, score, report = given
    assert draw[:2] == ["generate", "--config=images"]
    assert {"--model=sd15,sdxl", "--seeds=1,2", "--limit=5", f"--workdir={run / 'images'}"} <= {*draw}
    assert judge == ["judge", str(run / "images"), "--model=qwen3-vl-8b", "--dtype=float32"]
    assert {"--model=sd15,sdxl", "--tasks=@spatial", "--limit=100"} <= {*score}
    assert report == [
        *("report", str(run / "matching" / "a"), str(run / "matching" / "b")),
        *(f"--images={run / 'images'}", f"--out={run / 'report'}"),
    ]
    assert out.count("$ winobench ") == 4


def test_the_bound_of_pixels_goes_to_the_judge(commands, tmp_path):
    qwen = write_vision_language(tmp_path / "qwen", "qwen3_vl")
    llava = write_vision_language(tmp_path / "llava", "llava")
    given, _ = commands
    words = ["--prompts=geneval2:FILE", f"--workdir={tmp_path / 'run'}"]
    assert understand(*words, f"--judge={qwen}", "--max_pixels=1024")[0] == 0
    assert [word for words in given for word in words if "max_pixels" in word] == ["--max_pixels=1024"]
    assert given[1][0] == "judge"
    del given[:]
    for judge, bound, said in (
        (qwen, 2000, ["max_pixels", "1,536"]),
        (llava, 1024, ["max_pixels", "one size"]),
        ("clip-vit-b32", 1024, ["max_pixels is an option of vision-language models"]),
        ("openai:gpt-4o", 1024, ["max_pixels is an option of vision-language models"]),
    ):
        launching.refuse("launch.understand", *words, f"--judge={judge}", f"--max_pixels={bound}", named=said)
    launching.refuse("launch.understand", "--max_pixels=1024", named=["--max_pixels has no effect without --judge"])
    assert not given


@pytest.fixture
def predicts(tmp_path):
    """Folders of models that predict tokens, by their ``model_type``."""

    def write(kind):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        return str(folder)

    return write


def test_models_that_predict_tokens_are_evaluated_by_likelihood_and_by_answers(commands, tmp_path, predicts):
    given, _ = commands
    run, janus, emu3 = tmp_path / "run", predicts("janus"), predicts("emu3")
    words = [f"--model=sd15,{janus},{emu3}", "--num_samples=7", "--tasks=clevr", f"--workdir={run}"]
    status, _, err = understand(*words)
    assert status == 0, err
    generated, *scored, report = given
    assert f"--model=sd15,{janus},{emu3}" in generated
    evaluations = {words[-1].removeprefix(f"--workdir={run}/"): set(words) for words in scored}
    assert [*evaluations] == ["matching", "likelihood", "answers"]
    assert {"--model=sd15", "--num_samples=7", "--tasks=clevr"} <= evaluations["matching"]
    assert {f"--model={janus},{emu3}", "--tasks=clevr"} <= evaluations["likelihood"]
    assert {f"--model={janus}", "--scored_by=answers", "--tasks=clevr"} <= evaluations["answers"]
    assert not any("num_samples" in word for of in ("likelihood", "answers") for word in evaluations[of])
    assert report[0] == "report"


@pytest.mark.parametrize("option", ["num_samples", "num_steps"])
def test_options_of_noise_are_for_diffusion_models(commands, tmp_path, predicts, option):
    given, _ = commands
    words = [f"--{option}=7", f"--workdir={tmp_path / 'run'}"]
    launching.refuse("launch.understand", f"--model={predicts('janus')}", *words, named=[f"--{option}", "diffusion"])
    assert given == []
    assert understand(f"--model=sd15,{predicts('emu3')}", *words)[0] == 0


def test_a_name_goes_to_the_images_and_the_evaluations(commands, tmp_path):
    given, _ = commands
    assert understand(f"--workdir={tmp_path / 'run'}", "--name=mine")[0] == 0
    assert [words[0] for words in given if "--name=mine" in words] == ["generate", "eval"]


def test_json_names_what_was_made(commands, tmp_path):
    status, out, err = understand(f"--workdir={tmp_path / 'run'}", "--json")
    assert status == 0, err
    assert "$ winobench generate" in err
    document = test_json.validated("understanding", out)
    assert document["runs"] == [str(tmp_path / "run" / "matching" / label) for label in ("a", "b")]
    assert document["page"] == str(tmp_path / "run" / "report" / "report.html")


def test_the_verifier_needs_no_judge_and_other_prompts_do(commands, tmp_path):
    given, _ = commands
    assert understand(f"--workdir={tmp_path / 'run'}")[0] == 0
    assert [words[0] for words in given] == ["generate", "eval", "report"]
    launching.refuse("launch.understand", "--prompts=geneval:FILE", named=["needs a judge", "--judge=MODEL"])


@pytest.mark.parametrize(
    ("word", "said"), [("--judge=absent", "'absent' is neither a folder"), ("--tasks=nosuch", "nosuch")]
)
def test_unknown_names_are_refused_before_anything_runs(commands, word, said):
    given, _ = commands
    launching.refuse("launch.understand", "--prompts=geneval2:FILE", "--judge=qwen3-vl-8b", word, named=[said])
    assert given == []


def test_a_command_that_fails_ends_the_others(commands, tmp_path):
    given, fails = commands
    fails[0] = "generate"
    status, _, err = understand(f"--workdir={tmp_path / 'run'}")
    assert (status, "winobench generate ended with status 3" in err, len(given)) == (2, True, 1)


@pytest.mark.slow
def test_two_embedded_models_on_one_page(tmp_path):
    words = ["--config=understand:debug", "--prompts=clevr:14", "--limit=2", "--num_steps=2", f"--workdir={tmp_path}"]
    process = launching.start("launch.understand", *words, cwd=tmp_path)
    ((out, _),) = launching.finish([process])
    page = pathlib.Path(tmp_path, "report", "report.html").read_text()
    assert "Does it generate what it understands?" in page
    assert out.count("$ winobench ") == 3
    assert (tmp_path / "report" / "generation.csv").read_text().count("clevr-flow") >= 6
