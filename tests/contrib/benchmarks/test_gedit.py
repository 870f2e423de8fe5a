"""GEdit-Bench: rows of its tables, marks as the published code reads them, and means by type and language.

stepfun-ai/Step1X-Edit 570eba6, GEdit-Bench: viescore read 100,000 texts of parts as those below, with the same marks.
"""

import hashlib
import io
import math

import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.expectations import names
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import gedit as gedit_prompts
from winobench.contrib.benchmarks.rubrics import gedit
from winobench.generation.judged import summarise
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt, digest
from winobench.rubrics.named_rubrics import choose
from winobench.runs.requests import InputImage, Response

(RUBRIC,) = gedit.RUBRICS
SHA = "0" * 64


def png(shade):
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (2, 3), (shade, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def row(key, language="en", kind="ps_human", instruction="Make him smile.", exists=True, image=b"", shade=1):
    return {
        "key": key,
        "task_type": kind,
        "instruction": instruction,
        "instruction_language": language,
        "input_image": None if image is None else {"bytes": image or png(shade), "path": "a.png"},
        "Intersection_exist": exists,
    }


def write(folder, *rows, name="train-00000.parquet"):
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows))
    if name.endswith(".parquet"):
        pq.write_table(table, folder / name)
    else:
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)


def test_rows_of_both_languages_are_read(tmp_path):
    write(tmp_path / "data", row("k"), row("é ü", "cn", instruction='移除 "秘制麻麻鱼" ', exists=False, shade=2))
    write(tmp_path / "data", row("k", "cn", shade=1), name="train-00001.parquet")
    prompts = read_prompts(f"gedit:{tmp_path}")
    assert [prompt.id for prompt in prompts] == ["ps_human-en-k", "ps_human-cn-é ü", "ps_human-cn-k"]
    assert {prompt.category for prompt in prompts} == {"ps_human"}
    assert choose(None, prompts) is RUBRIC
    assert all(map(RUBRIC.fits, prompts))
    assert prompts[1].text == '移除 "秘制麻麻鱼"'
    assert prompts[1].content == {
        "gedit": "ps_human",
        "language": "cn",
        "intersection": False,
        "instruction": '移除 "秘制麻麻鱼" ',
        "source_image": "fullset/ps_human/cn/é ü_SRCIMG.png",
        "source_sha256": hashlib.sha256(png(2)).hexdigest(),
    }
    assert [prompt.source() for prompt in prompts] == [png(1), png(2), png(1)]
    assert [prompt.id for prompt in read_prompts(f"gedit_cn:{tmp_path}")] == [prompt.id for prompt in prompts[1:]]
    assert [prompt.id for prompt in read_prompts(f"gedit_en:{tmp_path}")] == ["ps_human-en-k"]


def test_arrow_files_are_read(tmp_path):
    rows = [row("k"), row("l", "cn", shade=2)]
    write(tmp_path / "arrow", rows[0], name="data-00000-of-00002.arrow")
    write(tmp_path / "arrow", rows[1], name="data-00001-of-00002.arrow")
    write(tmp_path / "parquet", *rows)
    prompts, others = (read_prompts(f"gedit:{tmp_path / name}") for name in ("arrow", "parquet"))
    assert digest(prompts) == digest(others)
    assert [prompt.source() for prompt in prompts] == [png(1), png(2)]
    path = tmp_path / "arrow" / "data-00001-of-00002.arrow"
    for content in (b"", path.read_bytes()[:-200], b"PAR1" * 99):
        path.write_bytes(content)
        with pytest.raises(InputError, match=names(str(path))):
            read_prompts(f"gedit:{tmp_path / 'arrow'}")


def test_another_image_is_another_prompt(tmp_path):
    identities = set()
    for shade in (1, 2):
        write(tmp_path, row("k", shade=shade))
        identities.add(digest(read_prompts(f"gedit:{tmp_path}")))
    assert len(identities) == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("k", kind="ps_humans")], ["row 1", "ps_humans"]),
        ([row("k"), row("l", "zh")], ["row 2", "zh"]),
        ([row("k"), row("k")], ["row 2", "repeats", "k"]),
        ([row(" ")], ["row 1", "key"]),
        ([row("k", instruction=None)], ["instruction"]),
        ([row("k", exists=None)], ["Intersection_exist"]),
        ([row("k", image=None)], ["row 1", "image"]),
        ([row("k", image=b"no image")], ["row 1", "not an image"]),
        ([{"key": "k"}], ["task_type"]),
    ],
)
def test_a_damaged_set_is_refused(tmp_path, rows, said):
    write(tmp_path, *rows)
    with pytest.raises(InputError, match=names(*said)):
        read_prompts(f"gedit:{tmp_path}")


def test_a_folder_without_the_set_is_refused(tmp_path):
    with pytest.raises(InputError, match=names("no Arrow or Parquet file", "GEdit-Bench")):
        read_prompts(f"gedit:{tmp_path}")
    (tmp_path / "a.parquet").write_bytes(b"not")
    with pytest.raises(InputError, match=names("a.parquet")):
        read_prompts(f"gedit:{tmp_path}")


def edit(kind="ps_human", language="en", intersection=True, instruction="a {b} {}"):
    content = {"gedit": kind, "language": language, "intersection": intersection, "instruction": instruction}
    return Prompt("1", instruction, kind, {**content, "source_image": "a.png", "source_sha256": SHA})


def test_other_prompts_do_not_fit():
    assert RUBRIC.fits(edit())
    for change in ({"gedit": "x"}, {"gedit": []}, {"language": "zh"}, {"intersection": 1}, {"source_sha256": "../a"}):
        assert not RUBRIC.fits(Prompt("1", "a", "ps_human", {**edit().content, **change}))
    assert not RUBRIC.fits(Prompt("1", "a", "ps_human", None))


def test_the_judge_reads_the_published_texts():
    """SHA-256 of the texts that VIEScore(task="tie") makes for the instruction "a {b} {}"."""
    source, result = InputImage("a.png", SHA), InputImage("b.png", SHA)
    both, alone = RUBRIC.requests(edit(), (source, result), "pictures_text")
    assert (both.image, both.more_images, alone.image) == (source, (result,), result)
    digests = [hashlib.sha256(request.question.encode()).hexdigest()[:16] for request in (both, alone)]
    assert digests == ["d6c91000c2c4ba38", "2473ff2c7406e065"]


@pytest.mark.parametrize(
    ("text", "published", "other"),
    [
        ('{"score" : [8, 7], "reasoning" : "The hat\nis {odd}."}', 7, 7),
        ('```json\n{\n"score" : [6, 6],\n"reasoning" : "ok"\n}\n```', 6, 6),
        ('||V^=^V||\n{"score" : 5, "reasoning" : "ok"}\n||V^=^V||', 5, 5),
        ("{score: 4, reasoning: fine}", 4, 4),
        ("The marks are [3, 9].", 3, 3),
        (" 7\n", 7, 7),
        ('{"score": [7.5, 9]}', 7.5, 7.5),
        ('{"score": [0, 10], "score": [2, 3]}', 2, None),
        ('{"score": [12, 11]}', 11, None),
        ('{"score": [-1, 4]}', -1, None),
        ("score = [8, 6, 7]", None, 6),
        ("score = [8, 60, 7]", None, None),
        ("score = [8, 6]\nscore = [5, 5]", None, None),
        ('<think>{"score": [1]} or {"score": [2]}</think>{"score": [8, 7]}', None, 7),
        ("<think>{1}</think>9", None, 9),
        ("11", None, None),
        ('{"score": []}', None, None),
        ('{"score": ["8", "7"]}', None, 7),
        ('{"score": [8, null]}', None, None),
        ('{"score": [NaN, 7]}', None, None),
        ('{"score": [1e400]}', None, None),
        ('{"Score": [8, 7]}', None, 7),
        ('{"score": [8, 7], "reasoning": "It says "no"."}', None, 7),
        ('} {"score": 3', None, None),
        ("[[[" * 9000, None, None),
        ('{"a":' * 9000 + "}", None, None),
        ("||V^=^V||" + '"a":' * 9000 + "||V^=^V||", None, None),
        ("I'm sorry, but I can't rate this image.", None, None),
        ("", None, None),
    ],
)
def test_the_lowest_mark_counts(text, published, other):
    assert (gedit._published_mark(text), gedit._mark(text)) == (published, other)


def score(consistency, quality, published=True, **prompt):
    responses = [Response(text=consistency), Response(text=quality)]
    return {(metric, group): value for metric, group, value in RUBRIC.scores(edit(**prompt), responses, "", published)}


def test_an_edit_has_three_scores():
    for intersection in (True, False):
        scores = score('{"score": [9, 4]}', '{"score": [10, 9]}', intersection=intersection, language="cn")
        assert scores.pop(("unread", "all")) == 0
        groups = ["ps_human-cn", "ps_human-cn-intersection"][: 1 + intersection]
        assert scores == {
            (metric, group): value
            for group in groups
            for metric, value in (("semantic_consistency", 0.4), ("perceptual_quality", 0.9), ("overall", 0.6))
        }


def test_an_edit_with_an_unread_answer_counts_nowhere():
    assert score('{"score": 4}', "") == {("unread", "all"): 0.5}
    assert score(None, None) == {("unread", "all"): 1.0}
    assert score('{"score": 4}', '{"score": -1}') == {("unread", "all"): 1.0}  # without a root
    assert score('{"score": 0}', '{"score": -1}')["overall", "ps_human-en"] == 0


FORMS = (
    '{{\n"score" : [{a}, {b}],\n"reasoning" : "It is {b} of 10."\n}}',
    '```json\n{{"score" : [{a}, {b}], "reasoning" : ""}}\n```',
    '||V^=^V||{{"score" : {a}}}||V^=^V||',
    "[{a}, {b}]",
    "{a}",
    "{{score: {a}, reasoning: fine}}",
    '{{"score" : [1{a}, 1{b}]}}',
    '{{"score" : [{a}, "good"]}}',
    "I can't help with that.",
)


def recorded():
    """Invented answers: (type, language, whether in the intersection, text on consistency, text on quality)."""
    for place, kind in enumerate(gedit_prompts.TYPES):
        for second, language in enumerate(gedit_prompts.LANGUAGES):
            for n in range(5 + place % 3):
                first = FORMS[(place + n) % 9].format(a=(3 * place + 5 * n + second) % 10, b=(place + n) % 10)
                quality = FORMS[(2 * place + n) % 7].format(a=(7 * n + place) % 10, b=(place + second) % 10)
                yield kind, language, n % 2 == second or n == 3, first, quality


def test_means_are_those_of_the_published_code():
    """Numbers of calculate_statistics.py on the marks that VIEScore.evaluate gives, without rows that it fails on."""
    images = []
    for kind, language, intersection, *texts in recorded():
        prompt = edit(kind, language, intersection)
        images.append((f"{len(images)}", [*RUBRIC.scores(prompt, [Response(text=t) for t in texts], "", True)]))
    results = summarise(images, RUBRIC)
    for group, values in PUBLISHED.items():
        for metric, value in zip(gedit.METRICS, values, strict=True):
            assert results[metric][group]["value"] == pytest.approx(value / 10, abs=1e-12)
    unread = sum(score.value for _, scores in images for score in scores if score.metric == "unread")
    assert unread == NUM_FAILED / 2
    some = [scores for scores, (kind, *_) in zip(images, recorded(), strict=True) if kind != "ps_human"]
    assert "en" not in summarise(some, RUBRIC)["overall"]


PUBLISHED = {  # semantics, quality, overall
    "en": (4.945454545454545, 4.512121212121212, 3.466667418430565),
    "en-intersection": (4.5606060606060606, 4.893939393939394, 3.5647931676176356),
    "cn": (4.833333333333334, 4.615151515151515, 3.269862985013107),
    "cn-intersection": (4.8939393939393945, 3.909090909090909, 3.031546665465694),
    "ps_human-en": (7.0, 5.75, 5.575469150674489),
    "text_change-en-intersection": (5.75, 7.25, 6.119161486840807),
    "text_change-cn": (5.2, 5.0, 3.4859106568475453),
    "text_change-cn-intersection": (1.0, 3.0, 0.0),
}
NUM_FAILED = 24


def test_published_judges():
    assert all(map(RUBRIC.is_published, ["openai:gpt-4.1", "gpt-4.1-2025-04-14"]))
    assert not any(map(RUBRIC.is_published, ["openai:gpt-4o", "gpt-4.1-mini", "qwen2.5-vl-72b"]))
    assert math.isclose(sum(RUBRIC.macros["overall", "en"].values()), 1)
