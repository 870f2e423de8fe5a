"""Shardings of a transformer's parameters over several devices, with little communication."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from winobench import parallel


def parameter_shardings(
    state: Any,
    mesh: Mesh | AbstractMesh,
    *,
    back: Collection[str],
    embedding: str,
    head: str = "lm_head",
    whole: Collection[str] = (),
) -> Any:
    """Sharding of each parameter, so that the states between layers are whole on every device.

    As `winobench.parallel.parameter_shardings`, but what leads back to the states is split along its inputs, which are
    the outputs of the layers before it, and the embedding along its tokens. Attention and feed-forward then add up
    partial results once each (Shoeybi et al., 2019). So does the embedding, of whose rows each device has some, and
    nothing else of a layer travels. Logits are split along the vocabulary, so that only the largest ones travel
    alone. An embedding split along its features would split the states, too: as many bytes would travel, but in three
    times as many collectives, as every norm would add up its squares and every projection gather its input.

    All this holds where the number of devices divides the numbers of heads of queries, keys and values. Where it
    does not, results are the same, but more travels. Norms, biases and scales behind ``back``, and an embedding and a
    head of a number of tokens that the devices do not divide, are whole on every device.
    """
    usual = parallel.parameter_shardings(state, mesh)
    parts = mesh.shape.get(parallel.MODEL_AXIS, 1)
    if parts == 1:
        return usual
    everywhere = NamedSharding(mesh, PartitionSpec())
    first_split = NamedSharding(mesh, PartitionSpec(parallel.MODEL_AXIS, None))

    def sharding(path: tuple[Any, ...], leaf: Any, usual: NamedSharding) -> NamedSharding:
        owner, name = (entry.key for entry in path[-3:-1])  # the last entry is the parameter's value
        if name == "scale" or owner in whole or (owner in back and name != "kernel"):
            return everywhere
        if owner in back and leaf.shape[-2] % parts == 0:
            return first_split
        if owner == embedding:
            return first_split if leaf.shape[0] % parts == 0 else everywhere
        if owner == head and leaf.shape[-1] % parts:
            return everywhere
        return usual

    return jax.tree_util.tree_map_with_path(sharding, state, usual)
