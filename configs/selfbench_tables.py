"""Scores images against texts as Self-Bench does, on the data sets of its tables (Jeong et al. 2025, arXiv:2505.17955).

python -m launch.eval --config=selfbench_tables --config.model=sd15,sd20-base,sd3-medium --config.dtype=bfloat16
python -m launch.eval --config=selfbench_tables --config.model=clip-vit-l14            # a baseline of theirs
python -m launch.eval --config=selfbench_tables --config.tasks=selfbench:FOLDER        # its own images
python -m launch.eval --config=selfbench_tables:debug                                  # 4 items a task, 2 samples

Every data set of the group @selfbench whose data are ready: 30 timesteps of the published rule, distances that are not
squared, no guidance and no empty text. Their numbers stand next to ours in the table and in launch.report.
"""

from __future__ import annotations

import ml_collections

from configs import gdbench

LAUNCHER = "eval"

HELP = gdbench.HELP
RANGES = gdbench.RANGES
check = gdbench.check

FORMS = {"standard": (None, 30), "debug": (4, 2)}
"""Form -> (items a task, timesteps)."""


def get_config(form: str = "standard") -> ml_collections.ConfigDict:
    """The config in one of its ``FORMS``."""
    if form not in FORMS:
        raise ValueError(f"selfbench_tables comes as {', '.join(FORMS)}, not {form!r}.")
    limit, num_samples = FORMS[form]
    config = gdbench.get_config("full")
    config.tasks = "@selfbench"
    config.limit = limit
    config.normalize = "none"
    config.error = "l2"
    config.sampling.num_samples = num_samples
    config.sampling.timesteps = "published"
    return config
