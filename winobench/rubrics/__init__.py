"""Rubrics of generative benchmarks: the questions to a judge about each image, and the scores of answers."""

from __future__ import annotations

from collections.abc import Sequence

from winobench.base import near_names, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import dpg_bench, geneval, geneval2, oneig, t2i_compbench, tiif, vqa_score
from winobench.rubrics.base import ALL, Rubric, Score

_MODULES = (geneval2, geneval, dpg_bench, tiif, oneig, t2i_compbench, vqa_score)
RUBRICS = {rubric.name: rubric for module in _MODULES for rubric in module.RUBRICS}
"""Name -> rubric. The last one fits any prompt."""

__all__ = ["ALL", "RUBRICS", "Rubric", "Score", "choose"]


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
