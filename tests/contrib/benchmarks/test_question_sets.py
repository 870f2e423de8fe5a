"""Published sets of prompts with questions: DPG-Bench, OneIG-Bench, TIIF-Bench, and what is wrong with their files."""

import json
import warnings

import pytest

from tests.contrib.benchmarks import question_layouts as layouts
from tests.expectations import names
from winobench.base import files
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import dpg_bench, oneig, tiif
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt


def test_dpg_bench_without_the_first_question_of_its_table(tmp_path):
    folder = layouts.write_dpg(tmp_path / "dpg")
    prompts = read_prompts(f"dpg_bench:{folder}")
    assert {prompt.id: prompt.text for prompt in prompts} == layouts.DPG_TEXTS
    first = {"id": 2, "question": "Is the robot old?", "dependency": [1], "tuple": "attribute - type (robot, old)"}
    assert prompts[0] == Prompt("partiprompts97", "A robot.", "", {"questions": [first]})
    assert [question["id"] for question in prompts[1].content["questions"]] == [1, 2, 3, 4, 5, 7, 6]
    assert prompts[1].content["questions"][2]["dependency"] == [1, 2]
    assert [dpg_bench.has_questions(prompt.content) for prompt in prompts] == [False, True, True]
    assert read_prompts(f"dpg_bench:{folder / 'dpg_bench.csv'}") == prompts


def test_dpg_bench_takes_texts_of_files_and_the_last_of_what_is_there_twice(tmp_path):
    """As the published code, which fills a dictionary anew when a prompt begins again."""
    old = layouts.DPG_QUESTIONS["whoops5"]
    questions = {**layouts.DPG_QUESTIONS, "whoops5": [*old, (1, "0", "entity - part (moon)", "Is there half a moon?")]}
    folder = layouts.write_dpg(tmp_path / "dpg", questions, {**layouts.DPG_TEXTS, "whoops5": " A blue moon.\n\n"})
    assert [prompt.text for prompt in read_prompts(f"dpg_bench:{folder}")][2] == "A blue moon."
    last = read_prompts(f"dpg_bench:{folder / 'dpg_bench.csv'}")[2]
    assert last.text == "A red moon."
    asked = [question["question"] for question in last.content["questions"]]
    assert asked == ["Is there half a moon?", "Is the moon red?"]
    with (folder / "dpg_bench.csv").open("a") as file:
        file.write("midjourney3,A cat.,,1,0,,,entity - whole (cat),Is there a cat?\r\n")
    again = read_prompts(f"dpg_bench:{folder}")[1]
    assert [question["id"] for question in again.content["questions"]] == [1]


def test_oneig_is_read_where_there_are_questions(tmp_path):
    prompts = read_prompts(f"oneig:{layouts.write_oneig(tmp_path / 'oneig')}")
    assert [prompt.id for prompt in prompts] == ["anime_000", "human_000", "human_001", "object_000"]
    questions = [{"id": 1, "question": "A woman?", "dependency": [0]}]
    content = {"type": "NP", "prompt_length": "long", "questions": questions}
    assert prompts[2] == Prompt("human_001", "A woman, in the rain.", "Portrait", content)
    assert [question["dependency"] for question in prompts[0].content["questions"]] == [[0], [1], [2], [0, 3], [5]]
    assert all(oneig.has_questions(prompt.content) for prompt in prompts)


def test_tiif_has_each_prompt_short_and_long(tmp_path):
    folder = layouts.write_tiif(tmp_path / "data")
    prompts = read_prompts(f"tiif:{folder}")
    assert [prompt.id for prompt in prompts[:3]] == ["action+2d-0-short", "action+2d-0-long", "action+2d-1-short"]
    questions, answers = ["Is there a child?  ", "Does it run?"], ["yes", "yes"]
    content = {"type": "action+2d", "length": "long", "questions": questions, "answers": answers}
    assert prompts[1] == Prompt("action+2d-0-long", "With joy, a child runs.", "action+2d", content)
    assert len(prompts) == 8
    assert all(tiif.has_questions(prompt.content) for prompt in prompts)
    assert [one.id for one in read_prompts(f"tiif:{folder}", categories=["style"])] == ["style-0-short", "style-0-long"]


def test_questions_of_other_prompts_are_refused_or_named(tmp_path, monkeypatch):
    nouns = ("dogs", "cats", "cars", "trees", "boats")
    lines = [(f"Two {one}.", f"A scene with two {one}.", [f"Are there {one}?"], ["yes"]) for one in nouns]
    moved = [(*line[:2], *other[2:]) for line, other in zip(lines, lines[1:] + lines[:1], strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_prompts(f"tiif:{layouts.write_tiif(tmp_path / 'right', {'comparison': lines})}")) == 10
        foreign = [("两只狗", "有两只狗的画面", *line[2:]) for line in lines]
        assert len(read_prompts(f"tiif:{layouts.write_tiif(tmp_path / 'foreign', {'comparison': foreign})}")) == 10
    folder = layouts.write_tiif(tmp_path / "moved", {"comparison": moved})
    with pytest.warns(UserWarning, match=names("5 of the 5", "comparison_eval_prompts.jsonl")):
        read_prompts(f"tiif:{folder}")
    texts, questions = [list(line[:2]) for line in moved], [line[2] for line in moved]
    monkeypatch.setattr(tiif, "_SHIFTED", files.digest([texts, questions]))
    with pytest.raises(InputError, match=names("comparison_eval_prompts.jsonl", "3aae750", "d875cd8")) as error:
        read_prompts(f"tiif:{folder}")
    assert error.value.code == "mismatched-parts"


def test_each_set_is_told_from_the_others(tmp_path):
    dpg = read_prompts(f"dpg_bench:{layouts.write_dpg(tmp_path / 'dpg')}")[1].content
    alignment = read_prompts(f"oneig:{layouts.write_oneig(tmp_path / 'oneig')}")[0].content
    types = read_prompts(f"tiif:{layouts.write_tiif(tmp_path / 'data')}")[0].content
    contents = (dpg, alignment, types, None, {}, {"questions": []}, {"questions": [1]}, {"questions": [{"id": 1}]})
    for place, module in enumerate((dpg_bench, oneig, tiif)):
        assert [module.has_questions(content) for content in contents] == [place == n for n in range(len(contents))]


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


DAMAGE = {  # file: (old text, new text, words of the refusal)
    ("dpg_bench", "dpg_bench.csv"): [
        (",tuple,", ",tuples,", ["dpg_bench.csv", "tuple"]),
        ('"1, 2"', '"1, b"', ["line 6", "dependency", "'1, b'"]),
        ("whoops5,A red moon.", "whoops5,A red moon.,more", ["line 11", "10 cells"]),
        (",5,1,", ",0,1,", ["line 8", "0"]),
        ("Is the cat grey?", "", ["line 8", "question"]),
        ("attribute - color (cat, grey)", " ", ["line 8", "tuple"]),
        ("midjourney3,", "midjourney4,", ["midjourney4.txt"]),
        ("whoops5,", ",", ["line 11", "item_id"]),
    ],
    ("oneig", "OneIG-Bench.csv"): [
        ("Portrait,001", "Portrait,000", ["line 4", "'000'", "Portrait"]),
        ("Portrait,001", "Portrait,002", ["'001'", "human.json"]),
        ("NP,long", "NP,longer", ["line 4", "prompt_length", "'longer'"]),
    ],
    ("oneig", "anime.json"): [
        ('"000"', '"001"', ["'000'", "anime.json"]),
        ('"question"', '"questions"', ["anime.json", "'question'"]),
        (r"\"5\": \"Five", r"\"6\": \"Five", ["'000'", "anime.json"]),
        (r"\"5\": [5]", r"\"6\": [5]", ["'000'", "anime.json"]),
        (r"\"5\": [5]", r"\"5\": [6]", ["'000'", "anime.json"]),
        (r"\"5\": [5]", r"\"5\": []", ["question 5", "anime.json"]),
        (r"\"5\": [5]", r"\"5\": [5", ["'dependency'", "anime.json", "JSON"]),
        ("Five?", " ", ["question 5", "anime.json"]),
        ("}", "", ["anime.json", "JSON"]),
    ],
    ("tiif", "style_prompts.jsonl"): [
        ("short_description", "description", ["line 1", "short_description"]),
        ('"type": "style"', '"type": "Style"', ["line 1", "style"]),
        ("A fox, painted.", " ", ["line 1", "prompt"]),
        ("}", "", ["line 1", "JSON"]),
    ],
    ("tiif", "style_eval_prompts.jsonl"): [
        ('["Yes"]', '["Perhaps"]', ["line 1", "'Perhaps'"]),
        ('["Yes"]', '["Yes", "no"]', ["1 questions", "2 answers"]),
        ("yn_question_list", "questions", ["line 1", "yn_question_list"]),
        ('["Is the image', '[1, "Is the image', ["line 1", "1"]),
    ],
    ("tiif", "negation_eval_prompts.jsonl"): [("\n", "\n[]\n", ["line 2", "negation"])],
}
WRITERS = {"dpg_bench": layouts.write_dpg, "oneig": layouts.write_oneig, "tiif": layouts.write_tiif}


@pytest.mark.parametrize(
    ("kind", "file", "old", "new", "said"), [(*place, *row) for place, rows in DAMAGE.items() for row in rows]
)
def test_a_damaged_set_is_refused(tmp_path, kind, file, old, new, said):
    folder = WRITERS[kind](tmp_path / "data")
    replace(next(tmp_path.rglob(file)), old, new)
    with pytest.raises(InputError, match=names(*said)):
        read_prompts(f"{kind}:{folder}")


def test_a_dpg_bench_that_lacks_files(tmp_path):
    folder = layouts.write_dpg(tmp_path / "dpg")
    (folder / "prompts" / "whoops6.txt").write_text("another")
    with pytest.raises(InputError, match=names("whoops6", "dpg_bench.csv")):
        read_prompts(f"dpg_bench:{folder}")
    (folder / "dpg_bench.csv").unlink()
    for place in (folder, folder / "dpg_bench.csv", "x" * 5_000):
        with pytest.raises(InputError):
            read_prompts(f"dpg_bench:{place}")


def test_a_tiif_that_lacks_files(tmp_path):
    folder = layouts.write_tiif(tmp_path / "data")
    asked = folder.with_name("test_eval_prompts") / "action+2d_eval_prompts.jsonl"
    asked.write_text(asked.read_text().splitlines()[0])
    with pytest.raises(InputError, match=names("2 prompts", "1 lines")):
        read_prompts(f"tiif:{folder}")
    asked.unlink()
    for place in (folder, folder.with_name("test_eval_prompts"), folder.parent, "absent", "x" * 5_000):
        with pytest.raises(InputError):
            read_prompts(f"tiif:{place}")


def test_contents_are_json(tmp_path):
    prompts = read_prompts(f"oneig:{layouts.write_oneig(tmp_path / 'oneig')}")
    assert [Prompt.from_json(json.loads(json.dumps(prompt.to_json()))) for prompt in prompts] == prompts
