"""What a judge would ask and take: counts and prices by hand, with nothing asked, written or loaded."""

import dataclasses
import json
import pathlib

import pytest

from tests import launching
from tests.expectations import raises
from tests.generation import fakes
from tests.launch.test_json import validated
from tests.responders import api_server
from tests.rubrics.test_geneval2 import ROWS, write
from winobench.generation import judged
from winobench.prompts.named_sets import read_prompts
from winobench.responders.hosted import HostedModel, image_tokens
from winobench.runs import responses
from winobench.runs.requests import ImageStarts, ImagesText, ImageTurn, InputImage, LazyResponder, Turn

# Of each image 600 x 600 pixels: 2 x 2 tiles of gpt-4o (85 + 4 * 170), 22 x 22 patches of Claude.
TILES, PATCHES = 765, 484
QUESTIONS = [question for row in ROWS for question, _ in row["vqa_list"]]
LETTERS = [len(f"{question} Answer in one word.") for question in QUESTIONS]


@pytest.fixture
def run(tmp_path, monkeypatch):
    api_server.set_keys(monkeypatch)
    prompts = read_prompts(write(tmp_path / "data.jsonl", ROWS))
    return fakes.draw(tmp_path / "run", fakes.FakePipeline("a", size=600), prompts=prompts)


def files(folder):
    return {path: path.read_bytes() for path in pathlib.Path(folder).rglob("*") if path.is_file()}


def record(run, judge, folder, *bodies):
    """Writes the bodies as answers to the first requests."""
    chosen = judged.named_rubrics.choose(None, run.prompts)
    asked = judged._first_questions(run, chosen, judged.kind_for(chosen, "x", judge.kinds), judge.fingerprint())
    wanted = judged._wanted(asked)
    parts = [part for request in wanted.values() for part in judge.parts(request)]
    with responses.ResponseStore(run.folder / "judged" / folder / "responses") as store:
        for part, body in zip(parts, bodies, strict=False):
            store.add(responses.key(judge.fingerprint(), part), part, {"body": json.dumps(body), "status": 200}, 1.0)


def test_a_hosted_judge_with_a_recorded_part(run):
    judge = HostedModel("openai:gpt-4o")
    filtered = api_server.openai_body("", finish="content_filter")  # it is asked for again
    record(run, judge, "geneval2-gpt-4o", api_server.likely_body("four", four=0.9), filtered)
    before = files(run.folder)
    planned, requests = judged.estimate(run, judge, name="gpt-4o")
    assert files(run.folder) == before
    assert [request.question for request in requests] == [
        f"{question} Answer in one word." for question in QUESTIONS[1:]
    ]
    tokens = {"input": 4 * (TILES + 16) + sum(LETTERS[1:]), "output": 4}
    costs = {"input": tokens["input"] * 2.5e-6, "output": 4 * 10e-6}
    assert planned == {
        **{"rubric": "geneval2", "kind": ImageStarts.kind, "images": 2, "questions": 5, "requests": 5, "missing": 4},
        **{"open": 0, "tokens": tokens, "costs": pytest.approx(costs), "cost": pytest.approx(sum(costs.values()))},
    }
    # Another label takes these answers, as they are in the run next to it.
    assert judged.estimate(run, judge, name="gpt-4o", label="second")[0]["missing"] == 4
    assert not (run.folder / "judged" / "geneval2-second").exists()
    # Of a judge with other options, none is its own.
    other = HostedModel("openai:gpt-4o", seed=3)
    assert judged.estimate(run, other, name="gpt-4o", label="third")[0]["missing"] == 5


def test_votes_count_as_requests(run):
    """Five of each question, of which one and a half questions are recorded."""
    judge = HostedModel("anthropic:claude-haiku-4-5")
    record(run, judge, "geneval2-claude", *[api_server.anthropic_body("four")] * 7)
    planned, requests = judged.estimate(run, judge, name="claude")
    assert (planned["questions"], planned["requests"], planned["missing"]) == (5, 25, 18)
    assert planned["tokens"]["output"] == 18 * 1024
    assert planned["tokens"]["input"] == sum(PATCHES + 16 + len(request.question.encode()) for request in requests)


@pytest.mark.parametrize(
    ("name", "options", "known"),
    [
        ("openai:gpt-9", {}, (None, None)),
        ("openai:gpt-9", {"prices": {"gpt-9": (1, 2)}}, (None, 2)),  # dollars for tokens written, but images unknown
        ("openai:gpt-4o@http://127.0.0.1:1/v1", {}, (None, None)),  # another server counts in its own way
        ("openai:gpt-4o", {"prices": {"gpt-4o": (0, 0)}}, (0, 0)),
    ],
)
def test_what_is_unknown_is_no_number(run, name, options, known):
    planned, _ = judged.estimate(run, HostedModel(name, **options), name="judge")
    read, written = known
    output = None if written is None else pytest.approx(planned["tokens"]["output"] * written / 1e6)
    assert planned["costs"] == {"input": read, "output": output}
    assert planned["cost"] == (0 if read == written == 0 else None)
    assert (planned["tokens"]["input"] is None) == (read is None)
    assert planned["missing"] == planned["requests"]


def test_models_that_think_fill_their_room(run):
    planned, _ = judged.estimate(run, HostedModel("openai:gpt-5-mini"), name="judge")
    assert planned["tokens"]["output"] == 25 * (1024 + 4096)
    limited = HostedModel("openai:gpt-5-mini", extra_body={"max_completion_tokens": 50})
    assert judged.estimate(run, limited, name="judge")[0]["tokens"]["output"] == 25 * 50


def test_a_judge_that_is_not_loaded(run):
    """Answers in its folder count, whatever their fingerprint."""

    def load():
        raise AssertionError("loaded")

    judge = LazyResponder(frozenset({ImageStarts.kind}), None, load)
    assert judged.estimate(run, judge, name="judge")[0]["missing"] == 5
    record(run, HostedModel("openai:gpt-4o"), "geneval2-judge", api_server.likely_body("four", four=0.9))
    planned, requests = judged.estimate(run, judge, name="judge")
    assert (planned["requests"], planned["missing"], len(requests), "tokens" in planned) == (5, 4, 4, False)


@pytest.mark.parametrize("recorded", [0, 1, 2])
def test_questions_that_follow_answers_count_where_these_are_recorded(run, monkeypatch, recorded):
    """The first image has two questions, the second three, and another one follows the answers."""
    rubric = judged.named_rubrics.RUBRICS["geneval2"]

    def more(prompt, image, kind, answers):
        assert all(answer.scores for answer in answers)
        return [ImageStarts(image, "Sure?", ("Yes",))]

    monkeypatch.setitem(judged.named_rubrics.RUBRICS, "geneval2", dataclasses.replace(rubric, follow_ups=more))
    judge = HostedModel("openai:gpt-4o")
    record(run, judge, "geneval2-gpt-4o", *[api_server.likely_body("four", four=0.9)] * recorded)
    planned, requests = judged.estimate(run, judge, name="gpt-4o")
    follows = recorded == 2
    assert (planned["questions"], planned["missing"], planned["open"]) == (
        5 + follows,
        5 - recorded + follows,
        2 - follows,
    )
    assert [request.question for request in requests].count("Sure?") == follows


def test_damaged_images_and_other_judges_are_refused(run):
    run.path(run.records[0]).write_bytes(b"another image")
    with raises("damaged-file", "another"):
        judged.estimate(run, HostedModel("openai:gpt-4o"), name="judge")
    with raises("kind-not-answered", "geneval2"):
        judged.estimate(run, LazyResponder(frozenset(), None, lambda: None), name="judge")


def test_several_images_and_a_conversation(run):
    """By hand: Claude's 36 and 4 patches, 3 frames of 8 tokens, and letters."""
    judge, image = HostedModel("anthropic:claude-haiku-4-5"), InputImage("a.png", "0" * 64)
    both = ImagesText(image, "Which?", max_tokens=7, more_images=(image,))
    assert judge.most_tokens(both, [(168, 168), (29, 56)]) == {"input": 36 + 4 + 24 + 6, "output": 7}
    turn = ImageTurn(image, "ü?", max_tokens=7, before=(Turn("user", "Who?"), Turn("assistant", "Me.")))
    assert judge.most_tokens(turn, [(168, 168)]) == {"input": 36 + 4 * 8 + 4 + 3 + 3, "output": 7}


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [
        # OpenAI's own examples.
        ("gpt-4o", (1024, 1024), 765),
        ("gpt-4o-2024-08-06", (2048, 4096), 1105),
        ("gpt-4o-mini", (512, 512), 8500),
        ("o3", (2048, 4096), 75 + 6 * 150),
        ("gpt-4.1-nano", (1024, 1024), 2520),  # 1024 * 2.46, rounded up
        ("gpt-4.1-mini", (1800, 2400), 2489),  # 1536 patches at most
        # Measured by users: https://community.openai.com/t/1281361, without 8 tokens of text.
        ("gpt-4.1", (2049, 513), 1445),
        ("gpt-4.1", (2050, 513), 765),
        ("gpt-4o", (128, 64), 255),
        ("gpt-4o", (100_000, 1), 85 + 4 * 170),
        # Anthropic's table.
        ("claude-opus-4-8", (1000, 1000), 1296),
        ("claude-opus-4-7", (4000, 3000), 4784),
        ("claude-haiku-4-5-20251001", (1920, 1080), 1568),
        ("gpt-4o-audio", (1, 1), None),
        ("claude-opus-9", (1, 1), None),
    ],
)
def test_tokens_of_images(model, size, tokens):
    assert image_tokens.most_tokens(model, *size) == tokens


def test_command(run, monkeypatch):
    """No key is needed."""
    monkeypatch.delenv("OPENAI_API_KEY")
    words = [run.folder, "--model=openai:gpt-4o", "--dry_run"]
    before = files(run.folder)
    status, out, err = launching.launch("launch.judge", *words)
    read = 5 * (TILES + 16) + sum(LETTERS)
    assert status == 0, err
    assert out.splitlines() == [
        "gpt-4o by geneval2: 5 questions about 2 images",
        "  5 of 5 requests are missing",
        f"  at most, an answer each: {read:,} tokens read; 5 tokens written; $0.01",
    ]
    status, out, err = launching.launch("launch.judge", *words[:1], "--model=openai:gpt-9", "--dry_run", "--json")
    (planned,) = validated("judgements", out)["planned"]
    assert (planned["folder"], planned["cost"], planned["tokens"]["input"]) == (str(run.folder), None, None)
    assert "tokens read not known (no published rule for this model's images); 5 tokens written; price unknown" in err
    status, out, err = launching.launch(
        "launch.judge", *words[:1], "--model=openai:gpt-9", "--dry_run", "--api.price=9,800"
    )
    assert "written; $0.0040 for these" in out
    assert files(run.folder) == before
    launching.refuse("launch.judge", *words[:2], "--accelerator=h100", named=["--accelerator", "--dry_run"])
    launching.refuse("launch.judge", *words[:2], named=["OPENAI_API_KEY"])
    people = ["--people=x", "--prompts=y"]
    launching.refuse("launch.judge", *words, *people, named=["--dry_run", "--people"])
    launching.refuse("launch.judge", *words, "--accelerator=h100", named=["--accelerator", "gpt-4o"])
    folder = run.folder / "pictures"
    prompts = f"--prompts=geneval2:{run.folder.parent / 'data.jsonl'}"
    launching.refuse("launch.judge", folder, prompts, *words[1:], named=["--dry_run", str(folder), "winobench collect"])
    assert files(run.folder) == before
