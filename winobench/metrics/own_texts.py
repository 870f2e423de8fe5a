"""Several images, each of which has to find its own text among all texts."""

from __future__ import annotations

import numpy as np

from winobench.metrics.matching import all_ahead
from winobench.metrics.metric import Metric, Outcome


def judge(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    """Does text i score higher than every other text for image i, for all images? ``tie``: one equals another one.

    ``scores`` are [n, images, texts, ...], higher = better match. Texts beyond the images are wrong for all of them.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 3 or not 1 <= scores.shape[1] <= scores.shape[2] or scores.shape[2] < 2:
        raise ValueError(f"own_texts needs at least as many texts as images, two at least, got {scores.shape[1:3]}.")
    if targets is not None or not np.isfinite(scores).all():
        raise ValueError("own_texts needs finite scores and no targets: its right answer is the diagonal.")
    num_images, num_texts = scores.shape[1:3]
    image, other = np.nonzero(~np.eye(num_images, num_texts, dtype=bool))
    return {"own_texts": all_ahead(scores[:, image, image] - scores[:, image, other])}


OWN_TEXTS = Metric(
    "own_texts",
    judge,
    headline="own_texts",
    # Images are guessed one by one.
    chance=lambda shape: {"own_texts": (1 / shape[1]) ** shape[0]},
)
"""What'sUp's pair and set accuracy (Kamath et al. 2023, section 3): all images of a group find their own caption."""
