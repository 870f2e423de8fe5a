"""Orders, numbers and groups by hand; that the scorer's errors stay the same is tested with the scorer."""

import numpy as np
import pytest

from winobench.scorers import sharing


def test_texts_of_an_image_and_a_sample_follow_each_other():
    triples = np.array([(7, 0, 0), (7, 0, 1), (7, 4, 0), (7, 4, 1), (2, 4, 5), (2, 0, 3), (7, 1, 1), (2, 0, 5)])
    assert triples[sharing.order(triples)].tolist() == [
        [7, 0, 0], [7, 4, 0], [7, 0, 1], [7, 1, 1], [7, 4, 1], [2, 0, 3], [2, 0, 5], [2, 4, 5],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("texts_about_each", "expected"),
    [([1, 1, 1], 1), ([2, 2], 2), ([3, 3, 1], 2), ([4], 4), ([7, 7], 4), ([8], 8), ([100, 1], 8), ([2] * 20 + [8], 2)],
)
def test_texts_to_share(texts_about_each, expected):
    pairs = [(image, text) for image, texts in enumerate(texts_about_each) for text in range(texts)]
    triples = [(image, text, sample) for image, text in pairs for sample in (0, 5)]
    assert sharing.texts_to_share(np.array(triples, np.int32)) == expected


def test_groups_by_hand():
    """Two devices with four texts each, in which at most three columns differ."""
    columns = np.array([[5, 5, 5, 6, 6, 6, 5, 5], [1, 1, 2, 2, 2, 2, 2, 2]])
    different, groups = sharing.group(columns, 2, 2)
    # The second device fills up its room with its first column.
    assert different.tolist() == [[5, 5, 6, 6, 5, 6], [1, 2, 2, 2, 2, 2]]
    assert groups.tolist() == [0, 0, 1, 2, 0, 0, 1, 1]
    assert groups.dtype == np.int32


@pytest.mark.parametrize(("size", "texts"), [(24, 2), (24, 4), (30, 4), (24, 8), (9, 2), (64, 8)])
def test_there_is_room_wherever_a_batch_begins(size, texts):
    about = np.repeat(np.arange(40), texts)
    for start in range(2 * texts):
        columns = about[start : start + size][None]
        different, groups = sharing.group(columns, 1, texts)
        np.testing.assert_array_equal(different[:, groups], columns)
        assert different.shape == (1, max(len(np.unique(about[first : first + size])) for first in range(texts)))


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        ([[0, 0, 0, 0, 0, 0, 0, 0]], 1),
        ([[0, 1, 2, 3, 4, 4, 4, 4]], 4),
        ([[0, 0, 0, 0, 1, 2, 3, 4]], 4),  # the second device has too many
    ],
)
def test_nothing_is_shared(columns, texts):
    columns = np.array(columns)
    different, groups = sharing.group(columns, 2, texts)
    assert groups is None
    assert different is columns


@pytest.mark.parametrize("size", [1, 2])
def test_so_few_texts_share_nothing(size):
    """There would be room for all of them."""
    columns = np.zeros((3, size), int)
    assert sharing.group(columns, 1, 2) == (columns, None)
