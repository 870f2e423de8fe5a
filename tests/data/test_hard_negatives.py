"""Batches of training sets with hard negatives: what a row comes with, order, and resuming."""

import collections
import itertools
import types

import numpy as np
import pytest

from tests.data import published_files
from tests.expectations import raises
from winobench.data import hard_negatives, images
from winobench.data.example import ImageFile, Item
from winobench.data.hard_negatives import Row

ROWS = [
    Row(0, "a dog", ("a cat", "dog a"), (1, 2)),
    Row(0, "the dog", ("the cat",), (3,)),
    Row(1, "a cat", ("a dog",), (0,)),
    Row(2, "a horse", ("a house", "a hearse"), (0, 1, 3)),
    Row(3, "a dog", ("dog a",), (2,)),
]
COPIES = 50  # of the same rows about other images: Grain takes milliseconds a row to shuffle five
TEXTS = sorted({text for row in ROWS for text in (row.caption, *row.negative_captions)})


def tokenize(texts):
    return np.asarray([[TEXTS.index(text), len(text)] for text in texts])


@pytest.fixture
def source():
    """Image n's latents are full of n + 1/4."""
    rows = [
        row._replace(image=row.image + first, negative_images=tuple(image + first for image in row.negative_images))
        for first in range(0, 4 * COPIES, 4)
        for row in ROWS
    ]
    latents = [np.full((2, 2, 3), number + 0.25, np.float16) for number in range(4 * COPIES)]
    return types.SimpleNamespace(rows=rows, latents=latents)


def batches(source, count, **options):
    options = {"batch_size": 3, "seed": 7, **options}
    return list(itertools.islice(hard_negatives.batches(source, tokenize, **options), count))


def drawn(source, count, **options):
    """(image, caption, negative caption, random caption, negative image) of rows, as they come."""
    found = []
    for batch in batches(source, count, **options):
        of_images, of_texts = ("latents", "negative_latents"), ("input_ids", "negative_ids", "random_ids")
        dtypes = {name: array.dtype.name for name, array in batch.items()}
        assert dtypes == dict.fromkeys(of_images, "float32") | dict.fromkeys(of_texts, "int32")
        image, negative = (batch[name][:, 0, 0, 0] - 0.25 for name in of_images)
        texts = [[TEXTS[n] for n in batch[name][:, 0]] for name in of_texts]
        found += zip(image.astype(int).tolist(), *texts, negative.astype(int).tolist(), strict=True)
    return found


def test_rows_come_with_their_own_negatives_and_captions_of_others(source):
    found = drawn(source, 12 * COPIES, batch_size=5)
    by_row = collections.defaultdict(list)
    for image, caption, *rest, negative in found:
        assert image // 4 == negative // 4
        by_row[image % 4, caption].append((*rest, negative % 4))
    assert by_row.keys() == {(row.image, row.caption) for row in ROWS}
    for row in ROWS:
        mine = by_row[row.image, row.caption]
        assert len(mine) == 600
        texts, others, negatives = (collections.Counter(column) for column in zip(*mine, strict=True))
        # "a dog" is said of two images: never random for either, twice as frequent for the others.
        own = {other.caption for other in ROWS if other.image == row.image}
        weights = collections.Counter(other.caption for other in ROWS if other.caption not in own)
        for counts, shares in (
            (texts, dict.fromkeys(row.negative_captions, 1 / len(row.negative_captions))),
            (negatives, dict.fromkeys(row.negative_images, 1 / len(row.negative_images))),
            (others, {text: weight / weights.total() for text, weight in weights.items()}),
        ):
            assert counts.keys() == shares.keys()
            assert all(abs(counts[key] - 600 * p) <= 5 * (600 * p * (1 - p)) ** 0.5 for key, p in shares.items())


def test_batch_n_depends_on_seed_and_n_alone(source):
    whole = batches(source, 12)
    for first in (1, 5, 11):
        (batch,) = batches(source, 1, first_batch=first, num_threads=3)
        for name, array in batch.items():
            np.testing.assert_array_equal(array, whole[first][name])
    others = batches(source, 12, seed=8)
    assert all((a["latents"] != b["latents"]).any() for a, b in zip(whole, others, strict=True))


def test_parts_are_the_batch_cut_up(source):
    """What two or four processes read, in order, is what one reads."""
    whole = batches(source, 5, batch_size=4, seed=7)
    for num_parts in (2, 4):
        for first in (0, 3):
            parts = [
                batches(source, 5 - first, batch_size=4, seed=7, first_batch=first, part=part, num_parts=num_parts)
                for part in range(num_parts)
            ]
            for expected, *pieces in zip(whole[first:], *parts, strict=True):
                for name, array in expected.items():
                    np.testing.assert_array_equal(np.concatenate([piece[name] for piece in pieces]), array)
    with raises("indivisible-batch", "4", "3"):
        batches(source, 1, batch_size=4, seed=7, num_parts=3)


def test_draws_depend_on_epoch_and_row_and_not_on_the_batches(source):
    count = len(source.rows)
    assert drawn(source, 10, batch_size=3) == drawn(source, 6, batch_size=5)
    whole = drawn(source, 2, batch_size=count)
    assert sorted(whole[:count]) != sorted(whole[count:])
    orders = [[row[:2] for row in whole[start : start + count]] for start in (0, count)]
    assert all(sorted(order) == sorted((row.image, row.caption) for row in source.rows) for order in orders)
    assert orders[0] != orders[1]


def test_every_text_is_tokenized_once(source):
    asked = []

    def counting(texts):
        asked.extend(texts)
        return tokenize(texts)

    list(itertools.islice(hard_negatives.batches(source, counting, batch_size=3, seed=0), 10))
    assert sorted(asked) == TEXTS


def test_bad_rows(source):
    for rows, message in (
        ([*ROWS, Row(1, "x", (), (0,))], ("no-negative", "5", "'x'")),
        (ROWS[:2], ("no-other-caption", "2")),
    ):
        source.rows = rows
        with raises(*message):
            batches(source, 1)


def test_prepared_sets(tmp_path):
    files = [ImageFile(path) for path in published_files.make_images(tmp_path / "source", 4)]
    items = []
    for number, row in enumerate(ROWS):
        own = tuple(files[n] for n in (row.image, *row.negative_images))
        items.append(Item(str(number), own, (row.caption, *row.negative_captions)))
    state = published_files.prepare(tmp_path / "toy", items, tmp_path / "source")
    assert state["num_images"] == 4
    source = hard_negatives.PreparedSource(tmp_path / "toy")
    source.verify()
    assert source.fingerprint == state["content"]
    # Images are numbered in the order in which rows name them, which is that of the files here.
    assert source.rows == ROWS
    assert [images.image_hash(image.open()) for image in source.images] == [images.image_hash(f.path) for f in files]
    (tmp_path / "toy" / "images" / "1.0.0" / "dataset_info.json").write_text("")
    with raises("damaged-file"):
        source.verify()
    with raises("not-prepared"):
        hard_negatives.PreparedSource(tmp_path)
