"""VQAScore by a generator that also reads images: the scorer of ``--scored_by=answers``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from jax.sharding import Mesh

from winobench.contrib.autoregressive import answering
from winobench.scorers import networks
from winobench.scorers.vqa_score import VQAScore


class AnswerScore(VQAScore):
    """Scores how well texts fit images by the answers of a Janus or a Janus-Pro."""

    _described: Mapping[str, Any] = {}

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: str = "float32",
        *,
        mesh: Mesh | None = None,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        **others: Any,
    ) -> Self:
        """Loads a model and makes it a scorer.

        Args:
          source, dtype, mesh, variant, revision, allow_pickle: see
            `winobench.contrib.autoregressive.answering.ImageAnswers.from_pretrained`.
          **others: of `winobench.scorers.vqa_score.VQAScore`.

        Raises:
          InputError: files are missing or damaged, the model reads no images, or an option is not one of its choices.
        """
        networks.check_options(cls, others)
        cls._check_choices(**others)
        loaded, described = answering.load(source, dtype, mesh=mesh, variant=variant, revision=revision)
        scorer = cls(loaded, **others)
        scorer._described = described
        return scorer

    def fingerprint(self) -> dict[str, Any]:
        """See `VQAScore`. ``model`` is the digest that the model's likelihoods have as well."""
        return {**super().fingerprint(), **self._described}
