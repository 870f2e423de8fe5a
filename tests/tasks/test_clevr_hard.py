"""The tasks of harder questions: groups, chances, pictures, and an evaluation from end to end."""

import importlib.util
import pathlib

import numpy as np
import pytest
from PIL import Image

from winobench.clevr import questions
from winobench.evaluation import choice
from winobench.tasks import clevr_hard, get_task


@pytest.fixture(scope="module")
def sides():
    return clevr_hard.hard_tasks(3, image_size=32)


def test_they_are_asked_only_when_they_are_named(tmp_path):
    assert [get_task(f"clevr_hard{name}").count(str(tmp_path)) for name in ("", "_image", "_image_256")] == [2000] * 3
    ready = {task.name for task in choice.choose_tasks("ready", str(tmp_path))}
    assert "clevr" in ready
    assert not any(name.startswith("clevr_hard") for name in ready)
    assert [task.name for task in choice.choose_tasks("clevr_hard", str(tmp_path))] == ["clevr_hard"]


def test_chance_follows_from_the_candidates(sides):
    assert clevr_hard.CANDIDATES == questions.GROUPS
    text, image = sides
    for example in text.load(None, None):
        (group,) = example.groups
        assert text.chance[f"{group}/accuracy"] == 1 / len(example.texts)
    assert text.chance["accuracy"] == pytest.approx((3 / 2 + 2 / 4 + 1 / 6 + 2 / 3) / 8)
    assert image.chance == {"accuracy": 1 / 2}


def test_both_sides_ask_about_the_same_scenes(sides):
    text, image = (list(side.load(None, None)) for side in sides)
    assert [example.id for example in text] == [example.id for example in image]
    assert len({example.id for example in text}) == len(text) == 24 == sides[0].count(None)
    for one, two in zip(text, image, strict=True):
        assert two.texts == (one.texts[one.target],)
        assert one.groups == two.groups
        np.testing.assert_array_equal(one.images[0], two.images[0])
        assert two.images[0].shape == (32, 32, 3)
        assert two.images[0].dtype == np.uint8
        assert np.any(two.images[0] != two.images[1])


def test_limits_count_rounds(sides):
    text, _ = sides
    few, all_of_them = list(text.load(None, 2)), list(text.load(None, None))
    assert [(e.id, e.texts, e.target) for e in few] == [(e.id, e.texts, e.target) for e in all_of_them[:16]]
    assert [e.id for e in text.load(None, 9)] == [e.id for e in all_of_them]
    assert few[0].id == "round-000000/counting"
    fingerprints = {text.data_fingerprint(None, limit) for limit in (1, 2, 3)}
    fingerprints.add(clevr_hard.hard_tasks(3, image_size=64)[0].data_fingerprint(None, 3))
    fingerprints.add(clevr_hard.hard_tasks(3, seed=1, image_size=32)[0].data_fingerprint(None, 3))
    assert len(fingerprints) == 5
    assert text.data_fingerprint(None, 9) == text.data_fingerprint(None, None)


def test_questions_are_those_of_this_version():
    """When this fails on purpose, raise `questions.VERSION` and put the new values here."""
    asked = [questions.question(group, 0) for group in questions.GROUPS]
    assert [question.texts[question.target] for question in asked] == [
        "There are five brown objects.",
        "There is a red sphere, a blue cylinder and a brown cube.",
        "The red cylinder is right of the blue sphere.",
        "The red cube is in front of the yellow cylinder.",
        "The green cube is behind both the blue sphere and the cyan cube.",
        "The brown cube is smaller than the purple sphere.",
        "There is no brown sphere.",
        "Some cubes are green and some are not.",
    ]
    np.testing.assert_allclose(asked[0].scene.position[0, 0], [-0.646598, 2.94028], atol=1e-5)


@pytest.mark.slow
def test_the_drawn_questions_are_those_of_this_version():
    path = pathlib.Path(__file__).resolve().parents[2] / "docs" / "draw_hard_questions.py"
    spec = importlib.util.spec_from_file_location("draw_hard_questions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = np.asarray(Image.open(module.IMAGE).convert("RGB"), np.float64)
    drawn = module.draw()
    assert shown.shape == drawn.shape
    # Machines round differently, and their fonts may have other edges.
    assert np.abs(shown - drawn).mean() < 1.0
