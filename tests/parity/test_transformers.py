"""The transformers of flow models against torch diffusers: what all of them must do."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from tests.expectations import names
from tests.parity.harness import (
    QUICK_COMPILATION,
    call,
    check_close,
    check_files,
    check_shapes,
    from_torch,
    relative_error,
)
from tests.parity.transformer_families import FAMILIES, TOLERANCE
from winobench import checkpoints
from winobench.base.errors import InputError
from winobench.models import lora

EACH = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def table(field):
    """A test for each entry of a field of the families."""
    rows = [(family, entry) for family in FAMILIES.values() for entry in getattr(family, field)]
    labels = [f"{name}-{entry}" for name, family in FAMILIES.items() for entry in getattr(family, field)]
    return pytest.mark.parametrize(("family", "entry"), rows, ids=labels)


@pytest.mark.quick(4)
@table("sizes")
def test_network(family, entry):
    network, ours = family.small_pair()
    arrays = family.inputs(ours.config, height=entry[0], width=entry[1])
    check_close(call(ours, *arrays), family.predict(network, *arrays), TOLERANCE)


@pytest.mark.slow
@EACH
def test_published_heads(family):
    """Their width and axes, and positions as far out as those of 640 pixels."""
    network, ours = family.pair(**family.published_heads)
    arrays = family.inputs(ours.config, height=4, width=80, tokens=20)
    check_close(call(ours, *arrays), family.predict(network, *arrays), TOLERANCE)


@pytest.mark.slow
@EACH
def test_remat_gives_the_same_gradient(family):
    _, ours = family.small_pair()
    arrays = family.inputs(ours.config, height=4, width=4)
    graph, state = nnx.split(ours)

    def gradient(remat):
        def loss(state):
            return jnp.sum(jnp.square(nnx.merge(graph, state)(*arrays, remat=remat)))

        return jax.tree.leaves(jax.jit(jax.grad(loss), compiler_options=QUICK_COMPILATION)(state))

    check_close(gradient(True), gradient(False), TOLERANCE)


@pytest.mark.quick(1)
@EACH
def test_half_precision(family):
    network, ours = family.small_pair()
    half = from_torch(family.ours, ours.config, network, dtype="bfloat16")
    arrays = family.inputs(ours.config)
    found = call(half, *arrays)
    assert found.dtype == jnp.bfloat16
    assert relative_error(found.astype(jnp.float32), family.predict(network, *arrays)) < family.half


@EACH
def test_adapted_layers(family):
    for targets, count in family.adapted.items():
        ours = checkpoints.abstract_model(family.ours, family.small_pair()[1].config)
        lora.add_lora(ours, lora.LoRAConfig(targets), rngs=nnx.Rngs(0))
        assert len(lora.adapters(ours)) == count, targets


@EACH
def test_files_in_both_directions(family, tmp_path):
    check_files(*family.small_pair(), tmp_path, max_shard_size="40KB")
    assert (tmp_path / "theirs" / "diffusion_pytorch_model.safetensors.index.json").exists()


@pytest.mark.slow
@table("released")
def test_released_sizes(family, entry):
    config = getattr(family.config, entry)()
    network = check_shapes(family.ours, config, lambda: family.theirs.from_config(config.to_dict()))
    size = sum(tensor.numel() for tensor in network.state_dict().values())
    assert round(size / 1e9, 3) == family.released[entry]
    assert family.config.from_dict(dict(network.config)) == config


@table("unsupported")
def test_unsupported_options(family, entry):
    option, value = entry
    with pytest.raises(InputError, match=names(family.config.__name__, option)):
        family.config.from_dict({option: value})
