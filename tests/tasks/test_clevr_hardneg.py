"""Validation on CLEVR with hard negatives."""

import numpy as np
import pytest

from winobench import tasks
from winobench.tasks import clevr_hardneg
from winobench.tasks import clevr_negatives as negatives

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


@pytest.mark.slow
def test_limits(sides):
    assert not {side.name for side in sides} & set(tasks.TASKS)
    assert [example.id for example in sides[0].load(None, 2)] == [e.id for e in sides[0].load(None, None)][:28]
    assert sides[1].data_fingerprint(None, 2) != sides[1].data_fingerprint(None, None)
    assert sides[1].data_fingerprint(None, 9) == sides[1].data_fingerprint(None, None)
