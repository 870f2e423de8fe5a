"""Rubrics, as in `winobench.rubrics`."""

from __future__ import annotations

from winobench.contrib.benchmarks.rubrics import (
    cvtg,
    dpg_bench,
    gedit,
    imgedit,
    longtext,
    oneig,
    oneig_dimensions,
    oneig_text,
    t2i_compbench,
    t2i_reasonbench,
    tiif,
    tiif_text,
    unigenbench,
    wise,
)

_ONEIG = (oneig, oneig_text, oneig_dimensions)
_EDITS = (gedit, imgedit)
_MODULES = (
    *(dpg_bench, tiif, tiif_text, *_ONEIG, longtext, cvtg, wise, t2i_reasonbench, unigenbench, t2i_compbench),
    *_EDITS,
)

RUBRICS = tuple(rubric for module in _MODULES for rubric in module.RUBRICS)
"""In the order in which they are tried on prompts."""
