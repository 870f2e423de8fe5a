"""GenAI-Bench's files and T2I-CompBench's noun phrases: small files in the published layouts, and damaged ones."""

import json

import pytest

from winobench.base.errors import InputError
from winobench.prompts import t2i_compbench
from winobench.prompts.named_sets import read_prompts
from winobench.prompts.prompt_files import Prompt

IMAGES = {
    "00000": {"prompt": "A baker pulls bread out of the oven.", "models": {"DALLE_3": [5, 5, 4]}},
    "00001": {"prompt": "Three cats and no dog.", "models": {"DALLE_3": [1, 2, 1]}},
    "00002": {"prompt": "A bowl.", "models": {}},
}
SKILLS = {"attribute": [0], "basic": [0], "counting": [1], "negation": [1], "advanced": [1]}


def write(folder, images=IMAGES, skills=SKILLS):
    for name, content in (("genai_image.json", images), ("genai_skills.json", skills)):
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder)


def test_genai_bench_has_skills(tmp_path):
    expected = [
        Prompt("00000", "A baker pulls bread out of the oven.", "basic", {"skills": ["attribute", "basic"]}),
        Prompt("00001", "Three cats and no dog.", "advanced", {"skills": ["counting", "negation", "advanced"]}),
        Prompt("00002", "A bowl.", "", {"skills": []}),
    ]
    assert read_prompts(f"genai_bench:{write(tmp_path)}") == expected
    assert read_prompts(f"genai_bench:{tmp_path}/genai_image.json") == expected


@pytest.mark.parametrize(
    ("images", "skills", "said"),
    [
        ("[]", SKILLS, r"genai_image\.json must hold a JSON object, but holds a list"),
        ("{", SKILLS, r"genai_image\.json cannot be read as JSON"),
        ({"00000": "A bowl."}, {}, r"'00000' in .*genai_image\.json has no prompt"),
        ({"00000": {"prompt": " "}}, {}, r"'00000' in .*genai_image\.json has an empty prompt"),
        (IMAGES, {"counting": 1}, r"'counting' in .*genai_skills\.json is not a list of numbers of prompts"),
        (IMAGES, {"counting": [True]}, r"'counting' in .*genai_skills\.json is not a list of numbers of prompts"),
        (IMAGES, {"counting": [7]}, r"names the prompt 7, which genai_image\.json does not have"),
        (IMAGES, {"counting": [1, 1]}, r"'counting' in .*genai_skills\.json names the prompt 1 twice"),
        (IMAGES, "", r"genai_skills\.json cannot be read as JSON"),
    ],
)
def test_damaged_files_of_genai_bench(tmp_path, images, skills, said):
    with pytest.raises(InputError, match=said) as error:
        read_prompts(f"genai_bench:{write(tmp_path, images, skills)}")
    assert "\n" not in str(error.value)


def test_genai_bench_needs_both_files(tmp_path):
    write(tmp_path)
    (tmp_path / "genai_skills.json").unlink()
    with pytest.raises(InputError, match=r"genai_skills.json cannot be read .*: get both files as they were published"):
        read_prompts(f"genai_bench:{tmp_path}")


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
