"""Scores images against texts as Self-Bench does, on the data sets of its tables (Jeong et al. 2025, arXiv:2505.17955).

winobench eval --config=selfbench_tables --model=sd15,sd20-base,sd3-medium --dtype=bfloat16
winobench eval --config=selfbench_tables --model=clip-vit-l14      # a baseline of theirs
winobench eval --config=selfbench_tables --tasks=selfbench:FOLDER  # its own images
winobench eval --config=selfbench_tables:debug                     # 4 items a task, 2 samples

Every data set of the group @selfbench whose data are ready: 30 timesteps of the published rule, distances that are not
squared, no guidance and no empty text. Their numbers stand next to ours in the table and in launch.report.
"""

from __future__ import annotations

from . import forms_of, gdbench

LAUNCHER = "eval"

SETTINGS = gdbench.SETTINGS
check = gdbench.check

_PUBLISHED = {"tasks": "@selfbench", "normalize": "none", "error": "l2", "sampling.timesteps": "published"}
FORMS = {
    "standard": {**_PUBLISHED, "sampling.num_samples": 30},
    "debug": {**_PUBLISHED, "limit": 4, "sampling.num_samples": 2},
}

get_config = forms_of("selfbench_tables", SETTINGS, FORMS)
