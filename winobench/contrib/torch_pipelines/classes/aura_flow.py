"""AuraFlow."""

from __future__ import annotations

from winobench.contrib.torch_pipelines.classes.shared import times_in_lists
from winobench.contrib.torch_pipelines.families import Family

FAMILY = Family(constants=(1,), side=2, during=times_in_lists)
