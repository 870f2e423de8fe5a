"""Rubrics of generative benchmarks: what a judge is asked about each image, and the scores of its answers."""

from __future__ import annotations

from collections.abc import Sequence

from winobench.base import near_names, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics import geneval, geneval2, t2i_compbench, vqa_score
from winobench.rubrics.base import ALL, Rubric, Score

RUBRICS = {rubric.name: rubric for module in (geneval2, geneval, t2i_compbench, vqa_score) for rubric in module.RUBRICS}
"""Name -> rubric, those of one benchmark before those of any prompt."""

__all__ = ["ALL", "RUBRICS", "Rubric", "Score", "choose"]


def choose(name: str | None, prompts: Sequence[Prompt]) -> Rubric:
    """The rubric of a name, or without one the first that fits some of the prompts.

    Raises:
      InputError: the name is unknown, or no prompt fits.
    """
    if name is not None and name not in RUBRICS:
        hint = near_names.did_you_mean(name, RUBRICS, f"the rubrics are {', '.join(RUBRICS)}.")
        raise InputError(f"the rubric {options.quote(name)} is unknown: {hint}", code="unknown-name")
    for rubric in RUBRICS.values() if name is None else (RUBRICS[name],):
        if any(map(rubric.fits, prompts)):
            return rubric
    which = "no rubric fits" if name is None else f"the rubric {name!r} does not fit"
    raise InputError(
        f"{which} the prompts, since they hold no questions for it: generate with a published set, such as"
        " --config.prompts=geneval2:FILE",
        code="no-content",
    )
