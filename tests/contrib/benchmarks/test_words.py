"""Rubrics about words in images, against the published code on the same readings.

The constants are numbers of the published functions: X-Omni-Team/X-Omni 2b8237b, OneIG-Bench/OneIG-Benchmark 41b4983,
A113N-W3I/TIIF-Bench 3aae750, and CVTG-2K's in zlab-princeton/i1 b58a62f. They also agreed on thousands of damaged
copies of the published texts.
"""

import math
import random

import pytest

from tests.contrib.benchmarks import question_layouts as layouts
from tests.contrib.benchmarks import readings
from tests.expectations import names
from tests.generation import fakes
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.rubrics import words
from winobench.generation.judged import judge_images, summarise
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import named_rubrics
from winobench.rubrics.named_rubrics import RUBRICS
from winobench.runs.requests import ImageMatch, ImageText, InputImage, Response

IMAGE = InputImage("image.png", "0" * 64)
TEXT = ImageText.kind
EXACT = {"abs": 1e-12, "rel": 0}


def longtext_prompt(text, language):
    return Prompt("0", "a sign", "sign", {"language": language, "length": "short", "text": text})


def oneig_prompt(text, language):
    labels = {"type": "NP", "prompt_length": "long"} if language == "en" else {"language": "zh"}
    return Prompt("text_000", "a slide", "Text_Rendering", labels | {"text": text})


def cvtg_prompt(found):
    return Prompt("CVTG_2_0", "a cup", "CVTG", {"regions": 2, "words": [word.lower() for word in found]})


def tiif_prompt(found, length="short"):
    questions = [f"Is the text '{word}' in the image?" for word in found]
    content = {"type": "text", "length": length, "questions": questions, "answers": ["yes"] * len(questions)}
    return Prompt("text-0-short", "a picture", "text", content)


def scores(rubric, prompt, text, published=True):
    """Metric and group -> mean over the scores of one image."""
    assert RUBRICS[rubric].fits(prompt)
    values = {}
    for metric, group, value in RUBRICS[rubric].scores(prompt, [Response(text=text)], TEXT, published):
        values.setdefault((metric, group), []).append(value)
    return {key: math.fsum(numbers) / len(numbers) for key, numbers in values.items()}


def summary(rubric, prompt, texts):
    found = [(prompt.text, [*RUBRICS[rubric].scores(prompt, [Response(text=text)], TEXT)]) for text in texts]
    return {metric: groups["all"]["value"] for metric, groups in summarise(found, RUBRICS[rubric]).items()}


@pytest.mark.parametrize(
    ("case", "language", "metric", "right", "number"),
    [
        (readings.LONGTEXT, "en", "word_accuracy", [15, 15, 2, 1, 0, 0, 2, 2, 4, 0, 0, 0, 2, 0, 0, 0, 1, 1, 1], 15),
        (readings.LONGTEXT_ZH, "zh", "character_accuracy", [27, 14, 4, 1, 5, 0, 0, 1, 1, 0, 4], 27),
    ],
)
def test_longtext_as_published(case, language, metric, right, number):
    prompt = longtext_prompt(case[0], language)
    for text, count in zip(case[1], right, strict=True):
        found = scores("longtext", prompt, text)
        assert found[metric, "all"] == pytest.approx(count / number, **EXACT), text
        assert found[metric, "sign"] == found[metric, "short"] == found[metric, "all"]
    whole = summary("longtext", prompt, case[1])
    assert whole[metric] == pytest.approx(sum(right) / number / len(right), **EXACT)


def test_long_texts_weigh_more():
    """As published: the share of all words of all images."""
    short, long = longtext_prompt(["one"], "en"), longtext_prompt(["one two three"], "en")
    rubric = RUBRICS["longtext"]
    found = [
        ("short", [*rubric.scores(short, [Response(text="one")], TEXT)]),
        ("long", [*rubric.scores(long, [Response(text="")], TEXT)]),
    ]
    assert summarise(found, rubric)["word_accuracy"]["all"]["value"] == 1 / 4


@pytest.mark.parametrize(
    ("rubric", "case", "language", "distances", "right", "number", "score"),
    [
        (
            *("oneig_text", readings.ONEIG, "en"),
            [0, 1, 7, 26, 23, 0, 18, 26, 31, 31, 26, 31, 400, 31],
            [7, 6, 1, 7, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0],
            *(7, 0.7234402332361516),
        ),
        (
            *("oneig_text_zh", readings.ONEIG_ZH, "zh"),
            [0, 1, 9, 9, 18, 21, 21, 21, 19],
            [21, 20, 12, 14, 4, 0, 0, 0, 2],
            *(21, 0.8557293095564701),
        ),
    ],
)
def test_oneig_text_as_published(rubric, case, language, distances, right, number, score):
    prompt = oneig_prompt(case[0], language)
    for text, distance, count in zip(case[1], distances, right, strict=True):
        found = scores(rubric, prompt, text)
        for group in ("all", "long") if language == "en" else ("all",):
            assert found["edit_distance", group] == distance, text
            assert found["completion_rate", group] == (distance == 0)
            assert found["word_accuracy", group] == pytest.approx(count / number, **EXACT)
    whole = summary(rubric, prompt, case[1])
    assert whole["edit_distance"] == pytest.approx(sum(distances) / len(distances), **EXACT)
    assert whole["completion_rate"] == pytest.approx(distances.count(0) / len(distances), **EXACT)
    assert whole["word_accuracy"] == pytest.approx(sum(right) / number / len(right), **EXACT)
    assert whole["text_score"] == pytest.approx(score, **EXACT)


def test_the_text_score_has_an_interval_over_prompts():
    """Of two prompts, by hand: without either, the score is that of the other."""
    rubric = RUBRICS["oneig_text"]
    texts = {"one": "The Impact of 5G Title AnB Dont", "two": ""}
    prompt = oneig_prompt(readings.ONEIG[0], "en")
    found = [(name, [*rubric.scores(prompt, [Response(text=text)], TEXT)]) for name, text in texts.items()]
    entry = summarise(found, rubric)["text_score"]["all"]
    value = 1 - 15.5 * 0.5 * 0.5 / 100
    assert entry["value"] == pytest.approx(value, **EXACT)
    assert entry["low"] < value <= entry["high"] <= 1
    assert entry["too_few"]
    (alone,) = (summarise(part, rubric)["text_score"]["all"] for part in (found[1:],))
    assert (alone["value"], alone["low"], alone["high"]) == (pytest.approx(1 - 0.31), None, None)
    assert summarise(found, rubric)["edit_distance"]["all"]["is_count"]


def test_long_texts_of_oneig_get_more_tokens():
    asked = [
        next(iter(RUBRICS["oneig_text"].requests(oneig_prompt(" ".join(["a"] * number), "en"), IMAGE, TEXT)))
        for number in (60, 61)
    ]
    assert [request.max_tokens for request in asked] == [128, 256]
    assert {request.question for request in asked} == {words.COPY}


@pytest.mark.parametrize(
    ("text", "right", "nearness", "distance", "recall"),
    [
        (text, *numbers)
        for text, numbers in zip(
            readings.WORDS[1],
            [
                (5, 1.0, 0.0, 1.0),
                (4, 0.8000003999992, 0.4, 0.6),
                (4, 0.8000003999992, 0.4, 0.6),
                (0, 0.5200010599976299, 0.5700000000000001, 0.2),
                (0, 0.38000128999729493, 0.85, 0.2),
                (0, 2.1999950999163078e-06, 1.0, 0.0),
                (0, 0.4000011999976, 0.6, 0.4),
                (5, 1.0, 0.5833333333333334, 1.0),
                (0, 1.9999959999239536e-06, 1.0, 0.0),
                (0, 0.16000167999663995, 0.8400000000000001, 0.2),
                (0, 2.1999950999163078e-06, 1.0, 0.0),
                (0, 0.3200014599968299, 0.82, 0.0),
            ],
            strict=True,
        )
    ],
)
def test_cvtg_and_tiif_as_published(text, right, nearness, distance, recall):
    found = scores("cvtg", cvtg_prompt(readings.WORDS[0]), text)
    for group in ("all", "2 regions", "CVTG, 2 regions"):
        assert found["word_accuracy", group] == pytest.approx(right / 5, **EXACT)
        assert found["ned", group] == pytest.approx(nearness, **EXACT)
    found = scores("tiif_text", tiif_prompt(readings.WORDS[0]), text)
    assert found["gned", "short"] == pytest.approx(distance, **EXACT)
    assert found["recall", "short"] == pytest.approx(recall, **EXACT)


def test_cvtg_clip_score():
    rubric = RUBRICS["cvtg_clip_score"]
    prompt = cvtg_prompt(["read"])
    assert [*rubric.requests(prompt, IMAGE, ImageMatch.kind)] == [ImageMatch(IMAGE, ("A photo depicts a cup",))]
    for cosine, value in ((0.3, 0.75), (-0.2, 0.0)):
        found = [*rubric.scores(prompt, [Response(scores=(cosine,))], ImageMatch.kind)]
        assert [(score.group, score.value) for score in found] == [
            (group, pytest.approx(value, **EXACT)) for group in ("all", "2 regions", "CVTG, 2 regions")
        ]
    with pytest.raises(InputError, match="not the cosine of a CLIP"):
        [*rubric.scores(prompt, [Response(scores=(7.5,))], ImageMatch.kind)]


CASES = {
    "longtext": (longtext_prompt(["OPEN NOW 24 h"], "en"), "word_accuracy", 1.0),
    "oneig_text": (oneig_prompt("['OPEN', 'NOW 24 h']", "en"), "completion_rate", 1.0),
    "oneig_text_zh": (oneig_prompt("['OPEN', 'NOW 24 h']", "zh"), "completion_rate", 1.0),
    "cvtg": (cvtg_prompt(["OPEN", "NOW", "24", "h"]), "word_accuracy", 1.0),
    "tiif_text": (tiif_prompt(["OPEN", "NOW", "24", "h"]), "recall", 1.0),
}
FORMS = [
    "OPEN\nNOW 24 h",
    "```\nOPEN\nNOW 24 h\n```",
    "```text\nOPEN\nNOW 24 h\n```",
    "Here is the text in the image:\n\nOPEN\nNOW 24 h",
    'The text in the image reads: "OPEN NOW 24 h"',
    "**OPEN**\n- NOW 24 h",
    "<answer>OPEN NOW 24 h</answer>",
    '{"text": "OPEN\\nNOW 24 h"}',
    '```json\n["OPEN", "NOW 24 h"]\n```',
    "“OPEN”\n“NOW 24 h”",
    "OP\u200bEN NOW 24 h",
]


@pytest.mark.parametrize("rubric", CASES)
def test_other_judges_are_read_in_all_forms(rubric):
    prompt, metric, value = CASES[rubric]
    for form in FORMS:
        found = scores(rubric, prompt, form, published=False)
        assert next(number for (name, _), number in found.items() if name == metric) == value, form
        assert found["unread", "all"] == 0
    nothing = scores(rubric, prompt, "", published=False)
    for form in ("No text recognized", "There is no visible text in this image.", "没有文字"):
        assert scores(rubric, prompt, form, published=False) == nothing | {("unread", "all"): 0.0}
    for form in ("", " \n", None, "I'm sorry, but I can't help with that image.", "抱歉，我无法识别图片中的文字。"):
        assert scores(rubric, prompt, form, published=False) == nothing
        assert scores(rubric, prompt, form)["unread", "all"] == 1


def test_an_image_may_show_a_refusal_or_a_list():
    said = "I'm sorry, I can't help you find a picture of JSON: [14, 27]"
    assert scores("longtext", longtext_prompt([said], "en"), said, published=False)["word_accuracy", "all"] == 1
    for text in ("[14, 27, 3] and 5* HOTEL", "Here are the rules: no noise"):
        found = scores("oneig_text", oneig_prompt(text, "en"), text, published=False)
        assert found["completion_rate", "all"] == 1


def test_edit_distances_are_levenshtein_distances():
    def by_hand(first, second):
        if not first or not second:
            return len(first) + len(second)
        replaced = by_hand(first[1:], second[1:]) + (first[0] != second[0])
        return min(replaced, by_hand(first[1:], second) + 1, by_hand(first, second[1:]) + 1)

    generator = random.Random(0)
    for _ in range(60):
        first, second = ("".join(generator.choices("ab中😀", k=generator.randrange(6))) for _ in range(2))
        assert words.edit_distance(first, second) == by_hand(first, second)


def test_longtext_from_a_file_or_a_folder(tmp_path):
    folder = layouts.write_longtext(tmp_path / "textbench")
    content = {"language": "en", "length": "short", "text": ["OPEN, 24 h"]}
    prompts = read_prompts(f"longtext:{folder / 'text_prompts.jsonl'}")
    assert prompts[0] == Prompt("0", 'A sign that reads "OPEN, 24 h".', "sign", content)
    assert [prompt.id for prompt in prompts] == ["0", "2"]
    both = read_prompts(f"longtext:{folder}")
    assert [prompt.id for prompt in both] == ["en_0", "en_2", "zh_0"]
    assert [prompt.content["language"] for prompt in both] == ["en", "en", "zh"]
    (folder / "text_prompts.jsonl").unlink()
    assert [prompt.id for prompt in read_prompts(f"longtext:{folder}")] == ["zh_0"]
    renamed = (folder / "text_prompts_zh.jsonl").rename(folder / "text_prompts.jsonl")
    assert [prompt.content["language"] for prompt in read_prompts(f"longtext:{renamed}")] == ["zh"]
    (folder / "text_prompts_zh.jsonl").write_text(renamed.read_text())
    with pytest.raises(InputError, match="one language"):
        read_prompts(f"longtext:{folder}")


def test_cvtg_from_its_folder(tmp_path):
    prompts = read_prompts(f"cvtg:{layouts.write_cvtg(tmp_path / 'CVTG 2K', 'CVTG-style')}")
    assert len(prompts) == 16
    content = {"regions": 2, "words": ["read", "now!", "it"]}
    assert prompts[1] == Prompt("CVTG_2_3", f"{layouts.CVTG_PROMPT} CVTG 1.", "CVTG", content)
    assert prompts[-1].id == "CVTG-Style_5_3"


def test_oneig_with_its_texts(tmp_path):
    folder = layouts.write_oneig_texts(layouts.write_oneig(tmp_path / "oneig"))
    prompts = read_prompts(f"oneig:{folder}")
    content = {"type": "NP", "prompt_length": "short", "text": layouts.ONEIG_TEXT}
    assert prompts[-1] == Prompt("text_000", 'A sign that says "yes".', "Text_Rendering", content)
    assert [RUBRICS["oneig"].fits(prompt) for prompt in prompts] == [True, True, True, True, False]
    assert [RUBRICS["oneig_text"].fits(prompt) for prompt in prompts] == [False, False, False, False, True]
    assert scores("oneig_text", prompts[-1], "yes Now 5n9")["completion_rate", "all"] == 1


def test_oneig_in_chinese(tmp_path):
    prompts = read_prompts(f"oneig_zh:{layouts.write_oneig_zh(tmp_path / 'oneig')}")
    ids = ["anime_000", "human_000", "object_000", "multilingualism_000", "text_000", "text_001"]
    assert [prompt.id for prompt in prompts] == ids
    assert [prompt.content.get("text") for prompt in prompts[-2:]] == ["['是']", "['OK']"]
    assert [RUBRICS["oneig_text_zh"].fits(prompt) for prompt in prompts] == [False] * 4 + [True] * 2
    assert [RUBRICS["oneig"].fits(prompt) for prompt in prompts] == [True] * 4 + [False] * 2
    rubric = RUBRICS["oneig"]
    asked = [request.question for request in rubric.requests(prompts[0], IMAGE, TEXT)]
    assert asked[1] == "男孩有4个吗？. Please answer 'Yes' or 'No' only."
    found = [*rubric.scores(prompts[0], [Response(text="Yes"), Response(text="No")], TEXT)]
    assert [(score.metric, score.group, score.value) for score in found] == [
        ("alignment", "all", 0.5),
        ("alignment", "Anime_Stylization", 0.5),
        ("unread", "all", 0.0),
    ]


DAMAGE = [  # set, file, old text, new text, words of the refusal
    ("longtext", "text_prompts.jsonl", '"prompt_id": 2', '"prompt_id": 0', ["line 2", "0"]),
    ("longtext", "text_prompts.jsonl", '"prompt_id": 2', '"prompt_id": "2"', ["line 2", "prompt_id"]),
    ("longtext", "text_prompts.jsonl", '["OPEN, 24 h"]', '"OPEN, 24 h"', ["line 1", "text"]),
    ("longtext", "text_prompts.jsonl", '["OPEN, 24 h"]', "[]", ["line 1", "text"]),
    ("longtext", "text_prompts_zh.jsonl", '"category"', '"kind"', ["line 1", "category"]),
    ("longtext", "text_prompts.jsonl", '{"category"', '["category"', ["line 1", "JSON"]),
    ("cvtg", "CVTG/3.json", '"index": 3', '"index": 0', ["CVTG/3.json", "index 0"]),
    ("cvtg", "CVTG/3.json", '"index": 3', '"index": true', ["CVTG/3.json", "index"]),
    ("cvtg", "CVTG-Style/5.json", '"prompt"', '"text"', ["CVTG-Style/5.json", "prompt"]),
    ("cvtg", "CVTG-Style/5.json", '"data_list"', '"data"', ["5.json", "data_list"]),
    ("oneig", "scripts/text/text_content.csv", "000", "001", ["'000'", "Text_Rendering", "OneIG-Bench.csv"]),
    ("oneig", "scripts/text/text_content.csv", "text_content", "text", ["text_content.csv", "text_content"]),
]


@pytest.mark.parametrize(("kind", "file", "old", "new", "said"), DAMAGE)
def test_a_damaged_set_is_refused(tmp_path, kind, file, old, new, said):
    write = {"longtext": layouts.write_longtext, "cvtg": layouts.write_cvtg, "oneig": layouts.write_oneig}[kind]
    folder = write(tmp_path / "data")
    if kind == "oneig":
        layouts.write_oneig_texts(folder)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(InputError, match=names(*said)):
        read_prompts(f"{kind}:{folder}")


def test_sets_that_lack_files(tmp_path):
    (tmp_path / "empty").mkdir()
    folder = layouts.write_cvtg(tmp_path / "cvtg")
    (folder / "CVTG" / "4.json").unlink()
    for source in (f"cvtg:{folder}", *(f"{name}:{tmp_path / 'empty'}" for name in ("cvtg", "longtext", "oneig_zh"))):
        with pytest.raises(InputError):
            read_prompts(source)


def test_each_set_of_prompts_has_its_rubric(tmp_path):
    oneig = layouts.write_oneig_texts(layouts.write_oneig(tmp_path / "oneig"))
    sources = {
        "longtext": layouts.write_longtext(tmp_path / "textbench") / "text_prompts_zh.jsonl",
        "cvtg": layouts.write_cvtg(tmp_path / "cvtg"),
        "oneig": oneig,
        "oneig_zh": layouts.write_oneig_zh(tmp_path / "oneig zh"),
        "tiif": layouts.write_tiif(tmp_path / "data"),
        "dpg_bench": layouts.write_dpg(tmp_path / "dpg"),
    }
    prompts = {name: read_prompts(f"{name}:{source}") for name, source in sources.items()}
    chosen = {name: named_rubrics.choose(None, its).name for name, its in prompts.items()}
    assert chosen == {name: name.removesuffix("_zh") for name in sources}
    for name, rubric in RUBRICS.items():
        fitting = {kind.removesuffix("_zh") for kind, its in prompts.items() if any(map(rubric.fits, its))}
        assert name == "vqa_score" or len(fitting) <= 1, (name, fitting)


class Reader:
    """Reads the same words in every image, or has a reason not to."""

    kinds = frozenset({TEXT})

    def __init__(self, text):
        self.text = text

    def fingerprint(self):
        return {"responder": "reader"}

    def ask(self, requests):
        return iter([(number, {"text": self.text}) for number in range(len(requests))])

    def read(self, request, raw):
        return Response(text=raw["text"])


def test_a_run_is_judged_by_both_rubrics_of_oneig(tmp_path):
    folder = layouts.write_oneig_texts(layouts.write_oneig(tmp_path / "oneig"))
    run = fakes.draw(tmp_path / "run", prompts=read_prompts(f"oneig:{folder}"), seeds=(0, 1))
    found = judge_images(run, Reader("yes Now 5n9"), name="reader", rubric="oneig_text", progress=False)
    assert (found.num_images, found.left_out) == (2, 8)
    assert found.who == "reader (published: Qwen2.5-VL-7B-Instruct)"
    assert found.models["fake"]["text_score"]["all"]["value"] == 1
    assert found.wordings == (words.COPY,)
    aligned = judge_images(run, Reader("Yes"), name="qwen2.5-vl-7b", progress=False)
    assert (aligned.rubric, aligned.num_images, aligned.is_published) == ("oneig", 8, True)
