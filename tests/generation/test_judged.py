"""A judge scores generated images: nothing is asked twice, nothing is lost, and results name the judge and its text."""

import json
import math

import pytest

from tests.expectations import raises
from tests.generation import fakes
from tests.rubrics.test_geneval2 import ROWS, write
from winobench.generation.judged import judge_pictures, summarise
from winobench.prompts.named_sets import read_prompts
from winobench.rubrics import Score
from winobench.rubrics.base import Rubric
from winobench.runs import judgements
from winobench.runs.requests import PictureStarts, Response


class Judge:
    """Answers by the image's content. Ends after some answers, as a kill would."""

    kinds = frozenset({PictureStarts.kind})

    def __init__(self, name="judge", ends_after=None, fails=()):
        self.name, self.ends_after, self.fails = name, ends_after, fails
        self.asked = []

    def fingerprint(self):
        return {"responder": self.name}

    def ask(self, requests):
        for number, request in enumerate(requests):
            if self.ends_after is not None and len(self.asked) >= self.ends_after:
                raise KeyboardInterrupt
            self.asked.append(request)
            if request.question.startswith(self.fails) and self.fails:
                yield number, {"error": {"kind": "refused", "message": "no", "attempts": 1}}
            else:
                yield number, {"scores": [math.log((1 + request.picture.sha256.count("a")) / 65)]}

    def read(self, request, raw):
        return Response(scores=tuple(raw["scores"]))


@pytest.fixture
def run(tmp_path):
    prompts = read_prompts(write(tmp_path / "data.jsonl", ROWS))
    return fakes.draw(tmp_path / "run", "one", "two", prompts=prompts, seeds=(0, 1))


def test_results_name_judge_and_text_and_are_read_again(run):
    found = judge_pictures(run, Judge(), name="some judge", progress=False)
    assert (found.num_images, found.num_questions, found.left_out) == (8, 20, 0)
    assert found.who == "some judge (published: Qwen3-VL-8B-Instruct)"
    assert found.wordings == ("{} Answer in one word.",)
    assert list(found.models) == ["one", "two"]
    assert found.models["one"] != found.models["two"]
    assert found.models["one"]["soft_tifa_am"]["count"]["n"] == 4
    assert judgements.read_all(run.folder) == [found]
    folder = run.folder / "judged" / "geneval2-some-judge"
    lines = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines] == [record.file for record in run.records]
    # By hand: the first image's mean.
    likely = (1 + run.records[0].sha256.count("a")) / 65
    assert lines[0]["scores"][0] == {"metric": "soft_tifa_am", "group": "all", "value": pytest.approx(likely)}
    assert judge_pictures(run, Judge("qwen"), name="Qwen/Qwen3-VL-8B-Instruct", progress=False).is_published


def test_an_interrupted_judge_resumes_and_asks_nothing_twice(run):
    first, second, third = Judge(ends_after=7), Judge(), Judge()
    with pytest.raises(KeyboardInterrupt):
        judge_pictures(run, first, name="judge", progress=False)
    assert judgements.read_all(run.folder) == []
    found = judge_pictures(run, second, name="judge", progress=False)
    assert len(first.asked) + len(second.asked) == 20
    assert not set(first.asked) & set(second.asked)
    assert judge_pictures(run, third, name="judge", progress=False) == found
    assert third.asked == []
    fresh = judge_pictures(run, Judge("other"), name="fresh", progress=False)
    assert fresh.models == found.models


def test_failed_calls_leave_no_results(run):
    failing = Judge(fails="How many cows")
    with raises("calls-failed", "4 of 20", "refused"):
        judge_pictures(run, failing, name="judge", progress=False)
    assert judgements.read_all(run.folder) == []
    judge_pictures(run, again := Judge(), name="judge", progress=False)
    assert len(again.asked) == 4


def test_another_judge_of_the_same_name_is_refused(run):
    judge_pictures(run, Judge(), name="judge", progress=False)
    with raises("another-run", "--label"):
        judge_pictures(run, Judge("other weights"), name="judge", progress=False)
    judge_pictures(run, Judge("other weights"), name="judge", label="judge-2", progress=False)
    assert len(judgements.read_all(run.folder)) == 2


def test_changed_images_and_unable_judges_are_refused(run):
    run.path(run.records[3]).write_bytes(b"another image")
    with raises("damaged-file", run.records[3].file):
        judge_pictures(run, Judge(), name="judge", progress=False)
    mute = Judge()
    mute.kinds = frozenset({"generation"})
    with raises("kind-not-answered", "geneval2", "picture_starts"):
        judge_pictures(run, mute, name="judge", progress=False)


def test_damaged_results_are_named(run):
    judge_pictures(run, Judge(), name="judge", progress=False)
    (path := run.folder / "judged" / "geneval2-judge" / "results.json").write_text('{"rubric": "geneval2"}')
    with raises("damaged-file", str(path)):
        judgements.read_all(run.folder)


def test_prompts_that_do_not_fit_are_left_out(tmp_path):
    prompts = [*read_prompts(write(tmp_path / "data.jsonl", ROWS)), fakes.PROMPTS[1]]
    run = fakes.draw(tmp_path / "run", prompts=prompts)
    found = judge_pictures(run, Judge(), name="judge", progress=False)
    assert (found.num_images, found.left_out) == (2, 1)


def test_means_of_groups_by_hand():
    """Two groups of two prompts each: the row is the mean of their means, its interval narrower than theirs."""
    rubric = Rubric(
        **dict.fromkeys(Rubric.__dataclass_fields__),
    )
    object.__setattr__(rubric, "macros", {("score", "both"): ("a", "b", "absent")})
    images = [("1", [Score("score", "a", 0.0)]), ("2", [Score("score", "a", 0.5)])]
    images += [("3", [Score("score", "b", 1.0)]), ("4", [Score("score", "b", 1.0)])]
    found = summarise(images, rubric)["score"]
    assert {name: entry["value"] for name, entry in found.items()} == {"a": 0.25, "b": 1.0, "both": 0.625}
    a, both = found["a"], found["both"]
    assert both["value"] - both["low"] == pytest.approx((a["value"] - a["low"]) / 2)
    assert both["n"] == 4
