"""Memory and time of a vision-language model that judges images, on this machine or on accelerators elsewhere."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from winobench import parallel
from winobench.base.registry import ModelRef
from winobench.contrib.planning import plan, topologies, vision_language, work
from winobench.runs.requests import ImageMatch, ImageText


@dataclasses.dataclass(frozen=True)
class _Config:
    model: str
    dtype: str
    batch_size: int | None
    model_parallel: int
    revision: str | None = None


def estimate(
    model: ModelRef, requests: Sequence[Any], accelerator: str | None = None, **how: Any
) -> dict[str, Any] | None:
    """What a judge takes for requests of one kind. None for a model that is not planned, or without requests.

    ``how`` are the other fields of `_Config`.

    Returns: bytes of the ``weights`` on a device of this machine. Or those on an accelerator, its ``usable`` bytes,
      whether VQAScore ``fits``, and the ``seconds``. These are None where it does not, and for texts, whose length
      nobody knows. A question with options counts as a pair of VQAScore's with an image of its own.
    """
    if model.kind != "vqa_score" or not requests:
        return None
    config = _Config(model.checkpoint, **how)
    if accelerator is None:
        mesh = parallel.make_mesh(model_parallel=config.model_parallel)
        network = vision_language.read_config(config.model)
        return {"weights": vision_language.weight_bytes(network, mesh, config.dtype)}
    topologies.prepare()
    job = plan.Job(config, topologies.find(accelerator), few=True, say=lambda line: print(line, file=sys.stderr))
    matches = [request for request in requests if isinstance(request, ImageMatch)]
    pairs = sum(len(request.texts) for request in matches) or len(requests)
    images = len({request.image.sha256 for request in matches}) or len(requests)
    made = vision_language.make_plan(job, work.Total(pairs, images))
    is_known = made.durations and not isinstance(requests[0], ImageText)
    seconds = made.durations[0].total if is_known else None
    of_device = {"weights": made.content["weights"], "usable": made.usable, "fits": made.fits}
    return {"accelerator": accelerator, **of_device, "seconds": seconds}
