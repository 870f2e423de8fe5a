"""A judge scores generated images: nothing is asked twice, nothing is lost, and results name the judge and its text."""

import dataclasses
import json
import math
import pathlib

import numpy as np
import pytest

from tests.expectations import raises
from tests.generation import fakes
from tests.rubrics.test_geneval2 import ROWS, write
from winobench.generation.generate import generate_images
from winobench.generation.judged import judge_images, summarise
from winobench.metrics import wilson
from winobench.prompts.named_sets import read_prompts
from winobench.rubrics import named_rubrics
from winobench.rubrics.base import Rubric, Score
from winobench.runs import judgements
from winobench.runs.image_records import ImageStore, MissingImage
from winobench.runs.image_runs import read_images
from winobench.runs.requests import (
    ENDINGS,
    ImageOptions,
    ImageStarts,
    ImageText,
    ImageTurn,
    LazyResponder,
    Response,
    Turn,
)
from winobench.runs.verdicts import Verdict, generation_accuracy, read_verdicts, write_verdicts


class Judge:
    """Answers by the image's content. Ends after some answers, as a kill would."""

    kinds = frozenset({ImageStarts.kind})

    def __init__(self, name="judge", ends_after=None, fails=(), kind="server"):
        self.name, self.ends_after, self.fails, self.kind = name, ends_after, fails, kind
        self.asked = []

    def fingerprint(self):
        return {"responder": self.name}

    def ask(self, requests):
        for number, request in enumerate(requests):
            if self.ends_after is not None and len(self.asked) >= self.ends_after:
                raise KeyboardInterrupt
            self.asked.append(request)
            if request.question.startswith(self.fails) and self.fails:
                is_answer = self.kind in ENDINGS
                yield number, {"ending": self.kind} if is_answer else {"error": {"kind": self.kind, "message": "no"}}
            else:
                yield number, {"scores": [math.log((1 + request.image.sha256.count("a")) / 65)]}

    def read(self, request, raw):
        return Response(ending=raw["ending"]) if "ending" in raw else Response(scores=tuple(raw["scores"]))


@pytest.fixture
def run(tmp_path):
    prompts = read_prompts(write(tmp_path / "data.jsonl", ROWS))
    return fakes.draw(tmp_path / "run", "one", "two", prompts=prompts, seeds=(0, 1))


def test_results_name_judge_and_text_and_are_read_again(run):
    found = judge_images(run, Judge(), name="some judge", progress=False)
    assert (found.num_images, found.num_questions, found.left_out) == (8, 20, 0)
    assert found.who == "some judge (published: Qwen3-VL-8B-Instruct)"
    assert found.wordings == ("{} Answer in one word.",)
    assert list(found.models) == ["one", "two"]
    assert found.models["one"] != found.models["two"]
    assert found.models["one"]["soft_tifa_am"]["count"]["n"] == 4
    assert judgements.read_all(run) == [found]
    folder = run.folder / "judged" / "geneval2-some-judge"
    lines = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    assert [line["file"] for line in lines] == [record.file for record in run.records]
    # By hand: the first image's mean.
    likely = (1 + run.records[0].sha256.count("a")) / 65
    assert lines[0]["scores"][0] == {"metric": "soft_tifa_am", "group": "all", "value": pytest.approx(likely)}


def _lazy(loaded, files="of the judge"):
    def load():
        loaded.append(Judge())
        return loaded[-1]

    return LazyResponder(Judge.kinds, files, load)


def test_a_finished_judgement_loads_no_judge(run):
    """Unless files, options, images or the rubric are others, or nobody knows."""
    loaded = []
    first = judge_images(run, _lazy(loaded), name="some judge", progress=False)
    assert judge_images(run, _lazy(loaded), name="some judge", progress=False) == first
    assert len(loaded) == 1
    for files in ("of another judge", None):
        again = judge_images(run, _lazy(loaded, files), name="some judge", progress=False)
        assert again == dataclasses.replace(first, files=files)
    assert len(loaded) == 3
    assert not loaded[-1].asked  # its answers are recorded
    judge_images(run, _lazy(loaded), name="some judge", progress=False)
    results = run.folder / "judged" / "geneval2-some-judge" / "results.json"
    results.write_text(json.dumps(json.loads(results.read_text()) | {"version": 0}))
    judge_images(run, _lazy(loaded), name="some judge", progress=False)
    assert len(loaded) == 5
    run.path(run.records[0]).write_bytes(b"another image")
    with raises("damaged-file", "another"):
        judge_images(run, _lazy(loaded), name="some judge", progress=False)
    assert len(loaded) == 5


def test_the_published_judge_is_known_by_its_name_and_the_way_it_answers(run):
    """A label changes neither. Another model's name that contains it is another model."""
    published, hosted = "Qwen/Qwen3-VL-8B-Instruct", Judge("hosted")
    assert judge_images(run, Judge("qwen"), name=published, progress=False).is_published
    found = judge_images(run, Judge("bfloat16"), name=published, label="second", progress=False)
    assert (found.is_published, found.who) == (True, f"{published} (second)")
    assert (run.folder / "judged" / "geneval2-second" / "results.json").is_file()
    for name, label in (("Qwen/Qwen3-VL-8B-Thinking", None), ("judge", "qwen3-vl-8b")):
        assert not judge_images(run, Judge(name), name=name, label=label, progress=False).is_published
    hosted.kinds = frozenset({ImageOptions.kind})
    hosted.ask = lambda requests: ((n, {"scores": [0.0] * len(one.options)}) for n, one in enumerate(requests))
    assert not judge_images(run, hosted, name="qwen3-vl-8b-instruct", progress=False).is_published


@pytest.mark.parametrize("label", ["a/b", "../../../elsewhere", "..", ""])
def test_labels_stay_in_the_run(run, label):
    with raises("bad-name", repr(label)):
        judge_images(run, Judge(), name="judge", label=label, progress=False)
    assert not (run.folder / "judged").exists()


def test_results_about_other_images_are_left_out(run):
    """The folder's images are replaced after a judge and a verifier have seen them."""
    judge_images(run, Judge(), name="judge", progress=False)
    write_verdicts(run, [Verdict(record.file, record.sha256, True) for record in run.records])
    assert generation_accuracy(run, read_verdicts(run.folder))["one"]["all"]["n"] == 4
    others = [fakes.FakePipeline(name) for name in ("three", "four")]
    labelled = [fakes.generator(pipeline, label) for pipeline, label in zip(others, ("one", "two"), strict=True)]
    new = generate_images(labelled, run.prompts, run.folder, seeds=(0, 1), overwrite=True, progress=False)
    assert [record.file for record in new.records] == [record.file for record in run.records]
    with pytest.warns(UserWarning, match="judge/results.json is about other images than the run now has") as warned:
        assert judgements.read_all(new) == []
    assert len(warned) == 1  # verdicts are checked image by image
    assert generation_accuracy(new, read_verdicts(new.folder)) == {"one": {}, "two": {}}
    found = judge_images(new, Judge(), name="judge", progress=False)
    assert judgements.read_all(new) == [found]


def test_rounding_leads_no_probability_above_one(run):
    judge = Judge()
    judge.ask = lambda requests: ((number, {"scores": [2e-7]}) for number in range(len(requests)))
    found = judge_images(run, judge, name="judge", progress=False)
    entry = found.models["one"]["soft_tifa_gm"]["all"]
    assert (entry["value"], entry["high"], entry["n"]) == (1.0, 1.0, 4)


def test_an_interrupted_judge_resumes_and_asks_nothing_twice(run):
    first, second, third = Judge(ends_after=7), Judge(), Judge()
    with pytest.raises(KeyboardInterrupt):
        judge_images(run, first, name="judge", progress=False)
    assert judgements.read_all(run) == []
    found = judge_images(run, second, name="judge", progress=False)
    assert len(first.asked) + len(second.asked) == 20
    assert not set(first.asked) & set(second.asked)
    assert judge_images(run, third, name="judge", progress=False) == found
    assert third.asked == []
    fresh = judge_images(run, Judge("other"), name="fresh", progress=False)
    assert fresh.models == found.models


def test_failed_calls_leave_no_results(run):
    failing = Judge(fails="How many cows")
    with raises("calls-failed", "4 of 20", "server"):
        judge_images(run, failing, name="judge", progress=False)
    assert judgements.read_all(run) == []
    judge_images(run, again := Judge(), name="judge", progress=False)
    assert len(again.asked) == 4


@pytest.mark.parametrize("ending", ["blocked", "cut_off", "empty", "filtered", "tool_call"])
def test_images_whose_answer_is_missing_for_good_count_nowhere(run, ending):
    """One of two prompts: the results of the other four images, and the number of those left out by the reason."""
    judge = Judge(fails="How many cows", kind=ending)
    found = judge_images(run, judge, name="judge", progress=False)
    assert (found.num_images, found.missing, found.num_missing, found.num_questions) == (4, {ending: 4}, 4, 8)
    assert {group for group in found.models["one"]["soft_tifa_gm"]} == {"all", "3 atoms"}
    assert judgements.read_all(run) == [found]
    again = Judge()
    mended = judge_images(run, again, name="judge", progress=False)
    assert (mended.num_images, mended.missing, len(again.asked)) == (8, {}, 4)


def test_a_judge_without_any_answer_is_refused(run):
    with raises("incomplete-answers", "all 8 images", "8 blocked"):
        judge_images(run, Judge(fails=("How", "Are", "Is"), kind="blocked"), name="judge", progress=False)
    assert judgements.read_all(run) == []


def test_results_of_earlier_versions_are_read(run):
    found = judge_images(run, Judge(), name="judge", progress=False)
    path = run.folder / "judged" / "geneval2-judge" / "results.json"
    written = json.loads(path.read_text())
    del written["missing"]
    path.write_text(json.dumps(written))
    assert judgements.read_all(run) == [found]


def test_another_judge_of_the_same_name_is_refused(run):
    judge_images(run, Judge(), name="judge", progress=False)
    with raises("another-run", "--label"):
        judge_images(run, Judge("other weights"), name="judge", progress=False)
    judge_images(run, Judge("other weights"), name="judge", label="judge-2", progress=False)
    assert len(judgements.read_all(run)) == 2


def test_changed_images_and_unable_judges_are_refused(run):
    run.path(run.records[3]).write_bytes(b"another image")
    with raises("damaged-file", run.records[3].file):
        judge_images(run, Judge(), name="judge", progress=False)
    mute = Judge()
    mute.kinds = frozenset({"generation"})
    with raises("kind-not-answered", "geneval2", "picture_starts"):
        judge_images(run, mute, name="judge", progress=False)


def test_a_rubric_about_several_images_refuses_a_judge_of_one_before_it_is_loaded(run, monkeypatch):
    about_two = dataclasses.replace(named_rubrics.RUBRICS["geneval2"], kinds=("pictures_text",))
    monkeypatch.setattr(named_rubrics, "choose", lambda name, prompts: about_two)
    loaded = []
    with raises("kind-not-answered", "llava", "pictures_text"):
        judge_images(run, _lazy(loaded), name="llava", progress=False)
    assert not loaded


def test_damaged_results_are_named(run):
    judge_images(run, Judge(), name="judge", progress=False)
    path = run.folder / "judged" / "geneval2-judge" / "results.json"
    whole, entry = json.loads(path.read_text()), {"value": 0.5, "low": None, "high": None, "n": 2}
    models = [3, {"one": 3}, {"one": {"m": [entry]}}, {"one": {"m": {"all": {}}}}]
    models += [{"one": {"m": {"all": entry | {name: "0.5"}}}} for name in [*entry, "too_few"]]
    for damaged in ({"rubric": "geneval2"}, *(whole | {"models": some} for some in models)):
        path.write_text(json.dumps(damaged))
        with raises("damaged-file", str(path)):
            judgements.read_all(run)


def test_prompts_that_do_not_fit_are_left_out(tmp_path):
    prompts = [*read_prompts(write(tmp_path / "data.jsonl", ROWS)), fakes.PROMPTS[1]]
    run = fakes.draw(tmp_path / "run", prompts=prompts)
    found = judge_images(run, Judge(), name="judge", progress=False)
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
    a, b, both = found["a"], found["b"], found["both"]
    below = np.hypot(a["value"] - a["low"], b["value"] - b["low"]) / 2
    assert both["value"] - both["low"] == pytest.approx(below)
    assert (b["low"], b["high"]) == pytest.approx(wilson(2, 2)[1:])
    assert both["n"] == 4
    assert (a["too_few"], b["too_few"], both["too_few"]) == (True, False, True)


def test_zeros_and_ones_have_the_interval_of_a_proportion():
    rubric = Rubric(**dict.fromkeys(Rubric.__dataclass_fields__))
    object.__setattr__(rubric, "macros", {})

    def entry(numbers):
        images = [(str(place), [Score("score", "all", number)]) for place, number in enumerate(numbers)]
        return summarise(images, rubric)["score"]["all"]

    # Of 20 right answers the exact end of the level 93% is 0.035^(1 / 20) = 0.8457, and Wilson's is 0.8389.
    assert entry([1.0] * 20) == {
        "value": 1,
        "low": pytest.approx(0.8389, abs=1e-4),
        "high": 1,
        "n": 20,
        "too_few": False,
    }
    assert entry([0.5] * 20)["too_few"]  # all are equal
    assert not entry([0.25, 0.5, 0.75, 0.5] * 5)["too_few"]


def test_results_of_older_versions_are_read(run):
    """Those know nothing of too few values."""
    judge_images(run, Judge(), name="judge", progress=False)
    path = run.folder / "judged" / "geneval2-judge" / "results.json"
    older = json.loads(path.read_text())
    for entry in (
        entry for model in older["models"].values() for groups in model.values() for entry in groups.values()
    ):
        del entry["too_few"]
    path.write_text(json.dumps(older))
    [found] = judgements.read_all(run)
    assert found.models == older["models"]


def test_an_image_that_may_not_be_read_is_not_called_changed(run, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "read_bytes", refuse)
    with raises("cannot-read", run.records[0].file, "rights"):
        judge_images(run, Judge(), name="judge", progress=False)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"run": 5}, "wrong-type"),
        ({"run": None}, "wrong-type"),
        ({"responder": None}, "wrong-type"),
        ({"responder": "gpt-4o"}, "wrong-type"),
        ({"rubric": 5}, "unknown-name"),
        ({"rubric": ["geneval2"]}, "unknown-name"),
        ({"label": 5}, "bad-name"),
        ({"label": "x" * 300}, "bad-name"),
        ({"name": None}, "wrong-type"),
    ],
)
def test_wrong_arguments_are_one_sentence(run, change, code):
    given = {"run": run, "responder": Judge(), "name": "judge", "progress": False} | change
    with raises(code):
        judge_images(given.pop("run"), given.pop("responder"), **given)


class Talker:
    """Describes an image, or answers a question with the description. Blocks one image."""

    kinds = frozenset({ImageTurn.kind, ImageText.kind})

    def __init__(self, blocked=""):
        self.asked, self.blocked = [], blocked

    def fingerprint(self):
        return {"responder": "talker"}

    def ask(self, requests):
        for number, request in enumerate(requests):
            self.asked.append(request)
            before = getattr(request, "before", ())
            if request.image.path.endswith(self.blocked) and self.blocked:
                yield number, {"error": {"kind": "blocked", "message": "no"}}
            else:
                yield number, {"text": f"{before[-1].text}!" if before else request.image.sha256[:4]}

    def read(self, request, raw):
        return Response(text=raw["text"])


def _plain_rubric(**fields):
    given = {"name": "plain", "version": 1, "description": "", "source": "", "judge": "x", "kinds": (ImageText.kind,)}
    given |= {"is_published": lambda name: False, "wordings": {ImageText.kind: ()}, "fits": lambda prompt: True}
    return Rubric(**(given | fields))


@pytest.fixture
def chain(monkeypatch):
    """A rubric whose second question follows the first answer."""
    rubric = _plain_rubric(
        kinds=(ImageTurn.kind,),
        wordings={ImageTurn.kind: ("?",)},
        requests=lambda prompt, image, kind: [ImageText(image, "Describe it.")],
        follow_ups=lambda prompt, image, kind, responses: [
            ImageTurn(image, "?", before=(Turn("user", "Describe it."), Turn("assistant", responses[0].text)))
        ],
        scores=lambda prompt, responses, kind, published: [
            Score("same", "all", float(responses[1].text == f"{responses[0].text}!"))
        ],
    )
    monkeypatch.setitem(named_rubrics.RUBRICS, "plain", rubric)
    return rubric


def test_questions_that_follow_answers(run, chain):
    """Each is asked once. An image without the first answer has no second question, and is missing."""
    judge, last = Talker(blocked=run.records[-1].file), run.records[-1].model
    found = judge_images(run, judge, name="judge", rubric="plain", progress=False)
    assert (found.num_images, found.num_questions, found.missing) == (7, 14, {"blocked": 1})
    assert found.models[last]["same"]["all"]["value"] == 1
    assert len(judge.asked) == 8 + 7
    again = Talker()
    mended = judge_images(run, again, name="judge", rubric="plain", progress=False)
    assert (mended.num_images, mended.num_questions, len(again.asked)) == (8, 16, 2)
    with raises("kind-not-answered", "picture_turn"):
        judge_images(run, Judge(), name="other", rubric="plain", progress=False)


def test_scores_of_the_images_of_a_prompt_together(run, monkeypatch):
    """Two seeds of four prompts by two models. Images about which nothing is asked are left out."""
    shown = []

    def requests(prompt, images, kind):
        shown.append(len(images))
        return [ImageText(image) for image in images if not prompt.id.startswith("2")]

    rubric = _plain_rubric(
        requests=requests,
        scores=lambda prompt, responses, kind, published: [Score("number", "all", len(responses) / 4)],
        together=True,
    )
    monkeypatch.setitem(named_rubrics.RUBRICS, "plain", rubric)
    prompts = len({record.number for record in run.records})
    found = judge_images(run, Talker(), name="judge", rubric="plain", progress=False)
    assert shown == [2] * 2 * prompts
    assert found.num_images + found.left_out == len(run.records)
    assert found.num_questions == found.num_images
    entry = found.models["one"]["number"]["all"]
    assert (entry["value"], entry["n"]) == (0.5, found.num_images // 4)
    lines = (run.folder / "judged" / "plain-judge" / "scores.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["files"]) for line in lines] == [2] * (found.num_images // 2)
    monkeypatch.setitem(
        named_rubrics.RUBRICS, "plain", dataclasses.replace(rubric, requests=lambda prompt, images, kind: [])
    )
    with raises("no-content", "plain", "several"):
        judge_images(run, Talker(), name="second", rubric="plain", progress=False)


def lacks(run, *records, kind="filtered"):
    """The run without some images, which a filter let not through."""
    named = {model.label: model.fingerprint for model in run.models}
    with ImageStore(run.folder) as store:
        store.add_missing(
            [
                MissingImage(record.prompt, record.model, record.seed, record.number, named[record.model], kind, "no")
                for record in records
            ]
        )
    return read_images(run.folder)


def test_missing_images_are_left_out_and_their_share_is_there(run):
    whole = judge_images(run, Judge(), name="judge", progress=False)
    assert (whole.no_image, "no_image" in whole.models["one"]) == ({}, False)
    first = next(record for record in run.records if record.model == "one")
    found = judge_images(run := lacks(run, first), judge := Judge(), name="judge", progress=False)
    assert (judge.asked, found.num_images, found.no_image) == ([], 7, {"one": {"filtered": 1}})
    expected = {"value": 0.25, "low": None, "high": None, "n": 4, "too_few": False}
    assert found.models["one"]["no_image"] == {"all": expected}
    assert found.models["two"] == whole.models["two"]
    values = [line["scores"][0]["value"] for line in _lines(run) if line["model"] == "one"]
    assert found.models["one"]["soft_tifa_am"]["all"]["value"] == pytest.approx(np.mean(values))
    assert len(values) == 3
    assert judgements.read_all(run) == [found]
    assert judgements.missing_in_words(found) == {"one": "one lacks 1 of 4 images (25.0%: 1 filtered)"}

    # Other images are missing: the results are not of these images.
    with pytest.warns(UserWarning, match="other images"):
        assert judgements.read_all(lacks(run, first, kind="absent")) == []


def _lines(run):
    (path,) = run.folder.glob("judged/*/scores.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_rubric_may_count_missing_images_as_0(run, monkeypatch):
    rubric = named_rubrics.RUBRICS["geneval2"]
    zero = dataclasses.replace(rubric, missing=lambda prompt: [Score("soft_tifa_am", "all", 0.0)])
    monkeypatch.setattr(named_rubrics, "RUBRICS", {"geneval2": zero})
    whole = judge_images(run, Judge(), name="judge", progress=False)
    values = [line["scores"][0]["value"] for line in _lines(run) if line["model"] == "one"]
    run = lacks(run, next(record for record in run.records if record.model == "one"))
    found = judge_images(run, Judge(), name="judge", progress=False).models["one"]
    assert found["soft_tifa_am"]["all"]["n"] == whole.models["one"]["soft_tifa_am"]["all"]["n"] == 4
    assert found["soft_tifa_am"]["all"]["value"] == pytest.approx(sum(values[1:]) / 4)
    with raises("no-images", "geneval2", "all are missing"):
        judge_images(lacks(run, *run.records), Judge(), name="judge", progress=False)


def test_verdicts_show_missing_images(run):
    first = next(record for record in run.records if record.model == "two")
    run = lacks(run, first, kind="absent")
    made = write_verdicts(run, [Verdict(record.file, record.sha256, True) for record in run.records])
    assert made.no_image == {"two": {"absent": 1}}
    assert made.models["two"]["no_image"]["all"]["value"] == 0.25
    assert judgements.read_all(run) == [made]
