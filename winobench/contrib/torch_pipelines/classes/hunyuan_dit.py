"""HunyuanDiT, also with perturbed attention."""

from __future__ import annotations

from winobench.contrib.torch_pipelines.classes.shared import times_in_lists
from winobench.contrib.torch_pipelines.families import Family, with_pag

FAMILY = Family(
    call={"use_resolution_binning": False},
    further=({"text_encoder_index": 1},),
    tokens=None,
    side=2,
    during=times_in_lists,
)
WITH_PAG = with_pag(FAMILY)
