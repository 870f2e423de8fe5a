"""The fields of a `TorchPipeline`, for the modules that load it and generate with it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from winobench.contrib.torch_pipelines.families import Family
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.schedules import Schedule

if TYPE_CHECKING:
    from winobench.contrib.torch_pipelines.autoencoders import TorchAutoencoder
    from winobench.contrib.torch_pipelines.prediction import TorchDenoiser
    from winobench.contrib.torch_pipelines.texts import TextEncoding


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TorchParts(Pipeline):
    """See `winobench.TorchPipeline`."""

    network: TorchDenoiser
    vae: TorchAutoencoder
    texts: TextEncoding
    schedule: Schedule
    timestep_range: tuple[int, int] | None = None
    guidance_embedding: float | None = None
    text_tokens: int | None = None

    @property
    def diffusers(self) -> Any:
        """diffusers' pipeline. Its denoiser and autoencoder have no weights."""
        return self.texts.pipe

    @property
    def family(self) -> Family:
        return self.network.pipeline.family

    @property
    def diffusers_class(self) -> str:
        """The class of diffusers' pipeline."""
        return type(self.diffusers).__name__
