"""ImgEdit: its file of edits, and marks and means as the published code reads them.

step1_get_avgscore.py of PKU-YuanGroup/ImgEdit 547185d read 100,000 texts of parts as those below, with the same scores.
"""

import hashlib
import io
import json
import math

import PIL.Image
import pytest

from tests.expectations import names
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import imgedit as imgedit_prompts
from winobench.contrib.benchmarks.rubrics import imgedit
from winobench.generation.judged import summarise
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import ALL
from winobench.rubrics.named_rubrics import choose
from winobench.runs.requests import InputImage, Response

(RUBRIC,) = imgedit.RUBRICS
SHA = "0" * 64
EDIT = {"id": "daily object/é.jpg", "prompt": "Replace the {boot} with a mug. ", "edit_type": "replace"}


def write(folder, edits, name="singleturn.json"):
    (folder / "daily object").mkdir(parents=True)
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (2, 3)).save(buffer, "JPEG")
    (folder / "daily object" / "é.jpg").write_bytes(buffer.getvalue())
    (folder / name).write_text(edits if isinstance(edits, str) else json.dumps(edits))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["singleturn.json", "basic_edit.json"])
def test_edits_are_read(tmp_path, name):
    content = write(tmp_path / "a", {"628": EDIT, "7": {**EDIT, "edit_type": "add"}}, name)
    prompts = read_prompts(f"imgedit:{tmp_path / 'a'}")
    assert [(prompt.id, prompt.category) for prompt in prompts] == [("628", "replace"), ("7", "add")]
    assert prompts[0].text == "Replace the {boot} with a mug."
    assert prompts[0].content == {
        "imgedit": "replace",
        "instruction": EDIT["prompt"],
        "source_image": "daily object/é.jpg",
        "source_sha256": hashlib.sha256(content).hexdigest(),
    }
    assert prompts[0].source() == content
    assert choose(None, prompts) is RUBRIC


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([EDIT], ["singleturn.json", "list"]),
        ('{"1": {}, "1": {}}', ["singleturn.json", "1"]),
        ({"1": EDIT, "2": 5}, ["2", "id"]),
        ({"1": {**EDIT, "prompt": " "}}, ["1", "prompt"]),
        ({"1": {**EDIT, "edit_type": "alter"}}, ["alter", "adjust"]),
        ({"1": {**EDIT, "edit_type": ["add"]}}, ["edit_type"]),
        ({"1": {**EDIT, "id": "../daily object/é.jpg"}}, ["outside"]),
        ({"1": {**EDIT, "id": "/daily object/é.jpg"}}, ["outside"]),
        ({"1": {**EDIT, "id": "absent.jpg"}}, ["absent.jpg", "No such file"]),
        ({"1": {**EDIT, "id": "daily object"}}, ["daily object"]),
        ({"1": {**EDIT, "id": "singleturn.json"}}, ["singleturn.json", "not an image"]),
    ],
)
def test_a_damaged_set_is_refused(tmp_path, edits, said):
    write(tmp_path / "a", edits)
    with pytest.raises(InputError, match=names(*said)):
        read_prompts(f"imgedit:{tmp_path / 'a'}")


def test_a_folder_without_the_set_is_refused(tmp_path):
    with pytest.raises(InputError, match=names("singleturn.json")):
        read_prompts(f"imgedit:{tmp_path}")


def edit(kind="replace"):
    content = {"imgedit": kind, "instruction": "a {b} {}", "source_image": "a.png", "source_sha256": SHA}
    return Prompt("1", "a {b} {}", kind, content)


def test_the_judge_reads_the_published_texts():
    """SHA-256 of all texts that call_gpt of basic_bench.py makes for the instruction "a {b} {}"."""
    source, result = InputImage("a.png", SHA), InputImage("b.png", SHA)
    digest = hashlib.sha256()
    for kind in sorted(imgedit_prompts.TYPES):
        (request,) = RUBRIC.requests(edit(kind), (source, result), "pictures_text")
        assert (request.image, request.more_images) == (source, (result,))
        digest.update(request.question.encode())
    assert digest.hexdigest()[:16] == "6fad24189145a416"
    for change in ({"imgedit": "alter"}, {"imgedit": []}, {"instruction": None}, {"source_sha256": SHA[1:]}):
        assert not RUBRIC.fits(Prompt("1", "a", "", {**edit().content, **change}))


MARKS = "Brief reasoning: {}\nPrompt Compliance: {}\nVisual Naturalness: {}\nPhysical & Detail Integrity: {}"


@pytest.mark.parametrize(
    ("text", "published", "other"),
    [
        (MARKS.format("The mug fits.", 4, 3, 3), 3.33, 3.33),
        (MARKS.format("Good: shadows fit.", 5, 5, 5), 5, 5),
        (MARKS.format("x", "**4**", 3, 2), 2.5, 3),
        ("**Prompt Compliance:** 4\n- Visual Naturalness: 2\n### physical & detail integrity: 1", 1.5, 2.33),
        ('{"prompt_compliance": 4, "Visual Naturalness": 2, "Physical & Detail Integrity": 1}', None, 2.33),
        (f"<think>\n{MARKS.format('x', 1, 1, 1)}\n</think>\n{MARKS.format('x', 4, 3, 3)}", 2.17, 3.33),
        (MARKS.format("x", "4/5", 2, "1.0"), 2, 2.33),
        (MARKS.format("x", "4/10", 2, 1), 1.5, None),
        (MARKS.format("x", 4, 2, 1) + "\nPrompt Compliance: 5", 3, None),
        (MARKS.format(9, 4, 3, 3), 4.75, 3.33),
        (MARKS.format("x", 6, 3, 3), 4, None),
        (MARKS.format("x", 0, 0, 0), 0, None),
        (MARKS.format("x", 4.5, 3, 3), 3, None),
        ("Prompt Compliance: 4\nVisual Naturalness: 3", 3.5, None),
        (MARKS.format("x", 4, 3, 2).replace(": ", ":"), None, 3),
        ("Style Fidelity: 4\nContent Preservation: 3\nRendering Quality: 2", 3, None),
        ("Marks: ٣", 3, None),
        ("Marks: ²", None, None),
        ("I'm sorry, but I can't help with that.", None, None),
        ("", None, None),
        (None, None, None),
    ],
)
def test_marks_are_read(text, published, other):
    for is_published, expected in ((True, published), (False, other)):
        scores = {s.metric: s.value for s in RUBRIC.scores(edit(), [Response(text=text)], "", is_published)}
        assert scores.pop("unread") == (expected is None)
        assert scores == ({} if expected is None else {"score": pytest.approx(expected / 5, abs=1e-12)})


FORMS = (MARKS, MARKS, "Prompt Compliance: {1}\r\nVisual Naturalness: {2}", "**Marks**: {3}", MARKS, "Marks: {1}, {2}")


def recorded():
    """Invented answers: (key, type, text)."""
    for place, kind in enumerate(imgedit_prompts.TYPES):
        for n in range(4 + place % 4):
            marks = ((3 * place + n) % 5 + 1, (place + 2 * n) % 5 + 1, (n + 2) % 5 + 1)
            yield f"{place}-{n}", kind, FORMS[(place + n) % 6].format("Fine: " if n % 2 else "Fine.", *marks)


def test_means_are_those_of_the_published_code():
    """Numbers of step1_get_avgscore.py and step2_typescore.py."""
    images = [(key, [*RUBRIC.scores(edit(kind), [Response(text=text)], "", True)]) for key, kind, text in recorded()]
    values = {key: score.value * 5 for key, scores in images for score in scores if score.metric == "score"}
    assert math.fsum(values.values()) == pytest.approx(SUM_OF_IMAGES, abs=1e-12)
    assert len(images) - len(values) == NUM_UNREAD
    results = summarise(images, RUBRIC)["score"]
    assert {kind: round(5 * results[kind]["value"], 2) for kind in imgedit_prompts.TYPES} == OF_TYPES
    assert results[ALL]["value"] == pytest.approx(MEAN_OF_TYPES / 5, abs=1e-12)


SUM_OF_IMAGES = 125.34
NUM_UNREAD = 8
OF_TYPES = {
    **{"add": 2.42, "adjust": 3.62, "extract": 2.83, "replace": 3.2, "remove": 3.11},
    **{"background": 3.08, "style": 2.53, "compose": 3.61, "action": 3.94},
}
MEAN_OF_TYPES = 3.150481481481482  # of the means before step2_typescore.py rounds them


def test_published_judges():
    assert all(map(RUBRIC.is_published, ["openai:gpt-4o", "gpt-4o-2024-08-06"]))
    assert not any(map(RUBRIC.is_published, ["openai:gpt-4.1", "gpt-4o-mini", "qwen2.5-vl-7b"]))
