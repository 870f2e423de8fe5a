"""Z-Image's transformer against torch diffusers on the same random weights."""

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from tests.expectations import names
from tests.parity.torch_copy import QUICK_COMPILATION, call, from_torch, randomize, relative_error
from winobench import checkpoints
from winobench.base.errors import InputError
from winobench.models import ZImageConditions, ZImageTransformer2DModel, ZImageTransformerConfig, lora

TOLERANCE = 1e-5
SMALL = {
    "in_channels": 4,
    "dim": 32,
    "n_layers": 2,
    "n_refiner_layers": 1,
    "n_heads": 2,
    "n_kv_heads": 2,
    "cap_feat_dim": 24,
    "axes_dims": (4, 6, 6),
    "axes_lens": (128, 64, 64),
}
LENGTHS = (5, 40, 32)


def pair(**options):
    """A random torch network and ours with the same parameters, read through its published config."""
    network = randomize(diffusers.ZImageTransformer2DModel(**{**SMALL, **options}))
    config = ZImageTransformerConfig.from_dict(dict(network.config))
    return network, from_torch(ZImageTransformer2DModel, config, network)


def inputs(config, *, height=12, width=8, lengths=LENGTHS):
    """Texts of several lengths, with what does not matter behind them."""
    rng = np.random.default_rng(0)
    sample = rng.normal(size=(len(lengths), height, width, config.in_channels)).astype(np.float32)
    times = np.linspace(0.07, 0.95, len(lengths), dtype=np.float32)
    states = rng.normal(size=(len(lengths), 45, config.cap_feat_dim)).astype(np.float32)
    return sample, times, ZImageConditions(states, np.array(lengths, np.int32))


def predict(network, sample, times, conditions):
    """By the published network's own lists of pictures and texts."""
    pictures = [torch.from_numpy(each.transpose(2, 0, 1)[:, None].copy()) for each in sample]
    texts = [torch.from_numpy(each[:length]) for each, length in zip(*conditions, strict=True)]
    with torch.no_grad():
        result = network(pictures, torch.from_numpy(times), texts).sample
    return np.stack([each[:, 0].numpy().transpose(1, 2, 0) for each in result])


@pytest.fixture(scope="module")
def networks():
    return pair()


@pytest.mark.parametrize("size", [(12, 8), (16, 8), (2, 10)])
def test_network(networks, size):
    """24 patches and 5, which are filled up, and 32, which are not."""
    network, ours = networks
    arrays = inputs(ours.config, height=size[0], width=size[1])
    assert relative_error(call(ours, *arrays), predict(network, *arrays)) < TOLERANCE


def test_other_options():
    options = {"qk_norm": False, "rope_theta": 40.0, "t_scale": 30.0, "norm_eps": 1e-3, "n_refiner_layers": 2}
    network, ours = pair(**options)
    arrays = inputs(ours.config)
    expected = predict(network, *arrays)
    assert relative_error(call(ours, *arrays), expected) < TOLERANCE
    for option, usual in (("rope_theta", 256.0), ("t_scale", 1000.0), ("norm_eps", 1e-5)):
        other = randomize(diffusers.ZImageTransformer2DModel(**{**SMALL, **options, option: usual}))
        assert relative_error(predict(other, *arrays), expected) > 10 * TOLERANCE, option


def test_published_heads():
    """Their width and axes, the width of the condition, positions as far out as those of 640 pixels."""
    sizes = {"dim": 384, "n_heads": 3, "n_kv_heads": 3, "axes_dims": (32, 48, 48), "axes_lens": (1024, 512, 512)}
    network, ours = pair(n_layers=1, **sizes)
    assert ours.config.condition_width == 256
    arrays = inputs(ours.config, height=4, width=80)
    assert relative_error(call(ours, *arrays), predict(network, *arrays)) < TOLERANCE


def test_parts_of_the_condition_matter(networks):
    """Otherwise the tests above would pass for positions, times, texts or lengths that no output depends on."""
    network, ours = networks
    sample, times, (states, lengths) = inputs(ours.config)
    expected = predict(network, sample, times, (states, lengths))
    others = [
        predict(network, sample[:, ::-1].copy(), times, (states, lengths))[:, ::-1],
        predict(network, sample, times[::-1].copy(), (states, lengths)),
        predict(network, sample, times, (states[:, ::-1].copy(), lengths)),
        predict(network, sample, times, (states, lengths + 1)),
    ]
    assert min(relative_error(other, expected) for other in others) > 100 * TOLERANCE


def test_what_is_behind_a_text_does_not_matter(networks):
    """Neither its values, nor how much there is of it; rows do not matter to each other."""
    _, ours = networks
    sample, times, (states, lengths) = inputs(ours.config)
    expected = call(ours, sample, times, ZImageConditions(states, lengths))
    behind = np.where(np.arange(45)[:, None] < lengths[:, None, None], states, np.nan)
    longer = np.pad(behind, ((0, 0), (0, 50), (0, 0)), constant_values=np.nan)
    for changed in (behind, longer):
        assert relative_error(call(ours, sample, times, ZImageConditions(changed, lengths)), expected) < TOLERANCE
    none = call(ours, sample, times, ZImageConditions(states, lengths * np.array([1, 0, 1], np.int32)))
    assert np.isfinite(none).all()
    np.testing.assert_allclose(none[::2], expected[::2], atol=1e-5)


@pytest.mark.slow
def test_remat_gives_the_same_gradient():
    _, ours = pair(n_layers=1)
    arrays = inputs(ours.config, height=4, width=4)
    graph, state = nnx.split(ours)

    def gradient(remat):
        def loss(state):
            return jnp.sum(jnp.square(nnx.merge(graph, state)(*arrays, remat=remat)))

        return jax.tree.leaves(jax.jit(jax.grad(loss), compiler_options=QUICK_COMPILATION)(state))

    assert max(relative_error(a, b) for a, b in zip(gradient(True), gradient(False), strict=True)) < TOLERANCE


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.05), ("float16", 0.01)])
def test_half_precision(networks, dtype, tolerance):
    network, ours = networks
    half = from_torch(ZImageTransformer2DModel, ours.config, network, dtype=dtype)
    arrays = inputs(ours.config)
    found = call(half, *arrays)
    assert found.dtype == jnp.dtype(dtype)
    assert relative_error(found.astype(jnp.float32), predict(network, *arrays)) < tolerance


def test_adapted_layers():
    for targets, count in (("cross", 8), ("all", 16)):
        ours = checkpoints.abstract_model(ZImageTransformer2DModel, ZImageTransformerConfig(**SMALL))
        lora.add_lora(ours, lora.LoRAConfig(targets), rngs=nnx.Rngs(0))
        assert len(lora.adapters(ours)) == count


def test_files_in_both_directions(networks, tmp_path):
    network, ours = networks
    network.save_pretrained(tmp_path / "theirs", max_shard_size="60KB")
    assert (tmp_path / "theirs" / "diffusion_pytorch_model.safetensors.index.json").exists()
    read = ZImageTransformer2DModel.from_pretrained(tmp_path / "theirs")
    assert checkpoints.weights_sha256(read) == checkpoints.weights_sha256(ours)
    checkpoints.save_model(ours, tmp_path / "ours")
    theirs = diffusers.ZImageTransformer2DModel.from_pretrained(tmp_path / "ours").state_dict()
    assert theirs.keys() == network.state_dict().keys()
    assert all(torch.equal(theirs[name], values) for name, values in network.state_dict().items())


def test_released_size():
    config = ZImageTransformerConfig.z_image()
    with torch.device("meta"):
        network = diffusers.ZImageTransformer2DModel.from_config(config.to_dict())
    expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    abstract = checkpoints.abstract_model(ZImageTransformer2DModel, config)
    assert {key: shape for key, (_, shape) in checkpoints.torch_names(abstract).items()} == expected
    assert round(sum(np.prod(shape) for shape in expected.values()) / 1e9, 3) == 6.155
    assert ZImageTransformerConfig.from_dict(dict(network.config)) == config


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("all_patch_size", (2, 4)),
        ("all_f_patch_size", (2,)),
        ("in_channels", 0),
        ("n_heads", 7),
        ("n_kv_heads", 10),
        ("norm_eps", 0),
        ("qk_norm", None),
        ("rope_theta", 0),
        ("t_scale", 0),
        ("axes_dims", (64, 64)),
        ("axes_lens", (1024, 512)),
        ("siglip_feat_dim", 1152),
        ("n_layers", 0),
    ],
)
def test_unsupported_options(option, value):
    with pytest.raises(InputError, match=names("ZImageTransformerConfig", option)):
        ZImageTransformerConfig.from_dict({option: value})


@pytest.mark.parametrize("size", [(11, 8), (12, 200)])
def test_sizes_that_cannot_be(networks, size):
    _, ours = networks
    with pytest.raises(ValueError, match=str(size[0] if size[0] % 2 else "axes_lens")):
        call(ours, *inputs(ours.config, height=size[0], width=size[1]))
