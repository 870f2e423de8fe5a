"""Rates that others have measured on accelerators and published, next to which a plan can be read."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Anchor:
    rate: float  # denoiser passes per second of a device
    what: str  # was measured
    source: str


# An image with guidance is two passes a step. FLUX.1-dev's guidance is an input, so that a step is one.
ANCHORS = {
    ("sdxl", "v6e"): Anchor(
        60.8, "whole images, 6.08 a second on 4 chips, 20 steps", "MLPerf Inference 5.0, Google, offline"
    ),
    ("sdxl", "v5e"): Anchor(
        17.5, "whole images, 1.75 a second on 4 chips, 20 steps", "MLPerf Inference 4.1, Google, offline"
    ),
    ("flux1-dev", "v6e"): Anchor(5.1, "whole images, 4 in 5.5 s on 4 chips, 28 steps", "README of maxdiffusion"),
    ("sd21-base", "h200"): Anchor(438.0, "training steps, as three passes for each image", "MLPerf Training 5.0, SD 2"),
}
"""Model and accelerator -> the anchor."""


def note(model: str, accelerator: str) -> list[str]:
    """A sentence on what others measured, if there is something."""
    anchor = ANCHORS.get((model, accelerator))
    if anchor is None:
        return []
    return [f"{model} on {accelerator}: others measured {anchor.rate:g} passes/s ({anchor.what}; {anchor.source})"]
