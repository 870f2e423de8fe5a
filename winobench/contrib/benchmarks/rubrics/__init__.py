"""Rubrics, as in `winobench.rubrics`."""

from __future__ import annotations

from winobench.contrib.benchmarks.rubrics import dpg_bench, oneig, t2i_compbench, tiif

RUBRICS = tuple(rubric for module in (dpg_bench, tiif, oneig, t2i_compbench) for rubric in module.RUBRICS)
"""In the order in which they are tried on prompts."""
