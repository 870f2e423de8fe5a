"""A pipeline's networks as pure functions of their parameters. JAX compiles these.

They are hashable. Pipelines that are built alike have equal functions, and share compilations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from winobench import parallel
from winobench.base import random_numbers
from winobench.diffusion import samplers
from winobench.models import functional
from winobench.models.any_pipeline import AnyPipeline

Tree = Any
"""A pytree of arrays with one leading axis, such as the token ids of some texts."""


@dataclasses.dataclass(frozen=True)
class TextEncoding:
    """Token ids as conditions. Floats are rounded to ``dtype`` unless it is None."""

    family: type[AnyPipeline]
    structures: tuple[tuple[str, functional.Structure], ...]
    dtype: str | None

    def __call__(self, params: Mapping[str, list[jax.Array]], ids: Tree) -> Tree:
        networks = {name: structure.module(params[name]) for name, structure in self.structures}
        with functional.precision(next(iter(networks.values())).dtype):
            conditions = self.family.encode_conditions(networks, ids)
        if self.dtype is None:
            return conditions
        return jax.tree.map(
            lambda leaf: leaf.astype(self.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, conditions
        )


@dataclasses.dataclass(frozen=True)
class ImageEncoding:
    """Images as latents, scaled as in training: uint8 [n, H, W, 3], or floats in [-1, 1] -> float32 [n, h, w, c]."""

    family: type[AnyPipeline]
    structure: functional.Structure

    def __call__(self, params: list[jax.Array], images: jax.Array, noise: jax.Array | None = None) -> jax.Array:
        """The posterior's mean without noise: a sample would add noise to every comparison."""
        autoencoder = self.structure.module(params)
        if images.dtype == jnp.uint8:
            images = images.astype(jnp.float32) / 127.5 - 1.0
        with functional.precision(autoencoder.dtype):
            return self.family.encode_latents(autoencoder, images, noise)


class Decoded(NamedTuple):
    images: jax.Array  # uint8 ``[n, H, W, 3]``
    finite: jax.Array  # bool ``[n]``, whether the autoencoder gave numbers alone


@dataclasses.dataclass(frozen=True)
class ImageDecoding:
    """Latents as images: [n, h, w, c] -> `Decoded`."""

    family: type[AnyPipeline]
    structure: functional.Structure

    def __call__(self, params: list[jax.Array], latents: jax.Array) -> Decoded:
        autoencoder = self.structure.module(params)
        with functional.precision(autoencoder.dtype):
            decoded = self.family.decode_images(autoencoder, latents).astype(jnp.float32)
        images = jnp.round(jnp.clip(decoded * 127.5 + 127.5, 0, 255)).astype(jnp.uint8)
        return Decoded(images, jnp.isfinite(decoded).all(axis=(1, 2, 3)))


@dataclasses.dataclass(frozen=True)
class Denoising:
    """A denoiser as a pure function, the one that `winobench.scorers.denoising.denoising_errors` takes."""

    family: type[AnyPipeline]
    structure: functional.Structure

    def __call__(
        self,
        params: list[jax.Array],
        noisy: jax.Array,
        times: jax.Array,
        conditions: Tree,
        sample_rows: jax.Array | None = None,
    ) -> jax.Array:
        def run(params: list[jax.Array], *inputs: Any, **rows: jax.Array) -> jax.Array:
            return self.family.denoise(self.structure.module(params), *inputs, **rows)

        if sample_rows is None:
            return parallel.automatically(run, noisy)(params, noisy, times, conditions)
        return parallel.automatically(run, sample_rows)(params, noisy, times, conditions, sample_rows=sample_rows)


class Rows(NamedTuple):
    """The values of each image where latents are generated."""

    noise: jax.Array  # float32 ``[n, h, w, c]``
    states: Tree  # conditions, arrays ``[n, ...]``
    clean: jax.Array | None  # like ``noise``
    keys: jax.Array | None  # uint32 ``[n, ...]``, the data of the keys of the steps' noise


class Shared(NamedTuple):
    """The values that all images share: parameters of the denoiser, and arguments of `samplers.sample`."""

    params: list[jax.Array]
    plan: samplers.Plan
    empty: Tree | None
    guidance_scale: jax.Array


@dataclasses.dataclass(frozen=True)
class LatentGeneration:
    """Noise as latents. Hashable: runs of as many steps with networks that are built alike are one program."""

    sampler: samplers.Sampler
    denoiser: Denoising

    def __call__(self, shared: Shared, rows: Rows) -> jax.Array:
        # Float32 means float32: accelerators would otherwise round the factors of matrix products to 10 bits or fewer.
        with functional.precision(shared.params[0].dtype):
            return samplers.sample(
                self.sampler,
                functools.partial(self.denoiser, shared.params),
                shared.plan,
                rows.noise,
                rows.states,
                guidance=None if shared.empty is None else (shared.empty, shared.guidance_scale),
                clean=rows.clean,
                step_noise=None if rows.keys is None else functools.partial(_step_noise, rows),
            )


def _step_noise(rows: Rows, number: jax.Array) -> jax.Array:
    """The noise of a step, by its number."""
    keys = jax.random.wrap_key_data(rows.keys, impl=random_numbers.GENERATOR)
    return jax.vmap(lambda key: random_numbers.normal(jax.random.fold_in(key, number), rows.noise.shape[1:]))(keys)


@functools.partial(jax.jit, static_argnums=0)
def call(function: Callable[..., Tree], params: Any, *arguments: Any) -> Tree:
    return function(params, *arguments)


def shapes(function: Callable[..., Tree], params: Any, *arguments: Any) -> Tree:
    """The shapes and dtypes of a pure function's result. Equal functions are traced once."""
    return jax.eval_shape(functools.partial(call, function), params, *arguments)


@functools.partial(jax.jit, static_argnums=(0, 1))
def call_on_rows(function: Callable[[Any, Tree], Tree], mesh: Mesh, params: Any, rows: Tree) -> Tree:
    """Calls a compiled function on rows ``[n, ...]`` that the mesh's data axis splits, each device by itself."""
    # On one device, too: its mesh shows which kernels it takes, and that it works by itself.
    split = PartitionSpec(parallel.DATA_AXIS)
    return parallel.map_over_data(function, mesh, (PartitionSpec(), split), split)(params, rows)


def padded_rows(tree: Tree, start: int, batch_size: int) -> Tree:
    """``batch_size`` rows of a tree (or None) from row ``start`` on, padded with zeros."""

    def rows(leaf: Any) -> jax.Array:
        part = jnp.asarray(leaf[start : start + batch_size])
        return jnp.pad(part, [(0, batch_size - len(part))] + [(0, 0)] * (part.ndim - 1))

    return jax.tree.map(rows, tree)


def in_batches(function: Callable[..., Tree], *trees: Tree, batch_size: int) -> Tree:
    """Applies a compiled function to rows of trees (or None), always ``batch_size`` of them: one compilation."""
    total = len(jax.tree.leaves(trees[0])[0])
    results = []
    for start in range(0, total, batch_size):
        count = min(batch_size, total - start)
        result = function(*padded_rows(trees, start, batch_size))
        results.append(jax.tree.map(lambda leaf, count=count: leaf[:count], result))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *results)
