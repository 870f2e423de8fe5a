"""Lists of the candidates that a contrastive model finds hardest to distinguish from the right one.

GDBench asks for a caption's image among the ten that CLIP ranks first, and the other way round. A right one that is
missing is put there (Krojer et al. 2023, section 4 and appendix G).
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from winobench.base.errors import InputError

_BLOCK_ROWS = 1024
_BLOCK_COLUMNS = 8192  # with 1,024 rows, 64 MiB of similarities at a time, for data of any size


class ContrastiveScorer(Protocol):
    """A model that maps images and texts to float vectors [number, width], e.g. CLIP."""

    def encode_images(self, images: Sequence) -> np.ndarray: ...

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray: ...


class CandidateLists(NamedTuple):
    """The candidates of every text and of every image, the right one first, then by falling similarity."""

    images: np.ndarray  # [num_texts, k] int64, numbers of images
    texts: np.ndarray  # [num_images, k] int64, numbers of texts


def top_k_lists(
    image_vectors: np.ndarray,
    text_vectors: np.ndarray,
    owner: np.ndarray,
    k: int = 10,
    *,
    also_true: np.ndarray | None = None,
) -> CandidateLists:
    """The right candidate and the ``k - 1`` most similar wrong ones, for every text and for every image.

    An image's right text is its first one. Its other texts, and the ``also_true`` pairs (text, image), [n, 2] int, are
    never offered as wrong ones, as in the published lists. The search is exact and takes memory for one block of
    similarities, in float64 and rounded to float32, so that they do not depend on the blocks. Of equal ones, the lower
    number comes first. Vectors are float [number, width], compared by their cosine. ``owner`` [num_texts] int has the
    number of the image that each text describes.
    """
    images, texts = _unit(image_vectors, "image"), _unit(text_vectors, "text")
    owner = np.asarray(owner, np.int64)
    true_pairs = np.stack([np.arange(len(texts)), owner], axis=1)
    if also_true is not None and len(also_true):
        true_pairs = np.unique(np.concatenate([true_pairs, np.asarray(also_true, np.int64)]), axis=0)
    first_text = np.full(len(images), -1, np.int64)
    first_text[owner[::-1]] = np.arange(len(texts))[::-1]  # the last write, the lowest number, stays
    if (first_text < 0).any():
        raise InputError(
            f"image {np.flatnonzero(first_text < 0)[0]} has no text of its own: leave it out or give it a caption",
            code="image-without-text",
        )
    num_wrong = k - 1
    fewest_images = len(images) - np.bincount(true_pairs[:, 0], minlength=len(texts)).max()
    fewest_texts = len(texts) - np.bincount(true_pairs[:, 1], minlength=len(images)).max()
    if num_wrong < 1 or min(fewest_images, fewest_texts) < num_wrong:
        raise InputError(
            f"lists of {k} candidates cannot be made of {len(images)} images and {len(texts)} texts: there are only"
            f" {fewest_images} wrong images for some text and {fewest_texts} wrong texts for some image",
            code="too-few-images",
        )

    by_text = _Best(len(texts), num_wrong)
    by_image = _Best(len(images), num_wrong)
    for start in range(0, len(texts), _BLOCK_ROWS):
        end = min(start + _BLOCK_ROWS, len(texts))
        pairs = true_pairs[(true_pairs[:, 0] >= start) & (true_pairs[:, 0] < end)]
        for left in range(0, len(images), _BLOCK_COLUMNS):
            right = min(left + _BLOCK_COLUMNS, len(images))
            block = texts[start:end].astype(np.float64) @ images[left:right].astype(np.float64).T
            similarities = block.astype(np.float32)
            inside = pairs[(pairs[:, 1] >= left) & (pairs[:, 1] < right)]
            similarities[inside[:, 0] - start, inside[:, 1] - left] = -np.inf
            by_text.update(slice(start, end), left, similarities)
            by_image.update(slice(left, right), start, similarities.T)
    return CandidateLists(
        np.concatenate([owner[:, None], by_text.numbers], axis=1),
        np.concatenate([first_text[:, None], by_image.numbers], axis=1),
    )


def write_top_k_lists(
    folder: str | os.PathLike,
    name: str,
    scorer: ContrastiveScorer,
    images: Sequence[tuple[str, str | os.PathLike]],
    captions: Sequence[Sequence[str]],
    k: int = 10,
) -> tuple[pathlib.Path, pathlib.Path]:
    """Writes both lists of a captioned set of images in the layout of GDBench's.

    ``<folder>/val_top<k>_<name>.json`` is {caption: [k images]} and ``..._text.json`` is {image: [k captions]}, the
    right one first. A caption of several images is in the lists of the first one and a wrong one of none of them.
    """
    number: dict[str, int] = {}
    owner: list[int] = []
    pairs: list[tuple[int, int]] = []
    for image, own in enumerate(captions):
        for caption in own:
            if caption not in number:
                number[caption] = len(number)
                owner.append(image)
            pairs.append((number[caption], image))
    texts = list(number)
    lists = top_k_lists(
        scorer.encode_images([path for _, path in images]),
        scorer.encode_texts(texts),
        np.array(owner, np.int64),
        k,
        also_true=np.array(pairs, np.int64).reshape(-1, 2),
    )
    names = [image_name for image_name, _ in images]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    by_text, by_image = folder / f"val_top{k}_{name}.json", folder / f"val_top{k}_{name}_text.json"
    for path, keys, rows, values in ((by_text, texts, lists.images, names), (by_image, names, lists.texts, texts)):
        content = {key: [values[i] for i in row] for key, row in zip(keys, rows, strict=True)}
        temporary = path.with_name(f"{path.name}.partial")
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
        temporary.replace(path)
    return by_text, by_image


class _Best:
    """The most similar candidates so far of each of n queries. Of equal ones, those with the lower numbers."""

    def __init__(self, num_queries: int, count: int):
        self.values = np.full((num_queries, count), -np.inf, np.float32)
        # Higher than any candidate's, so that an empty place loses against a candidate that is ruled out.
        self.numbers = np.full((num_queries, count), np.iinfo(np.int64).max)

    def update(self, queries: slice, first: int, similarities: np.ndarray) -> None:
        """Takes the similarities [queries, candidates] of the candidates ``first``, ``first + 1`` and so on."""
        count = self.values.shape[1]
        if similarities.shape[1] > count:
            # All that reach the count-th best value: a few more than count where values are equal.
            least = np.partition(similarities, -count, axis=1)[:, -count]
            rows, columns = np.nonzero(similarities >= least[:, None])
        else:
            rows, columns = np.nonzero(np.ones(similarities.shape, bool))
        kept_rows = np.arange(similarities.shape[0])
        rows = np.concatenate([np.repeat(kept_rows, count), rows])
        numbers = np.concatenate([self.numbers[queries].ravel(), columns + first])
        values = np.concatenate([self.values[queries].ravel(), similarities[rows[len(kept_rows) * count :], columns]])
        order = np.lexsort((numbers, -values, rows))
        # The first `count` of each row. Every row has at least that many.
        starts = np.searchsorted(rows[order], kept_rows)
        chosen = order[starts[:, None] + np.arange(count)]
        self.values[queries] = values[chosen]
        self.numbers[queries] = numbers[chosen]


def _unit(vectors: np.ndarray, kind: str) -> np.ndarray:
    vectors = np.asarray(vectors)
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(norms[:, 0]) & (norms[:, 0] > 0)))
    if len(bad):
        raise InputError(
            f"the vector of {kind} {bad[0]} is zero or not finite: the model cannot rank it", code="not-finite"
        )
    return (vectors / norms).astype(np.float32)
