"""GenEval 2 from the command line: generated, judged, killed and resumed in both stages, and by hosted judges."""

import json
import re

import pytest
from absl import flags

from launch import text
from tests import launching, tiny_language_models
from tests.expectations import raises
from tests.generation import fakes
from tests.responders import api_server
from tests.rubrics.test_geneval2 import ROWS, write
from tests.tiny_vision_language import write_vision_language
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt
from winobench.responders.hosted import HostedModel
from winobench.runs import judgements
from winobench.runs.image_runs import read_images

DRAW = ["--config=images:debug", "--model=clevr-tiny", "--batch_size=1"]


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        tiny_language_models.compile_quickly(patch)
        yield


@pytest.fixture
def source(tmp_path):
    rows = [row | {"prompt": f"{row['prompt']} {number}"} for number in range(6) for row in ROWS]
    return write(tmp_path / "geneval2_data.jsonl", rows)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp("qwen"), "qwen3_vl")


def write_genai_bench(folder):
    """Twelve prompts of two skills in the published layout."""
    texts = {f"{number:05d}": {"prompt": f"a red cube {number}"} for number in range(12)}
    (folder / "genai_image.json").write_text(json.dumps(texts))
    skills = {"attribute": list(range(8)), "counting": list(range(4, 12)), "basic": list(range(12))}
    (folder / "genai_skills.json").write_text(json.dumps(skills))
    return f"genai_bench:{folder}"


@pytest.mark.slow
@pytest.mark.usefixtures("single_device")
@pytest.mark.parametrize(
    ("rubric", "questions", "said", "row"),
    [
        ("geneval2", 30, "Qwen3-VL-8B-Instruct", "soft tifa gm, 3 atoms"),
        ("vqa_score", 12, "CLIP-FlanT5-XXL", "vqa score, counting"),
    ],
)
def test_generated_and_judged_with_kills_is_the_same_as_at_once(rubric, questions, said, row, source, qwen, tmp_path):
    """Nothing is generated or asked twice: records and responses stand once each."""
    source = source if rubric == "geneval2" else write_genai_bench(tmp_path)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    status, out, err = launching.launch(
        "launch.generate", *DRAW, f"--prompts={source}", f"--workdir={whole}", f"--judge={qwen}"
    )
    assert (status, f"{rubric}: 12 images and {questions} questions, judged by" in out) == (0, True), err
    assert f"(published: {said})" in out
    assert ("{} Answer in one word." if rubric == "geneval2" else 'Does this figure show "{}"?') in out
    assert row in out
    words = [*DRAW, f"--prompts={source}", f"--workdir={killed}"]
    launching.kill(
        launching.start("launch.generate", *words, cwd=tmp_path), lambda: len([*killed.glob("pictures/*/0/*.png")]) >= 3
    )
    drawn = len([*killed.glob("pictures/*/0/*.png")])
    assert launching.launch("launch.generate", *words)[0] == 0
    lines = [line for path in sorted(killed.glob("drawn/part-*")) for line in path.read_text().splitlines()]
    assert 12 <= len(lines) <= 13  # one image may have had no record yet
    assert drawn < 12
    words = [killed, f"--model={qwen}", "--batch_size=1"]
    folder = killed / "judged" / f"{rubric}-{qwen.name}"

    def answered():
        return [line for path in folder.glob("responses/part-*") for line in path.read_text().splitlines()]

    launching.kill(launching.start("launch.judge", *words, cwd=tmp_path), lambda: len(answered()) >= 3)
    before = len(answered())
    assert (before < questions, (folder / "results.json").exists()) == (True, False)
    status, out, err = launching.launch("launch.judge", *words)
    assert status == 0, err
    keys = [json.loads(line)["key"] for line in answered() if line.endswith("}")]
    assert (len(keys), len(set(keys))) == (questions, questions)
    (once,), (again,) = (judgements.read_all(read_images(folder)) for folder in (whole, killed))
    for label, metrics in once.models.items():
        for metric, groups in metrics.items():
            for group, entry in groups.items():
                assert again.models[label][metric][group]["value"] == pytest.approx(entry["value"], rel=1e-4)
    status, out, err = launching.launch("launch.judge", *words)
    assert (status, f"all {questions} responses are recorded: nothing to ask" in err) == (0, True), err


def test_a_hosted_judge_chooses_among_options(monkeypatch, source, tmp_path):
    run = fakes.draw(tmp_path / "run", "a", prompts=read_prompts(source, limit=2))
    with api_server.running_with_keys(monkeypatch) as server:
        server.answer = lambda prompt: "one" if "How many" in str(prompt) else "Yes"
        words = [run.folder, f"--model=openai:m@{server.address}/v1", "--api.logprobs=false", "--api.votes=1"]
        status, out, err = launching.launch("launch.judge", *words)
        assert (status, "2 images and 5 questions" in out) == (0, True), err
        calls = len(server.calls)
        assert launching.launch("launch.judge", *words)[0] == 0
        assert len(server.calls) == calls
    (found,) = judgements.read_all(run)
    assert (found.kind, found.is_published) == ("picture_options", False)
    assert re.search(r"soft tifa am, count +50\.0", out), out
    values = {group: entry["value"] for group, entry in found.models["a"]["soft_tifa_am"].items()}
    assert values == pytest.approx({"all": 0.75, "count": 0.5, "attribute": 1, "position": 1, "object": 1})


@pytest.mark.parametrize(
    ("refused", "status", "said"),
    [(0, 0, None), (1, 0, None), (3, 0, "warning: 15% of the answers"), (11, 2, "error: 55% of the answers")],
)
def test_unread_answers_are_said_in_the_last_line(monkeypatch, tmp_path, refused, status, said):
    """Above 5% with a warning, above a half with an error. The results are there in any case."""
    question = {"id": 1, "dependency": [0], "tuple": "entity - whole (cat)"}
    questions = [{"questions": [question | {"question": f"Is cat {number} here?"}]} for number in range(20)]
    prompts = [Prompt(str(number), f"a cat {number}", "", content) for number, content in enumerate(questions)]
    run = fakes.draw(tmp_path / "run", "a", prompts=prompts)
    with api_server.running_with_keys(monkeypatch) as server:
        server.answer = lambda prompt: (
            "I'm sorry." if any(f"cat {number} " in str(prompt) for number in range(refused)) else "**Yes**"
        )
        words = [run.folder, f"--model=openai:m@{server.address}/v1"]
        found_status, _, err = launching.launch("launch.judge", *words)
    assert found_status == status, err
    assert said is None or err.strip().splitlines()[-1].startswith(said), err
    assert said is not None or "of the answers" not in err
    (found,) = judgements.read_all(run)
    assert found.unread == pytest.approx(refused / 20)
    assert found.models["a"]["score"]["all"]["value"] == pytest.approx(1 - refused / 20)


def options_of(*words, model="openai:m@http://127.0.0.1:1/v1"):
    """The options of a judge, from words of its command line."""
    with launching.flags_of_its_own():
        text.define_api_flags("launch.judge")
        flags.FLAGS(["judge", *words])
        return text.given_api_options(model)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (['--api.extra_body={"max_tokens": 4096}'], {"max_tokens": 4096}),
        (['--api.extra_body={"stop": ["a,b=c", "}"]}', "--api.votes=3"], {"stop": ["a,b=c", "}"]}),
        (["--api.price=0.15,0.60", '--api.extra_body={"top_p": 0.5}', "--api.attempts=1"], {"top_p": 0.5}),
        (["--api.logprobs=none", "--api.base_url=none"], {}),
    ],
)
def test_a_judge_takes_what_a_config_takes(words, fields):
    options = options_of(*words)
    model = HostedModel("openai:m@http://127.0.0.1:1/v1", **{k: v for k, v in options.items() if v is not None})
    assert model.fingerprint()["extra_body"] == fields
    assert options.get("prices") == ({"m": (0.15, 0.6)} if "--api.price=0.15,0.60" in words else None)


def test_all_options_of_the_judges_server():
    given = {"max_tokens_field": "max_completion_tokens", "send_temperature": False, "timeout": 5.0, "concurrency": 2}
    options = options_of(*(f"--api.{name}={str(value).lower()}" for name, value in given.items()))
    assert {name: options[name] for name in given} == given


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("logprobs=maybe", "bad-value"),
        ("attempts=many", "bad-value"),
        ("attempts=0", "bad-value"),
        ("votes=1.5", "bad-value"),
        ("timeout=nan", "bad-value"),
        ("price=1", "bad-value"),
        ("max_tokens_field=limit", "bad-value"),
        ("extra_body={", "not-json"),
        ("extra_body=[1]", "not-json"),
    ],
)
def test_what_a_config_does_not_take_a_judge_does_not_take(given, code):
    with raises(code, f"--api.{given.partition('=')[0]}"):
        options_of(f"--api.{given}")


def test_options_of_hosted_judges_are_refused_for_others():
    assert options_of(model="qwen3-vl-8b") is None
    with raises("no-effect", "--api.votes"):
        options_of("--api.votes=3", model="qwen3-vl-8b")


@pytest.mark.parametrize(
    ("judge", "said"), [("absent", "'absent' is neither a folder"), ("clip-vit-b32", "cannot judge by geneval2")]
)
def test_a_judge_that_cannot_judge_is_refused_before_anything_is_generated(source, tmp_path, judge, said):
    words = [*DRAW, f"--prompts={source}", f"--workdir={tmp_path / 'run'}", f"--judge={judge}"]
    launching.refuse("launch.generate", *words, named=[said])
    assert not (tmp_path / "run").exists()


def test_a_bound_of_pixels_is_checked_before_anything_is_generated(source, qwen, tmp_path):
    words = [*DRAW, f"--prompts={source}", f"--workdir={tmp_path / 'run'}"]
    launching.refuse("launch.generate", *words, f"--judge={qwen}", "--max_pixels=2000", named=["max_pixels", "1,536"])
    launching.refuse("launch.generate", *words, "--max_pixels=1024", named=["no effect without --judge"])
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("single_device")
def test_a_bound_of_pixels_changes_the_judge(source, qwen, tmp_path):
    """In generate --judge and in judge: as one judge, and another one without it."""
    words = [*DRAW, f"--prompts={source}", "--limit=1", f"--workdir={tmp_path / 'run'}"]
    status, _, err = launching.launch("launch.generate", *words, f"--judge={qwen}", "--max_pixels=1024")
    assert status == 0, err
    status, _, err = launching.launch("launch.judge", tmp_path / "run", f"--model={qwen}", "--max_pixels=1024")
    assert (status, "nothing to ask" in err) == (0, True), err
    launching.refuse("launch.judge", tmp_path / "run", f"--model={qwen}", named=["other weights or options"])


@pytest.mark.slow
@pytest.mark.usefixtures("single_device")
@pytest.mark.parametrize(
    ("rubric", "rows"),
    [("geneval_questions", "accuracy, mean of tags"), ("blip_vqa", "blip vqa, color"), ("mllm", "mllm, spatial")],
)
def test_other_rubrics_with_a_model_of_weights(rubric, rows, tmp_path):
    """Prompts of both sets in one run, so that each rubric leaves some out."""
    prompts = [
        Prompt("1", "a photo of two clocks", "counting", {"include": [{"class": "clock", "count": 2}]}),
        Prompt("2", "a green bench and a red car", "color", None),
        Prompt("3", "a bee on the left of a key", "spatial", None),
    ]
    judge = write_vision_language(tmp_path / "llava", "llava")
    run = fakes.draw(tmp_path / "run", "a", prompts=prompts)
    status, out, err = launching.launch("launch.judge", run.folder, f"--model={judge}", f"--rubric={rubric}")
    # Random weights write nothing that can be read.
    unread = 0 if rubric == "blip_vqa" else 2
    assert (status, rows in out, "left out" in out) == (unread, True, True), (out, err)
    (found,) = judgements.read_all(run)
    assert (found.rubric, found.is_published) == (rubric, False)
