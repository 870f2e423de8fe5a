"""The parts of a diffusion pipeline that packages below `winobench.diffusion.pipeline` use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class AnyPipeline(Protocol):
    """A pipeline of any family.

    Attributes:
      networks: name -> network.
      tokenizers: name -> tokenizer.
      schedule: the noise schedule.
    """

    networks: Mapping[str, Any]
    tokenizers: Mapping[str, Any]
    schedule: Any

    def __getattr__(self, name: str) -> Any:
        """Other members, see `winobench.diffusion.pipeline.Pipeline`."""
