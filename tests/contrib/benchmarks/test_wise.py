"""WISE: prompts of both editions, marks as the published code reads them, and the sum of categories with weights.

gpt_eval.py, Calculate.py, vllm_eval.py and calculate_verified.py of PKU-YuanGroup/WISE eb51174 read 20,000 texts of
parts as those below, with the same marks. The texts of all 2,000 questions were equal.
"""

import hashlib
import json

import pytest

from tests.expectations import names
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import wise as wise_prompts
from winobench.contrib.benchmarks.rubrics import wise
from winobench.generation.judged import summarise
from winobench.prompts.named_sets import read_prompts
from winobench.rubrics.base import ALL, Score
from winobench.rubrics.named_rubrics import choose
from winobench.runs.requests import InputImage, Response

MARKS, VERDICT = wise.RUBRICS
IMAGE = InputImage("a.png", "0" * 64)
FILES = ("cultural_common_sense", "spatio-temporal_reasoning", "natural_science")
IDS = {
    "": ((1, 400), (401, 567, 568, 700), (701, 801, 900, 901, 1000)),
    "_verified": ((400,), (520, 521), (641, 761, 881)),
}


DIGESTS = {"legacy": "1034e394de55d899", "verified": "c9b9e5e189408801"}


def write(folder, end="", change=None):
    folder.mkdir(exist_ok=True)
    for file, numbers in zip(FILES, IDS[end], strict=True):
        rows = [
            {"Prompt": f"{{prompt}} {n}", "Explanation": f"é {n}", "Category": "x", "Subcategory": "y", "prompt_id": n}
            for n in numbers
        ]
        (folder / f"{file}{end}.json").write_text(json.dumps(rows))
    if change:
        path = folder / f"{change[0]}.json"
        path.write_text(path.read_text().replace(*change[1:], 1))
    return folder


def test_categories_are_those_of_the_ids(tmp_path):
    prompts = read_prompts(f"wise:{write(tmp_path / 'legacy')}")
    assert [(prompt.id, prompt.category) for prompt in prompts] == [
        *(("1", "culture"), ("400", "culture"), ("401", "time"), ("567", "time"), ("568", "space"), ("700", "space")),
        *(("701", "biology"), ("801", "physics"), ("900", "physics"), ("901", "chemistry"), ("1000", "chemistry")),
    ]
    assert choose(None, prompts) is MARKS
    verified = read_prompts(f"wise:{write(tmp_path / 'verified', '_verified')}")
    assert [p.category for p in verified] == ["culture", "time", "space", "biology", "physics", "chemistry"]
    assert choose(None, verified) is VERDICT
    assert not any(MARKS.fits(prompt) for prompt in verified)
    for content in (
        None,
        {},
        {"wise": "legacy"},
        {"wise": [1], "explanation": ""},
        {"wise": "older", "explanation": ""},
    ):
        assert wise_prompts.edition(wise_prompts.Prompt("1", "a", "culture", content)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("natural_science", '"prompt_id": 701', '"prompt_id": 1'), ["repeats", "prompt_id 1"]),
        (("natural_science", '"prompt_id": 701', '"prompt_id": true'), ["prompt 1", "True"]),
        (("natural_science", '"prompt_id": 701', '"prompt_id": 1001'), ["1001"]),
        (("natural_science", '"Explanation"', '"Explained"'), ["natural_science.json", "Explanation"]),
        (("natural_science", "[", "5 ["), ["natural_science.json"]),
        (("natural_science", '"Prompt": "', '"Prompt": " ", "p": "'), ["Prompt"]),
    ],
)
def test_a_damaged_set_is_refused(tmp_path, change, said):
    with pytest.raises(InputError, match=names(*said)):
        read_prompts(f"wise:{write(tmp_path / 'data', change=change)}")


def test_a_folder_of_no_or_both_editions_is_refused(tmp_path):
    for said in ("cultural_common_sense", "two editions"):
        with pytest.raises(InputError, match=names(said)):
            read_prompts(f"wise:{tmp_path}")
        write(tmp_path)
        write(tmp_path, "_verified")
    (tmp_path / "natural_science.json").unlink()
    for file in FILES:
        (tmp_path / f"{file}_verified.json").unlink()
    with pytest.raises(InputError, match=names("natural_science.json")):
        read_prompts(f"wise:{tmp_path}")


def test_the_judge_reads_the_published_text(tmp_path):
    """SHA-256 of the published texts for the prompt "a {b}" with the explanation "{prompt} é"."""
    for rubric, edition, digest in ((MARKS, "legacy", "8dda15c96b47d1d3"), (VERDICT, "verified", "a41db9969f6b2eac")):
        content = {"wise": edition, "explanation": "{prompt} é", "subcategory": ""}
        (request,) = rubric.requests(wise_prompts.Prompt("1", "a {b}", "culture", content), IMAGE, "picture_text")
        assert hashlib.sha256(request.question.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize(("rubric", "edition"), [(MARKS, "legacy"), (VERDICT, "verified")])
def test_the_judge_reads_the_published_system_prompt_before(rubric, edition):
    """SHA-256 of the system prompts of gpt_eval.py and vllm_eval.py. Judges without system turns read the rest."""
    prompt = wise_prompts.Prompt("1", "a", "culture", {"wise": edition, "explanation": "b", "subcategory": ""})
    (request,), (plain,) = (rubric.requests(prompt, IMAGE, kind) for kind in rubric.kinds)
    ((role, text),) = ((turn.role, turn.text) for turn in request.before)
    assert (role, hashlib.sha256(text.encode()).hexdigest()[:16]) == ("system", DIGESTS[edition])
    assert rubric.kinds[0] == request.kind == "picture_turn"
    assert (plain.kind, plain.question, plain.max_tokens) == ("picture_text", request.question, request.max_tokens)
    assert text in rubric.wordings[request.kind]
    assert text not in rubric.wordings[plain.kind]
    assert rubric.version == 2  # the first one never sent it


def read(rubric, text, published):
    content = {"wise": "legacy", "explanation": "", "subcategory": ""}
    prompt = wise_prompts.Prompt("1", "a", "culture", content)
    scores = [*rubric.scores(prompt, [Response(text=text)], "picture_text", published)]
    (unread,) = (score.value for score in scores if score.metric == "unread")
    values = [score.value for score in scores if score.metric == "wiscore"]
    assert len(values) == 1 - unread
    return values[0] if values else None


LABELLED = "Consistency: {}\nRealism: {}\nAesthetic Quality: {}"


@pytest.mark.parametrize(
    ("text", "published", "other"),
    [
        (LABELLED.format(2, 1, 0), 0.8, 0.8),
        (LABELLED.format(0, 0, 1), 0.05, 0.05),
        ("**Consistency**: 1\n**realism** 2\n**Aesthetic Quality**:2", 0.65, 0.65),
        ("2\n1\n0", 0.8, 0.8),
        # Forms that the published code does not read, or reads in another way.
        ("**Consistency:** 1\n**Realism:** 2\n**Aesthetic Quality:** 2", None, 0.65),
        ('```json\n{"consistency": 1, "realism": 2, "aesthetic_quality": 2}\n```', None, 0.65),
        ("| Consistency | 1/2 |\n| Realism | 2/2 |\n| Aesthetic Quality | 2 out of 2 |", None, 0.65),
        (LABELLED.format(3, 2, 1), 1.3, None),
        (LABELLED.format(12, 2, 1), 0.6, None),
        (LABELLED.format(1.5, 2, 1), 0.6, None),
        (LABELLED.format("1/10", 2, 1), 0.6, None),
        (LABELLED.format(2, 2, 1) + "\nRealism: 0", 0.75, None),
        ("2\n1\n0\n1", 0.8, None),
        ("Consistency: 2\nRealism: 1", None, None),
        ("I'm sorry, but I can't rate this image.", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_three_marks_are_read(text, published, other):
    for found, expected in ((read(MARKS, text, True), published), (read(MARKS, text, False), other)):
        assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


@pytest.mark.parametrize(
    ("text", "published", "other"),
    [
        ("Score: 1", 1.0, 1.0),
        ("**Score** 0", 0.0, 0.0),
        ("<think>Score: 0</think>\n\nScore: 1", 1.0, 1.0),
        ("1", 1.0, 1.0),
        ("Seen.\n 0 \n", 0.0, 0.0),
        ("**Score:** 1", None, 1.0),
        ('{"score": 1}', None, 1.0),
        ("Score: 1/1", 1.0, 1.0),
        ("Score: 10", None, None),
        ("Score: 2", None, None),
        ("Score: 0\nScore: 1", 0.0, None),
        ("0\n1", None, None),
        ("", None, None),
    ],
)
def test_a_verdict_is_read(text, published, other):
    assert (read(VERDICT, text, True), read(VERDICT, text, False)) == (published, other)


def test_the_overall_value_has_the_published_weights():
    """Numbers of Calculate.py and calculate_verified.py, unrounded, on values that a formula gives."""
    categories = ("culture", "time", "space", "biology", "physics", "chemistry")
    images = [
        (f"{category} {n}", [Score("wiscore", category, (3 * place + 7 * n) % 11 / 10)])
        for place, category in enumerate(categories)
        for n in range(3 + place)
    ]
    for rubric, overall in ((MARKS, 0.42558119047619053), (VERDICT, 0.4236047619047619)):
        entry = summarise(images, rubric)["wiscore"][ALL]
        assert entry["value"] == pytest.approx(overall, abs=1e-12)
        assert (entry["n"], entry["low"] < overall < entry["high"]) == (33, True)
        assert ALL not in summarise(images[:-8], rubric)["wiscore"]


def test_published_judges():
    published = ((MARKS, ["gpt-4o-2024-05-13", "openai:gpt-4o-2024-05-13"]), (VERDICT, ["Qwen/Qwen3.5-35B-A3B"]))
    for rubric, judges in published:
        assert all(map(rubric.is_published, judges))
        assert not any(map(rubric.is_published, ["gpt-4o", "openai:gpt-4o-mini", "qwen3.5-35b", "gpt-4o-2024-08-06"]))
