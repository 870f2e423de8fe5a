"""Judges generated images of CLEVR scenes by a detector (`winobench.contrib.studies.verifier`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import PIL.Image

from winobench.base.errors import InputError
from winobench.clevr.captions import Thing
from winobench.clevr.objects import SceneObject
from winobench.contrib.studies.verifier import ClevrVerifier
from winobench.prompts import grammar
from winobench.runs.verdicts import VERIFIER, Verdict, write_verdicts

if TYPE_CHECKING:
    from winobench.runs.image_runs import Images

_BATCH = 256


def can_verify(run: Images) -> bool:
    """Whether all prompts of a run come from our grammar, so that they define their images."""
    return all(isinstance(prompt.content, Mapping) and "objects" in prompt.content for prompt in run.prompts)


def verify(run: Images, verifier: ClevrVerifier | None = None) -> dict[str, Verdict]:
    """Judges all images of a run, writes the verdicts, and returns path within the run -> verdict."""
    if not can_verify(run):
        raise InputError(
            f"the prompts of {run.folder} do not say what their images must show: generate with --prompts=clevr",
            code="no-content",
        )
    verifier = verifier or ClevrVerifier.from_pretrained()
    side = verifier.config.sample_size
    verdicts = []
    for first in range(0, len(run.records), _BATCH):
        batch = run.records[first : first + _BATCH]
        listed = verifier.objects([_resized(run.image(record), side) for record in batch])
        for record, objects in zip(batch, listed, strict=True):
            correct = grammar.is_shown(record.prompt.content, [to_thing(thing) for thing in objects])
            shown = [
                {"color": thing.color, "shape": thing.shape, "size": thing.size}
                | {"right": round(thing.right, 3), "down": round(thing.down, 3)}
                for thing in objects
            ]
            verdicts.append(Verdict(record.file, record.sha256, correct, shown, VERIFIER))
    write_verdicts(run, verdicts)
    return {verdict.file: verdict for verdict in verdicts}


def to_thing(thing: SceneObject) -> Thing:
    """A found object in words. Its side is the half of the image in which its centre is."""
    return Thing(thing.shape, thing.color, thing.size, thing.material, -1 if thing.right < 0.5 else 1)


def _resized(pixels: np.ndarray, side: int) -> np.ndarray:
    if pixels.shape[:2] == (side, side):
        return pixels
    image = PIL.Image.fromarray(pixels).resize((side, side), PIL.Image.Resampling.BICUBIC)
    return np.asarray(image)
