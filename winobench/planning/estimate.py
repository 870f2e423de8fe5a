"""Hours and dollars of a benchmark on some devices, from what its programs take; every other number has a name."""

from __future__ import annotations

import dataclasses

from winobench.planning.fit import Fit
from winobench.planning.topologies import Target
from winobench.planning.work import Total

DEVICES_PER_HOST = {"tpu": 4, "gpu": 8}
"""Platform -> devices that one host feeds."""


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What no compiler knows.

    Attributes:
      storage_rate: bytes per second that a host reads.
      bytes_per_image: as stored; COCO's and ImageCoDe's archives come to 148 and 149 kB per image.
      rounds: groups of tasks with the same samples, each of which ends with a step that is not full.
      characters_a_token: of a prompt in English.
      answer_tokens: until all texts of a batch have ended; None for as many as the task allows.
      text_tokens: of the longest text that a language model is asked about an image.
    """

    storage_rate: float = 1e9
    bytes_per_image: float = 150e3
    rounds: int = 2
    characters_a_token: float = 4.0
    answer_tokens: int | None = None
    text_tokens: int = 32


class InParts:
    """Seconds in parts that do not overlap: all fields of a dataclass but ``devices``, how many there are."""

    devices: int
    compiling: float

    @property
    def total(self) -> float:
        """All parts, with programs compiled anew."""
        return sum(getattr(self, part.name) for part in dataclasses.fields(self) if part.name != "devices")

    @property
    def with_cache(self) -> float:
        """All parts, with programs from the compilation cache."""
        return self.total - self.compiling


@dataclasses.dataclass(frozen=True)
class Duration(InParts):
    """Seconds of an evaluation, in parts that do not overlap. But for ``compiling`` none has been measured.

    Attributes:
      devices: how many there are.
      scoring: passes, at the estimated rate.
      encoding: images, at the estimated rate.
      loading: weights and images, at the assumed rate of storage.
      compiling: all programs, as long as it took on this machine. Next to nothing where the persistent compilation
        cache has them (JAX_COMPILATION_CACHE_DIR).
      tails: steps that are not full, at most.
    """

    devices: int
    scoring: float
    encoding: float
    loading: float
    compiling: float
    tails: float


def passes_per_second(fit: Fit) -> float:
    """Of one device, estimated."""
    return fit.step.items / fit.step.seconds


def duration(fit: Fit, target: Target, work: Total, devices: int, assumed: Assumptions) -> Duration:
    """How long an evaluation takes on some devices of a kind. The fit must have a step.

    Args:
      fit: the programs on one device. Those of a scorer hold no collectives, so that more devices run the same.
      target: the kind of device.
      work: passes and images.
      devices: how many.
      assumed: the rest.
    """
    hosts = -(-devices // DEVICES_PER_HOST[target.accelerator.platform])
    image_encoder = next(iter(fit.encoders), None)
    per_image = 0.0 if image_encoder is None else image_encoder.seconds / image_encoder.items
    weights = sum(fit.scoring.weights.values()) + fit.scoring.staged
    # Every host reads all weights, and its share of the images.
    stored = weights + work.images * assumed.bytes_per_image / hosts
    return Duration(
        devices=devices,
        scoring=work.passes / passes_per_second(fit) / devices,
        encoding=work.images * per_image / devices,
        loading=stored / assumed.storage_rate,
        compiling=sum(each.compile_seconds for each in (fit.step, *fit.encoders) if each),
        tails=assumed.rounds * (fit.step.seconds + (image_encoder.seconds if image_encoder else 0.0)),
    )
