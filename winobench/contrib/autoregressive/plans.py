"""Generators without weights, for plans: a compiler needs only shapes and dtypes."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.checkpoints import sources
from winobench.contrib.autoregressive import loading, scorer
from winobench.contrib.autoregressive import network as networks
from winobench.contrib.autoregressive.network import TokenNetwork
from winobench.contrib.autoregressive.scorer import ImagePreparation
from winobench.engine import tables
from winobench.models import functional
from winobench.scorers.networks import NetworkFunction
from winobench.torch_modules import bridge
from winobench.torch_modules import loading as torch_loading


@dataclasses.dataclass(frozen=True)
class Skeleton:
    """An `ImageLikelihood` of shapes on a mesh, for texts of so many tokens."""

    mesh: Mesh
    params: list[jax.ShapeDtypeStruct]  # at their places
    structure: functional.Structure
    preparation: ImagePreparation
    guidance: float | None
    text_tokens: int
    batch: int  # pairs that each device works on at once

    @property
    def _codes(self) -> NetworkFunction:
        return scorer.codes_function(self.structure, self.preparation)

    def _pixels(self, rows: int) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Images, as the preparation makes them."""
        split = parallel.split_axis(self.mesh)
        blank = self.preparation.blank
        return tuple(jax.ShapeDtypeStruct((rows, *array.shape), array.dtype, sharding=split) for array in blank)

    def image_row(self) -> jax.ShapeDtypeStruct:
        return jax.eval_shape(self._codes, self.params, self._pixels(self.mesh.size))

    def text_row(self) -> jax.ShapeDtypeStruct:
        width = (self.text_tokens + 1) * (1 if self.guidance is None else 2)
        return jax.ShapeDtypeStruct((1, width), np.int32)

    def lower_images(self, items: int) -> jax.stages.Lowered:
        pixels = self._pixels(items * parallel.data_parallelism(self.mesh))
        return tables.lower_encoder(self._codes, self.mesh, self.params, pixels)

    def lower_pairs(self, codes: Any, texts: Any, index: Any) -> jax.stages.Lowered:
        """The scoring of pairs of two tables."""
        return scorer.lower_step(self.structure, self.guidance, self.mesh, self.params, codes, texts, index)
