"""What a score is made of: the one definition, for single scores, whole evaluations and reports."""

from __future__ import annotations

import numpy as np


def score_terms(own, unconditional=None, gray=None) -> list[tuple[np.ndarray, int]]:
    """The terms of which a score is the sum: minus the error, plus what is subtracted from the error.

    Subtracting the error under the empty text makes images comparable (Eq. 5), and that of the gray image texts
    (appendix F). The error of the gray image under the empty text is in neither: it is the same for all candidates.

    Args:
      own: [..., images, texts] errors of the pairs, or anything that stands for them, such as their row numbers.
      unconditional: None, or [..., images] those of the images under the empty text.
      gray: None, or [..., texts] those of the gray image under the texts.

    Returns:
      (array that broadcasts to [..., images, texts], sign) in the order in which they are to be added, so that ties are
      the same wherever scores are computed.

    Source: Krojer et al. 2023, "Are Diffusion Models Vision-And-Language Reasoners?", Eq. 4 and 5, appendix F.
    """
    own = np.asarray(own)
    terms = [(own, -1)]
    if unconditional is not None:
        terms.append((np.asarray(unconditional)[..., :, None], 1))
    if gray is not None:
        terms.append((np.asarray(gray)[..., None, :], 1))
    return [(np.broadcast_to(values, own.shape), sign) for values, sign in terms]


def scores(own, unconditional=None, gray=None) -> np.ndarray:
    """Scores from errors in float64, higher = better match; arguments as in `score_terms`, [..., images, texts]."""
    return sum(sign * values.astype(np.float64) for values, sign in score_terms(own, unconditional, gray))
