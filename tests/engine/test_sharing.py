from unittest import mock

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from winobench.engine import sharing


def test_texts_of_an_image_and_a_sample_follow_each_other():
    triples = np.array([(7, 0, 0), (7, 0, 1), (7, 4, 0), (7, 4, 1), (2, 4, 5), (2, 0, 3), (7, 1, 1), (2, 0, 5)])
    assert triples[sharing.order(triples)].tolist() == [
        [7, 0, 0], [7, 4, 0], [7, 0, 1], [7, 1, 1], [7, 4, 1], [2, 0, 3], [2, 0, 5], [2, 4, 5],
    ]  # fmt: skip


@mock.patch.object(sharing, "WORTH_A_PROGRAM", 0)
@pytest.mark.parametrize(
    ("texts_about_each", "expected"),
    [
        *(([1, 1, 1], 1), ([3, 3, 1], 2), ([4], 4), ([100, 1], 8)),
        *(([2] * 20 + [8], 2), ([2] * 2 + [4] * 3, 4), ([2] * 3 + [4] * 2, 2)),
    ],
)
def test_texts_to_share(texts_about_each, expected):
    pairs = [(image, text) for image, texts in enumerate(texts_about_each) for text in range(texts)]
    triples = [(image, text, sample) for image, text in pairs for sample in (0, 5)]
    assert sharing.texts_to_share(np.array(triples, np.int32)) == expected


@pytest.mark.parametrize(
    ("texts_about_each", "expected"),
    [([4, 1], 1), ([2] * 2 + [4] * 3, 2), ([4] * 84 + [1], 4), ([4] * 83 + [1], 1), ([4] * 84, 4)],
)
def test_a_second_program_has_to_pay(texts_about_each, expected):
    """With 84 images, 4 texts and 4 samples, sharing saves 1,008 triples."""
    pairs = [(image, text) for image, texts in enumerate(texts_about_each) for text in range(texts)]
    triples = [(image, text, sample) for image, text in pairs for sample in range(4)]
    assert sharing.texts_to_share(np.array(triples, np.int32)) == expected


def test_groups_by_hand():
    """Two devices with four texts each, in which at most three columns differ."""
    columns = np.array([[5, 5, 5, 6, 6, 6, 5, 5], [1, 1, 2, 2, 2, 2, 2, 2]])
    different, groups = sharing.group(columns, 2, 2)
    # The second device fills up its room with its first column.
    assert different.tolist() == [[5, 5, 6, 6, 5, 6], [1, 2, 2, 2, 2, 2]]
    assert groups.tolist() == [0, 0, 1, 2, 0, 0, 1, 1]
    assert groups.dtype == np.int32


def test_a_difference_in_any_column_counts():
    columns = np.array([[5] * 8, [1, 1, 1, 1, 2, 2, 2, 2], [7, 7, 8, 8, 8, 8, 8, 8]])
    different, groups = sharing.group(columns, 2, 2)
    assert different.tolist() == [[5] * 6, [1, 1, 1, 2, 2, 2], [7, 8, 7, 8, 8, 8]]
    assert groups.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


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
        ([[0, 0, 0, 0, 1, 2, 3, 3]], 4),  # by one
    ],
)
def test_nothing_is_shared(columns, texts):
    columns = np.array(columns)
    different, groups = sharing.group(columns, 2, texts)
    assert groups is None
    assert different is columns


def triples_with(texts_of_images, samples=(0, 1)):
    return np.array(
        [(image, text, sample) for image, n in texts_of_images for text in range(n) for sample in samples], np.int32
    )


def test_those_with_enough_texts_are_shared_and_come_first():
    triples = triples_with([(0, 3), (1, 4), (2, 5)])
    shared = sharing.Shared(triples, 4)
    np.testing.assert_array_equal(shared.of(triples), triples[:, 0] > 0)
    # Whichever are asked about: all triples decide.
    np.testing.assert_array_equal(shared.of(triples[::-3]), triples[::-3, 0] > 0)
    ordered = triples[sharing.order(triples, shared.of(triples))]
    assert ordered[:, 0].tolist() == [1] * 8 + [2] * 10 + [0] * 6
    assert ordered[:4].tolist() == [[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0]]
    two = triples_with([(0, 2), (1, 1)])
    np.testing.assert_array_equal(sharing.Shared(two, 2).of(two), two[:, 0] == 0)
    assert not sharing.Shared(triples, 1).of(triples).any()
    # Image 1 with sample 0 is not image 0 with sample 32.
    apart = np.array([(1, 0, 0), (0, 1, 32)], np.int32)
    assert not sharing.Shared(apart, 2).of(apart).any()


def test_images_and_samples_of_any_number_are_kept_apart():
    last = 2**31 - 1
    triples = np.array([(1, 0, 0), (1, 1, 0), (0, 0, last), (0, 1, last), (last, 0, 0), (last, 0, 1)], np.int32)
    assert sharing.Shared(triples, 2).of(triples).tolist() == [True] * 4 + [False] * 2


def test_batches_by_hand():
    """Two devices with six texts each; four texts about each image and sample leave room for three of them."""
    triples = triples_with([(0, 5), (1, 1), (2, 4)])
    shared = sharing.Shared(triples, 4)
    ordered = triples[sharing.order(triples, shared.of(triples))]
    batches = [batch.tolist() for batch in sharing.cut(ordered, shared.of(ordered), 2, 6, 4)]
    assert batches == [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        [12, 13, 14, 15, 16, 17, -1, -1, -1, -1, -1, -1],
        [18, 19, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1],
    ]


@mock.patch.object(sharing, "WORTH_A_PROGRAM", 0)
@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(
    texts=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    left=st.lists(st.booleans(), min_size=1, max_size=30),
    parts=st.integers(1, 3),
    size=st.integers(1, 12),
)
def test_every_batch_fits_its_program(texts, left, parts, size):
    # Numbers of images fall as well as rise.
    whole = triples_with([(7 * number % 11, n) for number, n in enumerate(texts)], samples=range(2))
    number = sharing.texts_to_share(whole)
    shared = sharing.Shared(whole, number)
    some = whole[np.resize(left, len(whole))]
    hypothesis.assume(len(some))
    ordered = some[sharing.order(some, shared.of(some))]
    is_shared = shared.of(ordered)
    room = sharing.room(size, number)
    seen = []
    for batch in sharing.cut(ordered, is_shared, parts, size, number):
        assert batch.shape == (parts * size,)
        places = batch[batch >= 0]
        assert len(set(is_shared[places])) == 1  # one program for all of it
        assert batch[0] >= 0
        for part in batch.reshape(parts, size):
            rows = part[part >= 0]
            assert (part[: len(rows)] == rows).all()  # empty places come last
            if is_shared[places[0]] and room is not None:
                assert len(np.unique(ordered[rows][:, [0, 2]], axis=0)) <= room
        seen += places.tolist()
    assert seen == list(range(len(ordered)))
