"""FLUX.2's transformer and autoencoder against torch diffusers; errors and tolerance as in test_transformer_flux."""

import types

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import Flux2KleinPipeline
from flax import nnx

from tests.expectations import raises
from tests.parity.test_transformer_flux import TOLERANCE, call
from tests.parity.torch_copy import QUICK_COMPILATION, from_nchw, from_torch, randomize, relative_error, to_torch
from tests.parity.torch_copy import call as call_method
from winobench import checkpoints
from winobench.models import (
    AutoencoderKLFlux2,
    AutoencoderKLFlux2Config,
    Flux2Transformer2DModel,
    Flux2TransformerConfig,
    lora,
)

SMALL = {
    "in_channels": 16,
    "num_layers": 2,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 24,
    "timestep_guidance_channels": 32,
    "axes_dims_rope": (2, 6, 4, 4),
    "guidance_embeds": False,
}
SMALL_VAE = {
    "block_out_channels": (8, 12),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "latent_channels": 3,
    "batch_norm_eps": 1e-2,
}


def pair(**options):
    """A random torch network and ours with the same parameters, read through its published config."""
    network = randomize(diffusers.Flux2Transformer2DModel(**{**SMALL, **options}))
    config = Flux2TransformerConfig.from_dict(dict(network.config))
    return network, from_torch(Flux2Transformer2DModel, config, network)


def inputs(config, *, batch=2, height=12, width=8, tokens=5):
    rng = np.random.default_rng(0)
    sample = rng.normal(size=(batch, height, width, config.latent_channels)).astype(np.float32)
    times = np.linspace(0.25, 0.93, batch, dtype=np.float32)
    return sample, times, rng.normal(size=(batch, tokens, config.joint_attention_dim)).astype(np.float32)


def predict(network, sample, times, states, guidance=None):
    """By the published pipeline's own packing and positions."""
    states = torch.from_numpy(states)
    patches = Flux2KleinPipeline._patchify_latents(torch.from_numpy(sample.transpose(0, 3, 1, 2).copy()))
    ids = Flux2KleinPipeline._prepare_latent_ids(patches)
    with torch.no_grad():
        result = network(
            hidden_states=Flux2KleinPipeline._pack_latents(patches),
            encoder_hidden_states=states,
            timestep=torch.from_numpy(times),
            img_ids=ids,
            txt_ids=Flux2KleinPipeline._prepare_text_ids(states),
            guidance=None if guidance is None else torch.from_numpy(guidance),
        ).sample
    patches = Flux2KleinPipeline._unpack_latents_with_ids(result, ids, *patches.shape[2:])
    return Flux2KleinPipeline._unpatchify_latents(patches).numpy().transpose(0, 2, 3, 1)


@pytest.fixture(scope="module")
def klein():
    return pair()


@pytest.mark.parametrize("size", [(12, 8), (2, 10)])
def test_network_without_guidance(klein, size):
    network, ours = klein
    arrays = inputs(ours.config, height=size[0], width=size[1])
    assert relative_error(call(ours, *arrays), predict(network, *arrays)) < TOLERANCE


def test_network_with_guidance_and_other_options():
    options = {"guidance_embeds": True, "mlp_ratio": 2.3, "rope_theta": 500, "eps": 1e-3, "num_layers": 1}
    network, ours = pair(**options)
    arrays, guidance = inputs(ours.config), np.array([3.5, 1.0], np.float32)
    expected = predict(network, *arrays, guidance)
    assert relative_error(call(ours, *arrays, guidance=guidance), expected) < TOLERANCE
    assert relative_error(predict(network, *arrays, guidance[::-1].copy()), expected) > 1e-3
    for option in ("rope_theta", "eps"):
        other = randomize(diffusers.Flux2Transformer2DModel(**{**SMALL, **options, option: SMALL.get(option, 1e-6)}))
        assert relative_error(predict(other, *arrays, guidance), expected) > 10 * TOLERANCE, option


def test_published_heads():
    """Their width and axes, and positions as far out as those of 640 pixels."""
    options = {"attention_head_dim": 128, "axes_dims_rope": (32,) * 4, "num_layers": 1, "num_single_layers": 1}
    network, ours = pair(**options)
    arrays = inputs(ours.config, height=4, width=80, tokens=20)
    assert relative_error(call(ours, *arrays), predict(network, *arrays)) < TOLERANCE


def test_parts_of_the_condition_matter(klein):
    """Otherwise the tests above would pass for positions, times or texts that no output depends on."""
    network, ours = klein
    sample, times, states = inputs(ours.config)
    expected = predict(network, sample, times, states)
    others = [
        predict(network, sample[:, ::-1].copy(), times, states)[:, ::-1],
        predict(network, sample, times[::-1].copy(), states),
        predict(network, sample, times, states[:, ::-1].copy()),
    ]
    assert min(relative_error(other, expected) for other in others) > 100 * TOLERANCE


@pytest.mark.slow
def test_remat_gives_the_same_gradient():
    _, ours = pair(num_layers=1, num_single_layers=1)
    arrays = inputs(ours.config, height=4, width=4)
    graph, state = nnx.split(ours)

    def gradient(remat):
        def loss(state):
            return jnp.sum(jnp.square(nnx.merge(graph, state)(*arrays, remat=remat)))

        return jax.tree.leaves(jax.jit(jax.grad(loss), compiler_options=QUICK_COMPILATION)(state))

    assert max(relative_error(a, b) for a, b in zip(gradient(True), gradient(False), strict=True)) < TOLERANCE


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.05), ("float16", 0.01)])
def test_half_precision(klein, dtype, tolerance):
    network, ours = klein
    half = from_torch(Flux2Transformer2DModel, ours.config, network, dtype=dtype)
    arrays = inputs(ours.config)
    found = call(half, *arrays)
    assert found.dtype == jnp.dtype(dtype)
    assert relative_error(found.astype(jnp.float32), predict(network, *arrays)) < tolerance


def test_adapted_layers():
    config = Flux2TransformerConfig(**{**SMALL, "num_layers": 1, "num_single_layers": 1})
    for targets, count in (("cross", 8), ("all", 10)):
        ours = checkpoints.abstract_model(Flux2Transformer2DModel, config)
        lora.add_lora(ours, lora.LoRAConfig(targets), rngs=nnx.Rngs(0))
        assert len(lora.adapters(ours)) == count


def shapes(cls, config):
    return {
        name: shape for name, (_, shape) in checkpoints.torch_names(checkpoints.abstract_model(cls, config)).items()
    }


@pytest.mark.parametrize(("name", "billions"), [("klein_4b", 3.876), ("klein_9b", 9.079)])
def test_released_sizes(name, billions):
    config = getattr(Flux2TransformerConfig, name)()
    with torch.device("meta"):
        network = diffusers.Flux2Transformer2DModel.from_config(config.to_dict())
    expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    assert shapes(Flux2Transformer2DModel, config) == expected
    assert round(sum(np.prod(shape) for shape in expected.values()) / 1e9, 3) == billions
    assert Flux2TransformerConfig.from_dict(dict(network.config)) == config


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("patch_size", 2),
        ("in_channels", 126),
        ("out_channels", 32),
        ("axes_dims_rope", (64, 64)),
        ("mlp_ratio", 0),
        ("rope_theta", 0),
        ("eps", 0),
        ("guidance_embeds", None),
    ],
)
def test_unsupported_options(option, value):
    with raises("unsupported-option", f"{option}={value}"):
        Flux2TransformerConfig.from_dict({option: value})


@pytest.fixture(scope="module")
def autoencoders():
    network = randomize(diffusers.AutoencoderKLFlux2(**SMALL_VAE))
    rng = np.random.default_rng(1)
    network.bn.running_mean.copy_(torch.from_numpy(rng.normal(size=12)))
    network.bn.running_var.copy_(torch.from_numpy(rng.uniform(0.01, 2, size=12)))
    config = AutoencoderKLFlux2Config.from_dict(dict(network.config))
    return network, from_torch(AutoencoderKLFlux2, config, network)


def test_normalized_latents(autoencoders):
    """Those of the published pipeline's own encoding."""
    network, ours = autoencoders
    images = np.random.default_rng(0).uniform(-1, 1, (2, 12, 8, 3)).astype(np.float32)
    pipeline = types.SimpleNamespace(vae=network, _patchify_latents=Flux2KleinPipeline._patchify_latents)
    with torch.no_grad():
        normal = Flux2KleinPipeline._encode_vae_image(pipeline, to_torch(images), generator=None)
        raw = from_nchw(network.encode(to_torch(images)).latent_dist.mean)
    expected = from_nchw(Flux2KleinPipeline._unpatchify_latents(normal))
    mean, _ = call_method(ours, images, method="encode")
    assert relative_error(mean, raw) < TOLERANCE
    found = call_method(ours, mean, method="normalize")
    assert found.shape == (2, 6, 4, 3)
    assert relative_error(found, expected) < TOLERANCE
    assert relative_error(raw, expected) > 0.1
    assert relative_error(call_method(ours, found, method="denormalize"), mean) < TOLERANCE


def test_decoded_latents(autoencoders):
    network, ours = autoencoders
    latents = np.random.default_rng(0).normal(size=(2, 6, 4, 3)).astype(np.float32)
    with torch.no_grad():
        expected = from_nchw(network.decode(to_torch(latents)).sample)
    assert relative_error(call_method(ours, latents, method="decode"), expected) < TOLERANCE


def test_files_in_both_directions(klein, autoencoders, tmp_path):
    for index, (network, ours) in enumerate((klein, autoencoders)):
        network.save_pretrained(tmp_path / f"theirs{index}")
        read = type(ours).from_pretrained(tmp_path / f"theirs{index}")
        assert checkpoints.weights_sha256(read) == checkpoints.weights_sha256(ours)
        checkpoints.save_model(ours, tmp_path / f"ours{index}")
        theirs = type(network).from_pretrained(tmp_path / f"ours{index}").state_dict()
        assert all(torch.equal(theirs[name], values) for name, values in network.state_dict().items())


def test_released_autoencoder():
    config = AutoencoderKLFlux2Config.flux2()
    with torch.device("meta"):
        network = diffusers.AutoencoderKLFlux2.from_config(config.to_dict())
    expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    assert expected.pop("bn.num_batches_tracked") == ()
    assert shapes(AutoencoderKLFlux2, config) == expected
    assert AutoencoderKLFlux2Config.from_dict(dict(network.config)) == config
    with raises("unsupported-option", "patch_size"):
        AutoencoderKLFlux2Config.from_dict({"patch_size": (4, 4)})
    with raises("unsupported-option", "scaling_factor"):
        AutoencoderKLFlux2Config.from_dict({"scaling_factor": 0.13})
