"""The terms of a score: a new normalisation is an entry of `NORMALIZATIONS`, with a new `Term` where it needs one.

Source: Krojer et al. 2023, "Are Diffusion Models Vision-And-Language Reasoners?", Eq. 4 and 5, appendix F.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from winobench.base import options


@dataclasses.dataclass(frozen=True)
class Term:
    """Errors that a score adds up with a sign: of its image under its text, or with one of them replaced."""

    name: str  # in records
    sign: int = 1  # -1 for the error itself, 1 for the error that is subtracted from it
    of_empty_text: bool = False  # of the image under the empty text
    of_gray_image: bool = False  # of a gray image under the text

    def tells_apart(self, images_compete: bool, texts_compete: bool) -> bool:
        """Whether it may differ between candidates. A term that is the same for all need not be computed."""
        return (images_compete and not self.of_gray_image) or (texts_compete and not self.of_empty_text)


OWN = Term("own", sign=-1)  # the error itself
UNCONDITIONAL = Term("unconditional", of_empty_text=True)  # makes images comparable (Eq. 5)
GRAY_IMAGE = Term("gray_image", of_gray_image=True)  # makes texts comparable (appendix F)

NORMALIZATIONS: Mapping[str, tuple[Term, ...]] = {
    "none": (OWN,),
    "unconditional": (OWN, UNCONDITIONAL),
    "gray_image": (OWN, UNCONDITIONAL, GRAY_IMAGE),
}
"""Name -> the terms of a score, in the order in which they are added, so that ties are the same everywhere.

``none`` is the Diffusion Classifier. Terms that are the same for all candidates are left out.
"""

AUTO = "auto"  # what a scorer is meant to be used with: ``unconditional`` for a diffusion model, ``none`` for others
TERMS: Mapping[str, Term] = {term.name: term for terms in NORMALIZATIONS.values() for term in terms}
"""Name -> every term there is."""


def choice() -> options.Range:
    return options.choice(AUTO, *NORMALIZATIONS)


def terms_of(normalize: str, *, images_compete: bool, texts_compete: bool) -> tuple[Term, ...]:
    """The terms of a diffusion model's scores where images, texts or both are ranked."""
    terms = NORMALIZATIONS["unconditional" if normalize == AUTO else normalize]
    return tuple(term for term in terms if term is OWN or term.tells_apart(images_compete, texts_compete))


def scores(
    terms: Iterable[Term],
    errors: Mapping[str, np.ndarray],
    reduce: Callable[[np.ndarray], np.ndarray] = lambda values: values.astype(np.float64),
) -> np.ndarray:
    """Scores from errors in float64, higher = better match. ``reduce`` is applied to each, as a mean over samples."""
    total: Any = sum(term.sign * reduce(errors[term.name]) for term in terms)
    return total
