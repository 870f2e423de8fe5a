"""The rubrics by their names, and which of them fits a set of prompts."""

from __future__ import annotations

from collections.abc import Sequence

from winobench.base import extensions, near_names, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import geneval, geneval2, vqa_score
from winobench.rubrics.base import Rubric
from winobench.runs.judgements import Judgement

_OWN = {rubric.name for module in (geneval2, geneval, vqa_score) for rubric in module.RUBRICS}
_ADDED = [rubric for rubrics in extensions.loaded(extensions.RUBRICS).values() for rubric in rubrics]
_NEW = [rubric for rubric in _ADDED if rubric.name not in _OWN]

RUBRICS = {rubric.name: rubric for rubric in (*geneval2.RUBRICS, *geneval.RUBRICS, *_NEW, *vqa_score.RUBRICS)}
"""Name -> rubric, also of packages that plug in. The last one fits any prompt."""


def is_outdated(judgement: Judgement) -> bool:
    """Whether results are by an earlier version of a rubric."""
    return judgement.rubric in RUBRICS and RUBRICS[judgement.rubric].version != judgement.version


def choose(name: str | None, prompts: Sequence[Prompt]) -> Rubric:
    """The rubric of a name, or without one the first that fits some of the prompts. The last one fits any.

    Raises:
      InputError: the name is unknown, or it fits no prompt.
    """
    if name is not None and not (isinstance(name, str) and name in RUBRICS):
        hint = near_names.did_you_mean(str(name), RUBRICS, f"the rubrics are {', '.join(RUBRICS)}.")
        raise InputError(f"the rubric {options.quote(name)} is unknown: {hint}", code="unknown-name")
    names = RUBRICS if name is None else (name,)
    for known in names:
        if any(map(RUBRICS[known].fits, prompts)):
            return RUBRICS[known]
    raise InputError(
        f"no prompt has questions for the rubric {', '.join(names)}: name another, or generate its set of prompts",
        code="no-content",
    )
