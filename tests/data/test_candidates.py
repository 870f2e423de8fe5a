"""Lists of the most similar candidates, against a plain search."""

import numpy as np
import pytest

from tests.expectations import raises
from winobench.data import candidates


def plain_lists(images, texts, owner, k, also_true=()):
    """Every list by sorting all candidates; the plain way, in float64."""
    images = np.asarray(images, np.float64) / np.linalg.norm(images, axis=1, keepdims=True)
    texts = np.asarray(texts, np.float64) / np.linalg.norm(texts, axis=1, keepdims=True)
    true = {(text, image) for text, image in enumerate(owner)} | {tuple(pair) for pair in also_true}
    similarities = (texts @ images.T).round(6)
    by_text = [
        [own, *sorted((i for i in range(len(images)) if (t, i) not in true), key=lambda i: (-similarities[t, i], i))]
        for t, own in enumerate(owner)
    ]
    by_image = [
        [
            list(owner).index(i),
            *sorted((t for t in range(len(texts)) if (t, i) not in true), key=lambda t: (-similarities[t, i], t)),
        ]
        for i in range(len(images))
    ]
    return [row[:k] for row in by_text], [row[:k] for row in by_image]


def test_worked_by_hand():
    images = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    texts = np.array([[0.0, 2.0], [1.0, 0.0], [1.0, 0.1], [0.1, 1.0]])
    lists = candidates.top_k_lists(images, texts, [0, 0, 1, 2], k=2)
    # Text 0 points along image 1 but belongs to image 0, which comes first; texts 0 and 1 are never wrong for image 0.
    assert lists.images.tolist() == [[0, 1], [0, 2], [1, 0], [2, 1]]
    assert lists.texts.tolist() == [[0, 2], [2, 0], [3, 2]]


@pytest.mark.parametrize(("num_images", "k"), [(12, 10), (40, 3)])
def test_the_search_is_exact(num_images, k, monkeypatch):
    monkeypatch.setattr(candidates, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(candidates, "_BLOCK_COLUMNS", 5)
    rng = np.random.default_rng(num_images)
    owner = np.concatenate([np.arange(num_images), rng.integers(0, num_images, 20)])
    rng.shuffle(owner)
    images = rng.normal(size=(num_images, 4)).astype(np.float32)
    texts = (images[owner] + rng.normal(size=(len(owner), 4))).astype(np.float32)
    also_true = np.array([[0, (owner[0] + 1) % num_images], [5, (owner[5] + 1) % num_images]])
    lists = candidates.top_k_lists(images, texts, owner, k, also_true=also_true)
    by_text, by_image = plain_lists(images, texts, owner.tolist(), k, also_true.tolist())
    assert lists.images.tolist() == by_text
    assert lists.texts.tolist() == by_image


def test_equal_candidates_come_in_their_order(monkeypatch):
    rng = np.random.default_rng(0)
    few = rng.normal(size=(3, 8)).astype(np.float32)
    images, texts = few[rng.integers(0, 3, 30)], few[rng.integers(0, 3, 40)] * 2
    owner = np.concatenate([np.arange(30), np.arange(10)])
    expected = plain_lists(images, texts, owner.tolist(), 6)
    for rows, columns in ((1024, 8192), (7, 4), (40, 1)):
        monkeypatch.setattr(candidates, "_BLOCK_ROWS", rows)
        monkeypatch.setattr(candidates, "_BLOCK_COLUMNS", columns)
        lists = candidates.top_k_lists(images, texts, owner, 6)
        assert (lists.images.tolist(), lists.texts.tolist()) == expected


@pytest.mark.parametrize(
    ("images", "texts", "owner", "k", "message"),
    [
        (np.eye(3), np.eye(3), [0, 1, 2], 4, ("too-few-images", "4", "3")),
        (np.eye(3), np.eye(3), [0, 0, 2], 2, ("image-without-text", "1")),
        (np.zeros((3, 3)), np.eye(3), [0, 1, 2], 2, ("not-finite", "0")),
        (np.eye(3), [[1, 0, 0], [np.nan, 0, 0], [0, 1, 0]], [0, 1, 2], 2, ("not-finite", "1")),
    ],
)
def test_impossible_lists_are_refused(images, texts, owner, k, message):
    with raises(*message):
        candidates.top_k_lists(images, texts, owner, k)


@pytest.mark.slow
def test_a_large_search_needs_little_memory():
    """A tenth of 150,000 texts and 30,000 images; block memory does not depend on the size, only the vectors' does."""
    import tracemalloc

    rng = np.random.default_rng(0)
    images = rng.normal(size=(3_000, 64)).astype(np.float32)
    texts = rng.normal(size=(15_000, 64)).astype(np.float32)
    owner = np.arange(15_000) // 5
    tracemalloc.start()
    lists = candidates.top_k_lists(images, texts, owner)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lists.images.shape == (15_000, 10)
    assert lists.texts.shape == (3_000, 10)
    assert peak < 300e6  # all similarities in float64 would be 360 MB
