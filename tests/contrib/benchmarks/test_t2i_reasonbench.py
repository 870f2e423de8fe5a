"""T2I-ReasonBench: prompts of four groups, a conversation about each image, and scores as published (efc1d20).

eval_scientific.py's extract_json and means gave the same values for 20,000 answers of parts as those below. The texts
of all 2,000 questions were equal.
"""

import json
import shutil

import pytest

from tests.expectations import names
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import t2i_reasonbench as reasonbench_prompts
from winobench.contrib.benchmarks.rubrics import t2i_reasonbench
from winobench.generation.judged import summarise
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL, Score
from winobench.rubrics.named_rubrics import choose
from winobench.runs.requests import ImageText, ImageTurn, InputImage, Response, Turn

(RUBRIC,) = t2i_reasonbench.RUBRICS
IMAGE = InputImage("a.png", "0" * 64)
QUESTIONS = {"q1": "Is it {} there?", "c1": "1: Clear; 0.5: Partly; 0: No", "q2": "Isn't it?", "c2": "1: Yes. 0: No"}


def write(folder):
    for part in ("prompts", "deepseek_evaluation_qs"):
        (folder / part).mkdir(parents=True)
    for group, (file, weights) in reasonbench_prompts.PARTS.items():
        rows = [{"id": number, "prompt": f"{group} {number}", "tag": "x"} for number in (2, 1)]
        (folder / "prompts" / f"{group}.json").write_text(json.dumps(rows))
        parts = {part: QUESTIONS for part in (*weights, "quality_evaluation")}
        rows = [{"id": number, "image_content": "y", **parts} for number in (1, 2)]
        (folder / "deepseek_evaluation_qs" / f"{file}.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("reasonbench") / "data")


def test_prompts_of_four_groups(folder):
    prompts = read_prompts(f"t2i_reasonbench:{folder}")
    assert [prompt.id for prompt in prompts[:3]] == [
        *("idiom_interpretation-0002", "idiom_interpretation-0001", "textual_image_design-0002")
    ]
    assert choose(None, prompts) is RUBRIC
    for content in (None, {}, {"t2i_reasonbench": []}, {"t2i_reasonbench": "entity_reasoning"}):
        assert not reasonbench_prompts.has_questions(content)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("prompts/entity_reasoning.json", '"id": 2', '"id": 3', "id 2"),
        ("prompts/entity_reasoning.json", '"id": 2', '"id": 1', "repeats the id 1"),
        ("prompts/entity_reasoning.json", '"id": 2', '"id": "2"', "entry 1"),
        ("prompts/entity_reasoning.json", '"prompt"', '"prompts"', "id 2"),
        ("deepseek_evaluation_qs/evaluation_entity.json", '"other_details', '"details', "evaluation_entity.json"),
        ("deepseek_evaluation_qs/evaluation_entity.json", "[", "{", "evaluation_entity.json"),
    ],
)
def test_a_damaged_set_is_refused(tmp_path, folder, file, old, new, said):
    copy = shutil.copytree(folder, tmp_path / "copy")
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=names(said)):
        read_prompts(f"t2i_reasonbench:{copy}")
    (copy / file).unlink()
    with pytest.raises(InputError, match=names(file.rpartition("/")[2])):
        read_prompts(f"t2i_reasonbench:{copy}")


def test_questions_follow_a_description(folder):
    entity = next(
        prompt for prompt in read_prompts(f"t2i_reasonbench:{folder}") if prompt.category == "entity_reasoning"
    )
    assert [*RUBRIC.requests(entity, IMAGE, "picture_turn")] == [ImageText(IMAGE, "Describe this image.", 1000)]
    more = [*RUBRIC.follow_ups(entity, IMAGE, "picture_turn", [Response(text="A cat.")])]
    before = (Turn("user", "Describe this image."), Turn("assistant", "A cat."))
    assert {type(request) for request in more} == {ImageTurn}
    assert [request.before for request in more] == [before] * 3
    # The dictionary in Python's own form, as the published f-string writes it.
    assert f"Here are the questions and criteria: {QUESTIONS}\nCarefully" in more[0].question
    assert more[0].question.endswith('{"reason": [your detailed reasoning], "score": [s1,s2, ...]"}')


def prompt_of(group):
    parts = {part: QUESTIONS for part in (*reasonbench_prompts.PARTS[group][1], "quality_evaluation")}
    return Prompt("1", "a", group, {"t2i_reasonbench": group, **parts})


def test_accuracy_and_quality_as_published():
    """0.7 and 0.3 of two parts' means, or one part's mean."""
    texts = ["A cat.", '{"score": [1, 0.5]}', '{"score": [0, 0.5]}', '{"score": [0.5, 0.5]}']

    def scores(group, texts):
        found = RUBRIC.scores(prompt_of(group), [Response(text=text) for text in texts], "picture_turn")
        return {score.metric: score.value for score in found}

    assert scores("entity_reasoning", texts) == {"unread": 0, "accuracy": pytest.approx(0.6, abs=1e-12), "quality": 0.5}
    assert scores("idiom_interpretation", texts[:3]) == {"unread": 0, "accuracy": 0.75, "quality": 0.25}
    assert scores("entity_reasoning", [*texts[:3], "no"]) == {"unread": pytest.approx(1 / 3)}
    rows = [(str(n), [Score("accuracy", group, n / 10)]) for n, group in enumerate(reasonbench_prompts.PARTS)]
    assert summarise(rows, RUBRIC)["accuracy"][ALL]["value"] == pytest.approx(0.15, abs=1e-12)
    assert ALL not in summarise(rows[1:], RUBRIC)["accuracy"]


@pytest.mark.parametrize(
    ("text", "published", "other"),
    [
        ('{"reason": ["a", "b"], "score": [1, 0.5]}', 0.75, 0.75),
        ('```json\n{\n"reason": "x",\n"score": [0, 0.5]\n}\n```', 0.25, 0.25),
        ('{"score": ["1", "0"]}', 0.5, 0.5),
        # Lists that the published code reads as they are.
        ('{"score": [1]}', 1.0, None),
        ('{"score": [1, 2]}', 1.5, None),
        ('{"score": [1, true]}', 1.0, None),
        ('{"score": [1, 1]} {"score": [0, 0]}', 1.0, None),
        # Forms that it does not read.
        ('{"reason": "{x}", "score": [1, 0]}', None, 0.5),
        ('{"reason": [], "score": [1, 0]"}', None, 0.5),
        ("**Score:** [1, 1/2]", None, 0.75),
        ("<score>[0.5, 0]</score>", None, 0.25),
        ('{"score": [1, NaN]}', None, None),
        ('{"score": []}', None, None),
        ('{"score": 1}', None, None),
        ('{"scores": {"q1": 1}}', None, None),
        ("I cannot judge this image.", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_lists_of_scores_are_read(text, published, other):
    for is_published, expected in ((True, published), (False, other)):
        answers = [Response(text="A cat."), Response(text=text), Response(text='{"score": [0, 0]}')]
        found = RUBRIC.scores(prompt_of("idiom_interpretation"), answers, "picture_turn", is_published)
        values = {score.metric: score.value for score in found}
        assert values.get("accuracy") == (None if expected is None else pytest.approx(expected, abs=1e-12))
        assert values["unread"] == (0.5 if expected is None else 0)
