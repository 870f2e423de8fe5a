"""OneIG-Bench's reasoning, style and diversity, and the overall value.

The expected numbers are by hand, as reasoning_score.py, style_score.py and diversity_score.py of 41b4983 take means.
"""

import json
import math
import pathlib
import re
import sys
import types

import numpy as np
import pytest
from PIL import Image

from launch import judged_images
from tests import launching
from tests.contrib.benchmarks import question_layouts as layouts
from tests.expectations import names, raises
from tests.generation import fakes
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.rubrics import oneig_dimensions
from winobench.generation.judged import judge_images, overall
from winobench.prompts.named_sets import read_prompts
from winobench.responders.matching import Matcher
from winobench.rubrics.named_rubrics import RUBRICS
from winobench.runs.requests import ImageMatch, ImageOptions, ImageSimilarity, ImageText, InputImage, Response

REASONING, STYLE, DIVERSITY = oneig_dimensions.RUBRICS
IMAGES = tuple(InputImage(f"{n}.png", f"{n}" * 64) for n in range(4))


def write(folder, answers=(("000", "Everest, K2."), ("001", "2 > 1."))):
    rows = [
        *layouts.ONEIG_ROWS,
        ("Knowledge_Reasoning", "000", "Draw the peaks.", "NP", "short", "geography"),
        ("Knowledge_Reasoning", "001", "Draw two.", "T, P", "long", "mathematics"),
    ]
    layouts.write_oneig_texts(layouts.write_oneig(folder, rows=rows))
    (folder / "scripts" / "reasoning").mkdir()
    (folder / "scripts" / "reasoning" / "gt_answer.json").write_text(json.dumps(dict(answers)))
    return folder


@pytest.fixture
def prompts(tmp_path):
    return read_prompts(f"oneig:{write(tmp_path / 'oneig')}")


def test_prompts_of_each_dimension(prompts):
    fitting = {rubric.name: [p.id for p in prompts if rubric.fits(p)] for rubric in oneig_dimensions.RUBRICS}
    assert fitting == {
        "oneig_reasoning": ["reasoning_000", "reasoning_001"],
        "oneig_style": ["anime_000"],
        "oneig_diversity": [prompt.id for prompt in prompts],
    }
    assert len(prompts) == 7
    texts = {p.id: [request.texts for request in REASONING.requests(p, IMAGES[:2], "")] for p in prompts[-2:]}
    assert texts == {"reasoning_000": [("Everest, K2.",)] * 2, "reasoning_001": [("2 > 1.",)] * 2}
    style = next(prompt for prompt in prompts if STYLE.fits(prompt))
    assert [*STYLE.requests(style, IMAGES[:1], "")] == [ImageMatch(IMAGES[0], ("chibi",))]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([("000", "a")], ["'001'", "gt_answer.json"]),
        ([("000", "a"), ("001", "b"), ("002", "c")], ["'002'", "OneIG-Bench.csv"]),
        ([("000", "a"), ("001", " ")], ["'001'", "gt_answer.json"]),
        ([("000", "a"), ("001", 5)], ["'001'", "gt_answer.json"]),
    ],
)
def test_damaged_answers_are_refused(tmp_path, answers, said):
    with pytest.raises(InputError, match=names(*said)):
        read_prompts(f"oneig:{write(tmp_path / 'oneig', answers)}")


def found(rubric, prompt, *cosines):
    scores = rubric.scores(prompt, [Response(scores=values) for values in cosines], "")
    return {score.group: score.value for score in scores}


def test_values_as_published(prompts):
    """Means over a prompt's images or pairs. A style's cosine is at least 0."""
    answered, anime = prompts[-2], next(prompt for prompt in prompts if STYLE.fits(prompt))
    cosines = [(0.31,), (0.27,), (-0.02,), (0.4,)]
    assert found(REASONING, answered, *cosines) == pytest.approx({"all": 0.24, "geography": 0.24}, abs=1e-12)
    assert found(STYLE, anime, *cosines) == pytest.approx({"all": 0.245, "chibi": 0.245}, abs=1e-12)
    (request,) = DIVERSITY.requests(answered, IMAGES[:3], "")
    assert request == ImageSimilarity(IMAGES[:3])
    assert [*DIVERSITY.requests(answered, IMAGES[:1], "")] == []
    values = found(DIVERSITY, answered, (0.9, 0.6, 0.3))
    assert values == pytest.approx(dict.fromkeys(("all", "Knowledge_Reasoning", "short", "NP"), 0.4), abs=1e-12)
    for rubric in (REASONING, DIVERSITY):
        with raises("wrong-kind-of-model", "-7.5"):
            found(rubric, answered, (-7.5,))


class Judge:
    """Answers all kinds by the request's images alone."""

    kinds = frozenset({ImageMatch.kind, ImageSimilarity.kind, ImageText.kind, ImageOptions.kind})

    def fingerprint(self):
        return {"responder": "judge", "scorer": "contrastive"}

    def ask(self, requests):
        for number, request in enumerate(requests):
            if isinstance(request, ImageText):
                yield number, {"text": "Yes"}
            elif isinstance(request, ImageSimilarity):
                yield number, {"scores": [0.25] * math.comb(len(request.images), 2)}
            else:
                yield number, {"scores": [int(request.image.sha256[:2], 16) / 256]}

    def read(self, request, raw):
        return Response(text=raw.get("text"), scores=tuple(raw["scores"]) if "scores" in raw else None)


def test_the_overall_value_needs_five_dimensions(prompts, tmp_path, monkeypatch, capsys):
    run = fakes.draw(tmp_path / "run", "one", "two", prompts=prompts, seeds=(0, 1))
    judged = {}
    for name in ("oneig", "oneig_text", "oneig_reasoning", "oneig_style", "oneig_diversity"):
        assert overall(run, judged["oneig"]) == ({}, {}) if judged else True
        judged[name] = judge_images(run, Judge(), name="judge", rubric=name, progress=False)
        assert not judged[name].is_published
    metrics = {name: RUBRICS[name].joint[name] for name in judged}
    values, parts = overall(run, judged["oneig"])
    assert parts == {metric: judged[name] for name, metric in metrics.items()}
    for model in ("one", "two"):
        five = [judged[name].models[model][metric]["all"]["value"] for name, metric in metrics.items()]
        assert values[model] == pytest.approx(math.fsum(five) / 5, abs=1e-12)
        assert judged["oneig_diversity"].models[model]["diversity"]["all"] == {
            **{"value": 0.75, "n": 7, "too_few": True},
            **{end: judged["oneig_diversity"].models[model]["diversity"]["all"][end] for end in ("low", "high")},
        }
    assert values["one"] != values["two"]
    monkeypatch.setattr(judged_images, "_later", lambda model, how: Judge())
    monkeypatch.setattr(judged_images, "check", lambda *names: None)
    printed = []
    monkeypatch.setattr(judged_images.output, "print_json", printed.append)
    judged_images.judge([run], "judge", rubric="oneig_style")
    assert [judgement["overall"] for judgement in printed[0]["judgements"]] == [values]
    said = (
        f"overall, %: one {100 * values['one']:.1f}, two {100 * values['two']:.1f}, the mean of alignment by judge (pub"
    )
    assert said in capsys.readouterr().out
    published = judge_images(run, Judge(), name="qwen2.5-vl-7b", rubric="oneig", progress=False)
    assert overall(run, judged["oneig"])[1]["alignment"] == published


def test_one_image_of_each_prompt_has_no_diversity(prompts, tmp_path):
    run = fakes.draw(tmp_path / "run", prompts=prompts)
    with raises("no-content", "oneig_diversity", "--seeds"):
        judge_images(run, Judge(), name="judge", rubric="oneig_diversity", progress=False)


def test_the_published_encoder_of_diversity_plugs_in(prompts, tmp_path, monkeypatch):
    """The class of docs/howto/judge_images.md, with a small network in DreamSim's place: the mean colour."""

    class Tensor(np.ndarray):
        def detach(self):
            return self

        def numpy(self):
            return np.asarray(self)

    model = types.SimpleNamespace(embed=lambda pixels: pixels.mean((1, 2)).view(Tensor))
    package = types.SimpleNamespace(
        dreamsim=lambda pretrained, device: (model, lambda image: np.asarray(image, np.float64)[None])
    )
    monkeypatch.setitem(sys.modules, "dreamsim", package)
    page = pathlib.Path(__file__).resolve().parents[3] / "docs" / "howto" / "judge_images.md"
    (block,) = re.findall(r"```python\n(import dreamsim.*?)```", page.read_text(), re.DOTALL)
    exec(block, found := {})
    run = fakes.draw(tmp_path / "run", prompts=prompts, seeds=(0, 1))
    judged = judge_images(run, Matcher(found["DreamSim"]()), name="dreamsim", rubric="oneig_diversity", progress=False)
    first, second = (np.asarray(Image.open(run.path(run.records[place])))[0, 0].astype(float) for place in (0, 7))
    assert [run.records[place].number for place in (0, 7)] == [0, 0]
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    line = json.loads((run.folder / "judged" / "oneig_diversity-dreamsim" / "scores.jsonl").read_text().splitlines()[0])
    assert line["scores"][0]["value"] == pytest.approx(1 - cosine, abs=1e-12)
    assert judged.is_published


@pytest.mark.slow
def test_a_clip_judges_three_dimensions(tmp_path):
    """From published files to the numbers, by the command."""
    from tests.scorers import tiny_models

    prompts = read_prompts(f"oneig:{write(tmp_path / 'oneig')}")
    run = fakes.draw(tmp_path / "run", prompts=prompts, seeds=(0, 1, 2))
    clip = tiny_models.write_clip(tmp_path / "clip")
    for name, number in (("oneig_reasoning", 6), ("oneig_style", 3), ("oneig_diversity", 7)):
        status, out, err = launching.launch("launch.judge", run.folder, f"--model={clip}", f"--rubric={name}")
        assert status == 0, err
        assert f"{number} questions" in out
        assert "published: " in out
        assert "overall" not in out
