"""Scores by the log-probability of an answer to a question about an image: what local and hosted VQAScores share."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from winobench.base.texts import checked_list, checked_texts
from winobench.data import question_texts
from winobench.scorers import common

SCORES = ("probability", "log_odds")


class AnswerScorer(abc.ABC):
    """Scores how well texts fit images by the answers of a model to questions.

    Attributes:
      question: the question; ``{}`` means the text.
      kind: ``probability`` of an answer, or ``log_odds``: its log-likelihood less the opposite answer's.
      answers_questions: a text that is a question with an answer (`winobench.data.question_texts`) is sent as it is,
        without ``question`` around it, and its score is its answer's.
      match_threshold: a probability of 1/2, or log-odds of 0.
    """

    answers_questions = True
    question: str

    def _choose_score(self, score: str) -> None:
        self.kind = common.choice("score", score, SCORES)
        self.match_threshold = 0.5 if self.kind == "probability" else 0.0

    def iter_scores(
        self, images: Sequence[Any], texts: Sequence[str], pairs: ArrayLike
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The scores of chosen pairs, some at a time.

        Args:
          images: anything that `winobench.data.images.open_image` takes.
          texts: strings.
          pairs: int [n, 2], rows (number of the image, number of the text).

        Returns:
          An iterator over (int [b], rows of ``pairs``, their float32 scores [b]), each row once.

        Raises:
          InputError: at once for an empty list, or an argument that is not as described. While iterating for an image
            that cannot be read. In the end where calls of a hosted model have failed, after all other scores.
        """
        images, texts = checked_list("images", images), checked_texts(texts)
        pairs = common.checked_pairs(pairs, len(images), len(texts))
        return self._iter_scores(images, [question_texts.parts(text) for text in texts], pairs)

    @abc.abstractmethod
    def _iter_scores(
        self, images: list[Any], asked: list[tuple[str, str | None]], pairs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """`iter_scores` of texts, each with None, and of questions, each with its answer."""
