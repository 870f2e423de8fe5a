"""Sets of prompts: files of users, published files, our own grammar, and what is wrong with them."""

import collections
import json
import os

import numpy as np
import pytest

from tests.expectations import raises
from winobench.base.errors import InputError
from winobench.clevr import captions
from winobench.clevr import scenes as clevr_scenes
from winobench.prompts import grammar, named_sets
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt, digest


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_a_text_file_has_a_prompt_a_line(tmp_path):
    source = write(tmp_path / "prompts.txt", "\ufeffA red cube.\r\n\n  Zwei Würfel \n\t\nlast")
    prompts = read_prompts(source)
    assert prompts == [Prompt("1", "A red cube."), Prompt("3", "Zwei Würfel"), Prompt("5", "last")]
    assert read_prompts(source, limit=2) == prompts[:2]
    assert digest(prompts) != digest(prompts[:2])


def test_a_table_has_columns_in_any_order(tmp_path):
    text = 'Category,ID,Prompt,note\ncolor,a,"A red, small cube",x\n\n,b,"two\nlines",\n'
    source = write(tmp_path / "prompts.csv", text)
    assert read_prompts(source) == [Prompt("a", "A red, small cube", "color"), Prompt("b", "two lines")]
    assert read_prompts(source, categories=["color"]) == [Prompt("a", "A red, small cube", "color")]
    with pytest.raises(InputError, match="no prompt of the category 'shape': its categories are 'color'"):
        read_prompts(source, categories=["shape"])
    source = write(tmp_path / "prompts.tsv", 'prompt\tcategory\na "quoted" cube, and more\tc\n')
    assert read_prompts(source) == [Prompt("2", 'a "quoted" cube, and more', "c")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.txt", b"one\ntwo\0three\n", "line 2 of .*p.txt has a NUL byte"),
        ("p.txt", b"one\n" + b"x" * 10_000_000, "line 2 of .*p.txt has more than 1,000,000 bytes"),
        ("p.txt", b"one\n" + b"x" * 200_000, "line 2 of .*p.txt has a prompt of 200,000 characters"),
        ("p.txt", b"one\n\xff\xfe\n", "line 2 of .*p.txt is not UTF-8"),
        ("p.txt", b"a\x1bb\n", r"line 1 of .*p.txt has the control character '\\x1b' in its prompt"),
        ("p.txt", b"\n \n", "p.txt holds no prompt"),
        ("p.txt", b"one\n\ntwo\none \n", "line 4 of .*p.txt repeats the prompt of line 1"),
        ("p.csv", b"text,category\na,b\n", "p.csv has no column 'prompt': its header is 'text,category'"),
        ("p.csv", b"prompt,Prompt\na,b\n", "p.csv has the column 'prompt' twice"),
        ("p.csv", b"prompt,category\na\n", "line 2 of .*p.csv has 1 cells, but its header 2"),
        ("p.csv", b"prompt,category\n,b\n", "line 2 of .*p.csv has an empty prompt"),
        ("p.csv", b"prompt,id\na,1\nb,1\n", "line 3 of .*p.csv repeats the id '1' of line 2"),
        ("p.csv", b'prompt,id\n"a"b,1\n', "line 2 of .*p.csv is not a row of a table"),
        ("my p.json", b"[]", "is not a source of prompts: write prompts into a .txt file"),
    ],
)
def test_bad_files_are_said_with_file_and_line(tmp_path, name, content, said):
    with pytest.raises(InputError, match=said) as error:
        read_prompts(write(tmp_path / name, content))
    assert "\n" not in str(error.value)


def test_what_is_no_file_is_said(tmp_path):
    with pytest.raises(InputError, match=r"absent\.txt cannot be read"):
        read_prompts(str(tmp_path / "absent.txt"))
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(InputError, match="not a regular file"):
        read_prompts(str(tmp_path / "pipe.txt"))
    for source in ("geneval", "geneval:absent.jsonl", "drawbench:" + "x" * 5_000, "clevr:0", "clevr:many", "other:3"):
        with pytest.raises(InputError):
            read_prompts(source)


@pytest.mark.parametrize("prompt", ["a red cube", "A man vs. a dog.", "a sign: 'hi'", "ein Würfel " * 300])
def test_a_prompt_in_place_of_its_file_is_said(prompt):
    with pytest.raises(InputError, match=r"is a prompt itself.*--prompts=FILE\.txt"):
        read_prompts(prompt)


def test_rewritten_prompts_of_a_table(tmp_path):
    source = write(tmp_path / "p.csv", "prompt,shown,id\na cube,a shiny red cube,1\na ball,,2\na cat,a cat,3\n")
    prompts = read_prompts(source)
    assert prompts == [Prompt("1", "a cube", shown="a shiny red cube"), Prompt("2", "a ball"), Prompt("3", "a cat")]
    assert [prompt.given for prompt in prompts] == ["a shiny red cube", "a ball", "a cat"]
    assert [Prompt.from_json(json.loads(json.dumps(prompt.to_json()))) for prompt in prompts] == prompts
    assert "shown" not in prompts[1].to_json()
    with pytest.raises(InputError, match="shown"):
        Prompt.from_json(prompts[0].to_json() | {"shown": 3})


def test_rewritten_prompts_of_a_published_set(tmp_path):
    rows = [{"tag": "two", "include": [], "prompt": text} for text in ("a cube", "Zwei Würfel", "a cat")]
    source = "geneval:" + write(tmp_path / "g.jsonl", "\n".join(map(json.dumps, rows)))
    table = write(
        tmp_path / "t.tsv", "prompt\tshown\nZwei Würfel\ttwo cubes\na cube\ta red cube\na dog\tx\na cube\ta red cube\n"
    )
    prompts = read_prompts(source, shown=table, limit=2)
    assert [(prompt.text, prompt.shown) for prompt in prompts] == [
        ("a cube", "a red cube"),
        ("Zwei Würfel", "two cubes"),
    ]
    assert prompts[0].content == {"tag": "two", "include": []}
    # A prompt without a text would be generated as it is, and nobody would notice.
    with raises("no-text", "t.tsv", "'a cat'"):
        read_prompts(source, shown=table)
    with pytest.raises(InputError, match=r"line 3 of .* has another text for 'a cube'"):
        read_prompts(source, shown=write(tmp_path / "u.csv", "prompt,shown\na cube,x\na cube,y\n"))
    with raises("bad-file-name", "u.jsonl"):
        read_prompts(source, shown="u.jsonl")
    with pytest.raises(InputError, match="no column 'shown'"):
        read_prompts(source, shown=write(tmp_path / "v.csv", "prompt,text\na cube,x\n"))


def test_digests_of_prompts_stay():
    """As of version 0.2.0: runs of then resume."""
    prompts = [Prompt("1", "a red cube", "c", {"a": 1}), Prompt("2", "b")]
    assert digest(prompts) == "e06977953a0bbbb4ddc8f6127fe46e709a834fde50c8e76883e4e871d3240e8f"
    assert digest([prompts[0], Prompt("2", "b", shown="c")]) != digest(prompts)


def test_geneval(tmp_path):
    rows = [
        {"tag": "counting", "include": [{"class": "clock", "count": 2}], "prompt": "a photo of two clocks"},
        {"tag": "colors", "include": [{"class": "dog", "count": 1, "color": "red"}], "prompt": "a photo of a red dog"},
    ]
    path = write(tmp_path / "meta.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    prompts = read_prompts(f"geneval:{path}")
    content = {"tag": "counting", "include": [{"class": "clock", "count": 2}]}
    assert prompts[0] == Prompt("00000", "a photo of two clocks", "counting", content)
    with pytest.raises(InputError, match=r"line 1 of .* has no tag and prompt"):
        read_prompts("geneval:" + write(tmp_path / "other.jsonl", '{"prompt": "x"}\n'))


def test_partiprompts(tmp_path):
    lines = ["Prompt\tCategory\tChallenge\tNote", "a cube\tAbstract\tBasic\t", '"a ""b"" c"\tVehicles\tStyle\tnone']
    prompts = read_prompts("partiprompts:" + write(tmp_path / "PartiPrompts.tsv", "\n".join(lines)))
    assert prompts == [
        Prompt("00000", "a cube", "Abstract", {"challenge": "Basic", "note": ""}),
        Prompt("00001", 'a "b" c', "Vehicles", {"challenge": "Style", "note": "none"}),
    ]


def test_drawbench_is_the_papers_choice(tmp_path):
    # Saharia et al. 2022: the sizes of the eleven categories.
    sizes = {"Colors": 25, "Conflicting": 10, "Counting": 19, "DALL-E": 20, "Descriptions": 20, "Positional": 20}
    sizes |= {"Gary Marcus et al. ": 10, "Misspellings": 10, "Rare Words": 20, "Reddit": 25, "Text": 21}
    rows = [f"prompt {number} of {name},{name}" for name, count in sizes.items() for number in range(count)]
    path = write(tmp_path / "drawbench.csv", "\n".join(["Prompts,Category", *rows]))
    prompts = read_prompts(f"drawbench:{path}")
    assert len(prompts) == 104
    assert set(named_sets.DRAWBENCH_CATEGORIES) == {prompt.category for prompt in prompts}
    assert prompts[0] == Prompt("2", "prompt 0 of Colors", "Colors")
    other = write(tmp_path / "other.csv", "Prompts,Category\na,Text\n")
    with pytest.raises(InputError, match="has no prompt of the categories Colors, Conflicting"):
        read_prompts(f"drawbench:{other}")


def test_winoground_t2i_has_two_prompts_a_line(tmp_path):
    lines = ["0_61_326\tThe cat chases the mouse.\tThe mouse chases the cat.", "", "1_2\ta cup\t a bowl "]
    path = write(tmp_path / "dataset.txt", "\n".join(lines))
    prompts = read_prompts(f"winoground_t2i:{path}")
    assert [(prompt.id, prompt.text) for prompt in prompts] == [
        ("0_61_326-0", "The cat chases the mouse."),
        ("0_61_326-1", "The mouse chases the cat."),
        ("1_2-0", "a cup"),
        ("1_2-1", "a bowl"),
    ]
    assert prompts[2].content == {"pair": "1_2", "contrast": "a bowl"}
    for line, message in (
        ("1_3\ta cup", "line 4 of .* has 2 cells"),
        ("1_2\ta\tb", "line 4 of .* has the id '1_2' of line 3"),
        ("1_3\ta\t ", "line 4 of .* has an empty prompt"),
    ):
        other = write(tmp_path / "other.txt", "\n".join([*lines, line]))
        with pytest.raises(InputError, match=message):
            read_prompts(f"winoground_t2i:{other}")


def test_clevr_prompts_are_balanced_and_the_first_of_many_are_those_of_few():
    prompts = read_prompts("clevr")
    assert len(prompts) == 210
    assert set(collections.Counter(prompt.category for prompt in prompts).values()) == {30}
    assert read_prompts("clevr:10") == prompts[:10]
    assert len({prompt.id for prompt in prompts}) == 210
    many = read_prompts("clevr:5000")
    colours = collections.Counter(p.content["objects"][0]["color"] for p in many if p.category == "counting")
    assert max(colours.values()) - min(colours.values()) <= 3
    assert {p.text for p in many if p.category == "spatial"} >= {"On the left is a red cube."}
    # The embedded models know every word, and every content can be read.
    words = {word for p in many for word in p.text.lower().replace(".", " .").split()}
    assert words <= set(captions.VOCABULARY)
    assert json.loads(json.dumps(many[0].content)) == many[0].content


def test_content_is_true_of_the_scenes_that_the_text_is_true_of():
    """The captions' own side: every scene's questions say what is true and what is false of it."""
    scenes = clevr_scenes.sample_task_scenes(60, seed=5)
    meaning = {p.text: p.content for p in grammar.make_prompts(7 * 400)}
    seen = collections.Counter()
    for things in captions.describe(scenes):
        lacking = next(color for color in clevr_scenes.COLORS if color not in {thing.color for thing in things})
        for subtask, items in captions.items(things, lacking).items():
            for true, false in items:
                assert grammar.is_shown(meaning[true], things), true
                assert not grammar.is_shown(meaning[false], things), false
                seen[subtask] += 1
    assert set(seen) == set(captions.SUBTASKS)


def test_counting_needs_as_many():
    content = next(p.content for p in grammar.make_prompts(500) if p.text == "A red cube and a red cube.")
    cube = captions.Thing("cube", "red", "small", "metal", 0)
    other = cube._replace(shape="sphere")
    found = [grammar.is_shown(content, things) for things in ([cube], [cube, other], [cube, cube], [cube] * 3)]
    np.testing.assert_array_equal(found, [False, False, True, True])
