"""GenAI-Bench's files in the published layout, and damaged ones."""

import json

import pytest

from winobench.base.errors import InputError
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
    with pytest.raises(
        InputError, match=r"genai_skills\.json cannot be read .*: get both files as they were published"
    ):
        read_prompts(f"genai_bench:{tmp_path}")
