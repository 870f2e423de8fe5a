"""Validation on CLEVR with hard negatives."""

import numpy as np
import pytest

from winobench import tasks
from winobench.clevr import negatives
from winobench.evaluation import evaluate
from winobench.tasks import clevr_common, clevr_hardneg

SIZE = 32


@pytest.fixture(scope="module")
def sides():
    return clevr_hardneg.validation_tasks(4, image_size=SIZE)


@pytest.mark.slow
def test_both_sides_ask_about_the_rows(sides):
    rows = negatives.ClevrNegatives(4, split="validation", image_size=SIZE)
    text, image = (list(side.load(None, None)) for side in sides)
    assert len(text) == len(image) == sides[0].count(None) == len({example.id for example in text}) == 4 * 14
    for number, row in enumerate(rows.rows):
        assert text[number].texts == (row.caption, *row.negative_captions)
        assert image[number].texts == (row.caption,)
        assert text[number].groups == image[number].groups == (rows.groups[number],)
        np.testing.assert_array_equal(text[number].images[0], rows.images[row.image])
        np.testing.assert_array_equal(image[number].images[0], rows.images[row.image])
        assert any(np.array_equal(image[number].images[1], rows.images[n]) for n in row.negative_images)
    # Every change is some caption's wrong image.
    wrong = {example.images[1].tobytes() for example in image}
    for variant in range(1, len(negatives.VARIANTS)):
        assert any(rows.images[7 * scene + variant].tobytes() in wrong for scene in range(4))


def test_limits(sides):
    assert [example.id for example in sides[0].load(None, 2)] == [e.id for e in sides[0].load(None, None)][:28]
    assert sides[1].data_fingerprint(None, 2) != sides[1].data_fingerprint(None, None)
    assert sides[1].data_fingerprint(None, 9) == sides[1].data_fingerprint(None, None)


@pytest.mark.slow
def test_scenes_are_neither_trained_on_nor_evaluated():
    def hashes(source):
        return {source.images[n * 7].tobytes() for n in range(8)}

    validation = hashes(negatives.ClevrNegatives(8, split="validation"))
    train = hashes(negatives.ClevrNegatives(8, split="train"))
    evaluation = {image.tobytes() for image in clevr_common.evaluation_images(8)}
    assert len(validation | train | evaluation) == 24


def test_they_are_evaluated_but_not_listed(sides, tmp_path):
    assert not {side.name for side in sides} & set(tasks.TASKS)

    class Redness:
        def score(self, images, texts):
            return np.asarray([[np.asarray(image)[..., 0].mean() + len(text) for text in texts] for image in images])

    results = evaluate.evaluate(Redness(), sides, tmp_path / "run", limit=2, progress=False)
    assert {name: found["accuracy"]["n"] for name, found in results["tasks"].items()} == {
        "clevr_hardneg_text": 28,
        "clevr_hardneg_image": 28,
    }
