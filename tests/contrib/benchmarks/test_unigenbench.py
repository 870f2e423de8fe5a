"""UniGenBench++: prompts in both languages, answers as eval_common.py (49d0bce) reads them, and its shares.

eval_common.py made the same texts of 2,399 published prompts, and the same shares of 4,000 answers of parts as those
below, of which it could not read 3,057.
"""

import csv
import hashlib
import json

import pytest

from tests.expectations import names
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import unigenbench as unigenbench_prompts
from winobench.contrib.benchmarks.rubrics import unigenbench
from winobench.generation.judged import summarise
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Score
from winobench.rubrics.named_rubrics import choose
from winobench.runs.requests import InputImage, Response

(RUBRIC,) = unigenbench.RUBRICS
IMAGE = InputImage("a.png", "0" * 64)
ENGLISH = {
    "Primary Categories": "Design",
    "Testpoints": ["Style", "Attribute - Color", "Attribute - Color"],
    "Testpoint Description": ["ink {x}", "a red cat", 'a "blue" dog'],
}
CHINESE = {"一级垂类": "设计", "考点": ["属性-数量", "世界知识"], "考点对应描述": ["两只熊猫", "金字塔"]}


def write(path, language, *cells):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("index", f"prompt_{language}", f"sub_dims_{language}"))
        writer.writerows((number, f"Prompt {number}, {{y}}", cell) for number, cell in enumerate(cells))
    return path


def test_prompts_of_both_languages(tmp_path):
    # A comma is missing as in prompt 509 of the published file.
    broken = json.dumps(ENGLISH).replace('"Style", ', '"Style" ')
    english = read_prompts(f"unigenbench:{write(tmp_path / 'en.csv', 'en', json.dumps(ENGLISH), broken)}")
    chinese = read_prompts(f"unigenbench:{write(tmp_path / 'zh.csv', 'zh', json.dumps(CHINESE))}")
    assert [prompt.category for prompt in english + chinese] == ["Design", "Design", "设计"]
    assert english[0].content == english[1].content
    assert english[0].content["points"] == ENGLISH["Testpoints"]
    assert choose(None, english) is choose(None, chinese) is RUBRIC
    others = ({"unigenbench": "fr"}, {"unigenbench": []}, None, {**english[0].content, "points": ["Style"]})
    assert not any(map(unigenbench_prompts.has_points, others))
    assert len(unigenbench_prompts.NAMES) == 2 * 27


@pytest.mark.parametrize(
    "change",
    [
        ('"Style"', '"Styles"'),
        ('["ink {x}", ', "["),
        ('"Testpoints"', '"Points"'),
        ("}", ""),
        ('"a red cat"', "5"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path, change):
    cell = json.dumps(ENGLISH)
    assert change[0] in cell
    path = write(tmp_path / "en.csv", "en", cell, cell[::-1].replace(change[0][::-1], change[1][::-1], 1)[::-1])
    with pytest.raises(InputError, match=names("line 3")):
        read_prompts(f"unigenbench:{path}")
    path.write_text(path.read_text().replace("\n1,", "\n0,"))
    with pytest.raises(InputError, match=names("line 3")):
        read_prompts(f"unigenbench:{path}")


@pytest.mark.parametrize(("language", "digest"), [("en", "95aa299874679cb2"), ("zh", "50087ed3846866b5")])
def test_the_judge_reads_the_published_text(language, digest):
    """SHA-256 of what build_system_prompt makes of the same prompt."""
    fields = {
        "en": (ENGLISH["Testpoints"], ENGLISH["Testpoint Description"]),
        "zh": (CHINESE["考点"], CHINESE["考点对应描述"]),
    }
    points, descriptions = fields[language]
    content = {"unigenbench": language, "points": points, "descriptions": descriptions}
    (request,) = RUBRIC.requests(Prompt("0", "Prompt 0, {y}", "", content), IMAGE, "picture_text")
    assert hashlib.sha256(request.question.encode()).hexdigest()[:16] == digest


def answer(analysis, score):
    return f"<description>\n<analysis> {analysis}</analysis>\n<score>{score}\n</score></description>"


def read(text, published):
    content = {"unigenbench": "zh", "points": CHINESE["考点"], "descriptions": CHINESE["考点对应描述"]}
    scores = [*RUBRIC.scores(Prompt("0", "a", "", content), [Response(text=text)], "picture_text", published)]
    (unread,) = (score.value for score in scores if score.metric == "unread")
    values = {score.group: score.value for score in scores if score.metric == "accuracy"}
    assert not (unread and values)
    return None if unread else [values.pop("Attribute"), values["Attribute - Quantity"], values.pop("World Knowledge")]


@pytest.mark.parametrize(
    ("text", "published", "other"),
    [
        (answer('["two", "none"]', "[1, 0]"), [1, 1, 0], [1, 1, 0]),
        (answer("['it\\'s', \"\\d\"]", "(0, 1.0)"), [0, 0, 1], [0, 0, 1]),
        (answer('["a", "b"]', '["1", 0.5]'), [0, 0, 0], [0, 0, 0]),
        (answer('["a", "b"]', "[0, 1]") + answer('["a", "b"]', "[1, 1]"), [0, 0, 1], [0, 0, 1]),
        # Forms that the published code does not read.
        (answer("two pandas", "[1, 0]"), None, [1, 1, 0]),
        (answer('["a"]', "[1, 0]"), None, [1, 1, 0]),
        (answer('["a", "b"]', "1, 0"), [1, 1, 0], [1, 1, 0]),
        (answer('["a", None]', "[1, 0]"), None, [1, 1, 0]),
        ('```json\n{"analysis": ["a", "b"], "score": [1, 0]}\n```', None, [1, 1, 0]),
        ("**Score:** [0, 1]", None, [0, 0, 1]),
        (answer('["a", "b"]', "[True, 0]"), None, None),
        (answer('["a", "b"]', "[1]"), None, None),
        (answer('["a", "b"]', "[1e999, 0]"), None, None),
        (answer('["a", "b"]', "{1, 0}"), None, None),
        (answer('["a", "b"]', "5"), None, None),
        ("score: [2, 1]", None, None),
        ("score: [1, 1], score: [1, 0]", None, None),
        ("I'm sorry, I can't help with that.", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_answers_are_read(text, published, other):
    assert (read(text, True), read(text, False)) == (published, other)


def test_shares_of_points_as_published():
    """By hand: a share counts points, not images. `ALL` is the mean of ten shares, as FLUX.1-dev's published 59.39."""
    points = [*dict.fromkeys(unigenbench_prompts.NAMES.values())]
    content = {"unigenbench": "en", "points": points, "descriptions": points}
    prompt = Prompt("0", "a", "", content)

    def shares(*lists):
        texts = [answer(["x"] * len(points), marks) for marks in lists]
        scores = [[*RUBRIC.scores(prompt, [Response(text=text)], "picture_text")] for text in texts]
        return summarise([(f"text {n}", of_image) for n, of_image in enumerate(scores)], RUBRIC)["accuracy"]

    first = [int(point.startswith(("Attribute", "Style"))) for point in points]
    rows = shares(first, [0] * len(points), [1] * 5 + [0] * 22)
    assert (rows["Attribute"]["value"], rows["Attribute"]["n"]) == (pytest.approx(6 / 18), 18)
    assert (rows["Style"]["value"], rows["Style"]["n"]) == (pytest.approx(1 / 3), 3)
    assert rows["Relationship - Inclusion"]["value"] == pytest.approx(1 / 3)
    flux = dict(
        zip(unigenbench._PRIMARY, (64.97, 43.56, 65.28, 70.52, 61.41, 60.16, 85.92, 85.10, 32.18, 24.77), strict=True)
    )
    images = [(group, [Score("accuracy", group, value / 100)]) for group, value in flux.items()]
    assert summarise(images, RUBRIC)["accuracy"][ALL]["value"] == pytest.approx(0.59387, abs=1e-12)
    assert ALL not in summarise(images[1:], RUBRIC)["accuracy"]
