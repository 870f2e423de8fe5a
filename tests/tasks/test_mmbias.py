"""MMBias."""

import json
import shutil

import numpy as np
import pytest

from launch import prepare as launcher
from tests.expectations import raises
from tests.tasks import published_layouts
from winobench.evaluation import evaluate
from winobench.report import published
from winobench.tasks import TASKS, mmbias


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_mmbias(tmp_path)


def test_every_image_has_all_phrases(folder):
    items = list(TASKS["mmbias"].source.read(folder))
    assert len(items) == 9 * 3  # hidden files and other groups are left out
    assert [item.groups for item in items[::3]] == [(group,) for group in mmbias.GROUPS]
    assert items[0].id == "Christian/1"
    assert items[-1].images[0].path == folder / "data" / "Images" / "Sexual Orientation" / "LGBT" / "3.jpg"
    assert all(item.texts == mmbias.PLEASANT + mmbias.UNPLEASANT for item in items)


def test_pairs_of_tables_3_and_5():
    pairs = TASKS["mmbias"].association.pairs
    names = "Christian-Muslim Christian-Jewish Jewish-Muslim Hindu-Muslim American-Arab Heterosexual-LGBT"
    names += " Buddhist-Muslim Buddhist-Christian Buddhist-Hindu Buddhist-Jewish"
    assert [pair.name for pair in pairs] == names.split()
    for pair in pairs:
        assert pair.name == f"{pair.group_x}-{pair.group_y}"
        assert {pair.group_x, pair.group_y} <= set(mmbias.GROUPS)
        assert (pair.texts_a, pair.texts_b) == (mmbias.PLEASANT, mmbias.UNPLEASANT)


def test_the_repositorys_own_place_of_the_phrases_does_as_well(folder):
    expected = list(mmbias.read(folder))
    (folder / "textual_phrases.txt").rename(folder / "data" / "textual_phrases.txt")
    assert list(mmbias.read(folder)) == expected


class ByNumber:
    """Needs no model: the score depends on the place of the text and on the picture."""

    def score(self, images, texts):
        means = [np.asarray(image).mean() for image in images]
        return np.array([[(mean * (len(text) % 7)) % 5 for text in texts] for mean in means])

    def fingerprint(self):
        return {"scorer": "by number"}


def test_a_data_set_without_a_category_has_the_pairs_that_are_there(folder, tmp_path, capsys):
    shutil.rmtree(folder / "data" / "Images" / "Nationality")
    shutil.rmtree(folder / "data" / "Images" / "Religion" / "Jewish")
    data_dir = str(tmp_path / "prepared")
    assert launcher.prepare_tasks("mmbias", str(folder), data_dir, workers=1) == ["mmbias"]
    assert capsys.readouterr().err.count("error: mmbias: the folder") == 1
    assert launcher.prepare_tasks("mmbias", str(folder), data_dir, workers=1, allow_partial=True) == []
    task = TASKS["mmbias"]
    assert "(partial)" in capsys.readouterr().out
    assert {group for example in task.load(data_dir, None) for group in example.groups} == {
        *mmbias.GROUPS.keys() - {"Jewish", "American", "Arab"}
    }

    results = evaluate.evaluate(ByNumber(), ["mmbias"], tmp_path / "run", data_dir=data_dir, progress=False)
    rows = results["tasks"]["mmbias"]
    names_of_pairs = ["-".join(pair) for pair in mmbias.PAIRS]
    left_out = [name for name in names_of_pairs if {"Jewish", "American"} & set(name.split("-"))]
    assert len(left_out) == 4
    assert set(rows["average_absolute_effect_size"]["left_out"]) >= set(left_out)
    assert set(rows) & set(names_of_pairs) <= set(names_of_pairs) - set(left_out)
    # The paper's average is over ten pairs; its pairs stand beside ours as ever.
    results["config"]["model"] = "clip-rn50x64"
    beside = {metric for _, metric in published.references(results)}
    assert beside == set(rows) & set(names_of_pairs) != set()

    # Once the rest is there, the same command without the option prepares all of it.
    published_layouts.write_mmbias(folder)
    assert launcher.prepare_tasks("mmbias", str(folder), data_dir, workers=1) == []
    assert task.count(data_dir) == 27


def test_without_any_pair_there_is_nothing_to_evaluate(folder):
    for category in ("Nationality", "Sexual Orientation"):
        shutil.rmtree(folder / "data" / "Images" / category)
    for group in ("Christian", "Muslim", "Jewish", "Buddhist"):
        shutil.rmtree(folder / "data" / "Images" / "Religion" / group)
    with raises("missing-images", "Images", "Buddhist-Jewish"):
        list(mmbias.read(folder, partial=True))


def test_published_phrases(reference_data):
    phrases = json.loads((reference_data / "gdbench" / "mmbias" / "textual_phrases.txt").read_text())
    assert tuple(phrases["pleasant_phrases"]) == mmbias.PLEASANT
    assert tuple(phrases["unpleasant_phrases"]) == mmbias.UNPLEASANT
    assert len(set(mmbias.PLEASANT)) == len(set(mmbias.UNPLEASANT)) == 60
