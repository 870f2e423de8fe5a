"""Editing as explanation: how much must an image change until a text fits? (Krojer et al. 2023, Appendix C)"""

from winobench.contrib.editing.editor import METHODS, EditDistance
from winobench.contrib.editing.optimization import optimize_latents
from winobench.runs.edits import Edit, read_edits

__all__ = ["METHODS", "Edit", "EditDistance", "optimize_latents", "read_edits"]
