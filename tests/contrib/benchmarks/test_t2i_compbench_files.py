"""T2I-CompBench's noun phrases: small files in the published layouts, and damaged ones."""

import json

import pytest

from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import t2i_compbench
from winobench.prompts.named_sets import read_prompts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # As spaCy 3.8 with en_core_web_sm 3.8.0 finds them.
        ("a green bench and a blue bowl", ("a green bench", "a blue bowl")),
        ("an oval picture and a rectangular frame.", ("an oval picture", "a rectangular frame")),
        ("a round bagel and a square piece of toast", ("a round bagel", "a square piece", "toast")),
        ("rubber sole shoes and fluffy clouds", ("rubber sole shoes", "fluffy clouds")),
        # spaCy takes both for one phrase.
        ("a metallic key and fluffy clouds", ("a metallic key", "fluffy clouds")),
        # Other forms are not read.
        ("A red carpet in a bathroom with white fixtures.", ()),
        ("The round knob and the square plate were attached to the door.", ()),
        ("two white sheep, a black goat and a white goat in a field", ()),
        ("a dog", ()),
        ("", ()),
    ],
)
def test_noun_phrases_of_the_template(text, expected):
    assert t2i_compbench.read_template(text) == expected


def test_a_file_of_phrases_counts_before_the_template(tmp_path):
    (tmp_path / "color_val.txt").write_text("a red cube and a top\na blue bowl on the side \n")
    plain = read_prompts(f"t2i_compbench:{tmp_path}")
    assert [prompt.content for prompt in plain] == [None, None]
    assert t2i_compbench.phrases(plain[0].content, plain[0].text) == ("a red cube", "a top")
    rows = [
        {"prompt": "a red cube and a top", "phrases": ["a red cube", "top"]},
        {"prompt": "a blue bowl on the side", "phrases": ["a blue bowl", "the side", *"abcdefgh"]},
    ]
    (tmp_path / "color_val_phrases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read_prompts(f"t2i_compbench:{tmp_path}")
    assert first.content == {"phrases": ["a red cube", "top"]}
    assert t2i_compbench.phrases(first.content, first.text) == ("a red cube",)
    assert t2i_compbench.phrases(second.content, second.text) == ("a blue bowl", *"abcdefg")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"prompt": "a"}\n', r"line 1 of .*color_val_phrases\.jsonl has no prompt and phrases"),
        ('{"prompt": "a", "phrases": [""]}\n', r"line 1 of .*color_val_phrases\.jsonl has no prompt and phrases"),
        ('{"prompt": "c", "phrases": []}\n', "line 1 of .* has a prompt that is not in the file of prompts"),
        ('{"prompt": "a", "phrases": ["x"]}\n', "lacks 1 of 2 prompts"),
        ('{"prompt": "a", "phrases": ["x"]}\n{"prompt": "a", "phrases": []}\n', "line 2 of .* gives a prompt other"),
        ("x\n", "line 1 of .* cannot be read as JSON"),
        ("", "lacks 2 of 2 prompts"),
    ],
)
def test_damaged_files_of_phrases(tmp_path, content, said):
    (tmp_path / "color_val.txt").write_text("a\nb\n")
    (tmp_path / "color_val_phrases.jsonl").write_text(content)
    with pytest.raises(InputError, match=said) as error:
        read_prompts(f"t2i_compbench:{tmp_path}/color_val.txt")
    assert "\n" not in str(error.value)


def test_t2i_compbench_is_a_file_or_a_folder(tmp_path):
    (tmp_path / "color_val.txt").write_text("a red cube\na blue bowl\na red cube\n")
    (tmp_path / "spatial_val.txt").write_text("a cube left of a bowl\n")
    (tmp_path / "color_train.txt").write_text("not this\n")
    prompts = read_prompts(f"t2i_compbench:{tmp_path}")
    assert [prompt.id for prompt in prompts] == ["color-1", "color-2", "color-3", "spatial-1"]
    assert [prompt.category for prompt in prompts] == ["color"] * 3 + ["spatial"]
    assert read_prompts(f"t2i_compbench:{tmp_path}/spatial_val.txt") == prompts[3:]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no file <category>_val.txt"):
        read_prompts(f"t2i_compbench:{tmp_path}/empty")
