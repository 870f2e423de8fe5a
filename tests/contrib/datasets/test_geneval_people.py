"""A judge's verdicts on GenEval's published images against people's."""

import json

import pytest

from tests.contrib.datasets import layouts
from tests.expectations import raises
from winobench.contrib.datasets import geneval_people
from winobench.prompts.prompt_files import Prompt
from winobench.runs import image_records
from winobench.runs.requests import Response

PROMPTS = [
    Prompt("00000", "a photo of a bench", "single_object", {"include": [{"class": "bench", "count": 1}]}),
    Prompt("00094", "a photo of a frisbee and a vase", "two_object", {"include": []}),
    Prompt("00095", "a photo of a dog", "single_object", {}),
]


@pytest.fixture
def study(tmp_path):
    return geneval_people.read_study(layouts.write_geneval(tmp_path / "source"), PROMPTS, tmp_path / "out")


def test_the_study_is_a_run(study, tmp_path):
    run, people = study
    assert [model.label for model in run.models] == ["sdv2", "if-xl", "clip"]
    assert run.prompts == tuple(PROMPTS[:2])
    assert run.folder == tmp_path / "out"
    assert len(run.records) == len(people) == 3 * 2 * 4
    record = run.record("if-xl", 3, 1)
    source = tmp_path / "source" / record.source["file"]
    assert source == tmp_path / "source" / "images" / "if-xl" / "00094" / "samples" / "00003.png"
    assert run.path(record).read_bytes() == source.read_bytes()
    assert image_records.is_whole(run.folder, record)
    assert run.image(record).ndim == 3
    # The qualities that `layouts.write_geneval` gives.
    answers = [min(4, 1 + (1 + 94 + 3 + worker) % 6) for worker in range(5)]
    assert people[record.place] == (answers.count(4) > 2)


def test_agreement_by_hand(study):
    """24 images, of which the judge calls those of seed 0 correct."""
    run, people = study
    judge = {place: place[1] == 0 for place in people}
    found = geneval_people.agree(run, judge, people)
    assert list(found) == ["all", "clip", "if-xl", "sdv2", "single_object", "two_object"]
    both = [(judge[place], people[place]) for place in people]
    same = sum(one == other for one, other in both) / 24
    yes = [sum(pair[side] for pair in both) / 24 for side in (0, 1)]
    by_chance = yes[0] * yes[1] + (1 - yes[0]) * (1 - yes[1])
    row = found["all"]
    assert row["accuracy"] == pytest.approx(same)
    assert row["kappa"] == pytest.approx((same - by_chance) / (1 - by_chance))
    assert [row["judge"], row["people"], row["n"]] == [*map(pytest.approx, yes), 24]
    assert row["low"] < row["accuracy"] < row["high"]
    assert found["clip"]["n"] == 8
    assert geneval_people.agree(run, people, people)["all"]["kappa"] == 1.0
    # Images that the judge has not seen do not count.
    some = {place: value for place, value in judge.items() if place[0] == "clip"}
    assert list(geneval_people.agree(run, some, people)) == ["all", "clip", "single_object", "two_object"]


def test_other_prompts_are_refused(tmp_path):
    source = layouts.write_geneval(tmp_path / "source")
    for prompts in (PROMPTS[1:], [Prompt("00000", "a dog", "", {}), *PROMPTS[1:]]):
        with raises("contradicting-rows", "a photo of a bench", "00000", "evaluation_metadata.jsonl"):
            geneval_people.read_study(source, prompts, tmp_path / "out")
    (source / "images" / "clip" / "00094" / "samples" / "00003.png").unlink()
    with raises("no-such-file", "00003.png"):
        geneval_people.read_study(source, PROMPTS, tmp_path / "out")


class Judge:
    """Says yes about everything."""

    kinds = frozenset({"picture_text"})

    def __init__(self):
        self.asked = 0

    def fingerprint(self):
        return {"responder": "judge"}

    def ask(self, requests):
        for number in range(len(requests)):
            self.asked += 1
            yield number, {"text": "Yes."}

    def read(self, request, raw):
        return Response(text=raw["text"])


def test_a_judge_answers_about_the_study(study):
    run, people = study
    judge = Judge()
    found = geneval_people.judge_study(run, people, judge, name="some/judge", progress=False)
    # Prompts without questions are left out. Equal images have equal answers.
    assert found["all"]["n"] == 12
    assert found["all"]["judge"] == 1.0
    assert found["all"]["kappa"] == 0.0
    shown = [people[record.place] for record in run.records if record.number == 0]
    assert found["all"]["accuracy"] == found["all"]["people"] == sum(shown) / 12
    assert found == geneval_people.judge_study(run, people, judge, name="some/judge", progress=False)
    assert judge.asked == len({record.sha256 for record in run.records if record.number == 0})
    (path,) = run.folder.glob("judged/geneval_questions-*/agreement.json")
    assert json.loads(path.read_text()) == {"judge": "some/judge", "rows": found}
