"""Pictures of texts: those of a run, those of a user's table, and what is missing or has changed."""

import hashlib
import json
import shutil

import pytest

from tests.expectations import raises
from tests.generation import fakes
from winobench.generation.finding import find_images
from winobench.prompts.prompt_files import Prompt

TEXTS = ["A tomato  burst.", 'A "green" tomato, hard\nas wood.']


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    # Blanks inside stay as they are.
    prompts = [Prompt("0", TEXTS[0]), Prompt("1", " ".join(TEXTS[1].split()))]
    return fakes.draw(tmp_path_factory.mktemp("drawn") / "run", "one", "two", prompts=prompts, seeds=(4, 2, 9)).folder


@pytest.fixture
def run(drawn, tmp_path):
    return shutil.copytree(drawn, tmp_path / "run")


def test_pictures_of_a_run_are_found_by_text_and_seed(run):
    found = find_images(run, TEXTS, most=2, model="two")
    assert list(found) == TEXTS
    for number, text in enumerate(TEXTS):
        paths = [run / "pictures" / "two" / seed / f"{number:05d}.png" for seed in ("4", "2")]
        assert [one.path for one in found[text]] == list(map(str, paths))
        assert [one.sha256 for one in found[text]] == [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    assert find_images(run, TEXTS[:1], most=1, model="the one")[TEXTS[0]][0].path.endswith("one/4/00000.png")


def test_what_is_missing_is_named(run):
    def find(texts=TEXTS, most=2, model="one"):
        return find_images(run, texts, most=most, model=model, how="winobench generate")

    with raises("no-picture", repr("A pear."), "winobench generate"):
        find([*TEXTS, "A pear."])
    with raises("too-few-pictures", "3", "4", "--images_per_premise"):
        find(most=4)
    with raises("unknown-name", "the one", "the two", "--generator"):
        find(model="sd15")
    file = run / "pictures" / "one" / "2" / "00001.png"
    content = file.read_bytes()
    file.write_bytes(bytes(reversed(content)))  # of the same size
    with raises("file-changed", str(file), repr(TEXTS[1]), "winobench generate"):
        find()
    file.unlink()
    with raises("no-picture", str(file), "winobench generate"):
        find()
    assert find(TEXTS[:1])  # nobody asks for the other ones
    assert find(most=1)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_pictures_of_ones_own(run, tmp_path, suffix):
    table = tmp_path / f"mine{suffix}"
    files = [f"run/pictures/one/{seed}/00000.png" for seed in (4, 2, 9)]
    rows = [(TEXTS[0], files[0]), ("Of nobody.", "nowhere.png"), (TEXTS[0], files[1]), (TEXTS[0], files[2])]
    if suffix == ".csv":
        table.write_text("premise,file\n" + "".join(f'"{text}",{file}\n' for text, file in rows))
    else:
        table.write_text("".join(json.dumps({"premise": text, "file": file}) + "\n" for text, file in rows))
    found = find_images(table, TEXTS[:1], most=2)
    assert [one.path for one in found[TEXTS[0]]] == [str(tmp_path / file) for file in files[:2]]
    with raises("no-picture", str(table), repr(TEXTS[1])):
        find_images(table, TEXTS, most=2)
    (tmp_path / files[1]).unlink()
    with raises("cannot-read", str(table), str(tmp_path / files[1])):
        find_images(table, TEXTS[:1], most=2)
    assert find_images(table, TEXTS[:1], most=1)
    if suffix == ".jsonl":
        table.write_text('{"premise": "A pear."}\n')
        with raises("wrong-type", str(table), "1"):
            find_images(table, ["A pear."], most=1)
