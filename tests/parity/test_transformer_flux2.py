"""FLUX.2's autoencoder, and what other transformers do not have (see `test_transformers`), against torch diffusers."""

import types

import diffusers
import numpy as np
import pytest
import torch
from diffusers import Flux2KleinPipeline

from tests.expectations import raises
from tests.parity.harness import (
    call,
    check_close,
    check_files,
    from_nchw,
    from_torch,
    randomize,
    relative_error,
    to_torch,
)
from tests.parity.transformer_families import FAMILIES, TOLERANCE
from winobench import checkpoints
from winobench.models.autoencoder_kl_flux2 import AutoencoderKLFlux2, AutoencoderKLFlux2Config

FLUX2 = FAMILIES["flux2"]
SMALL_VAE = {
    "block_out_channels": (8, 12),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "latent_channels": 3,
    "batch_norm_eps": 1e-2,
}


def test_network_with_guidance_and_other_options():
    options = {"guidance_embeds": True, "mlp_ratio": 2.3, "rope_theta": 500, "eps": 1e-3, "num_layers": 1}
    network, ours = FLUX2.pair(**options)
    arrays, guidance = FLUX2.inputs(ours.config), np.array([3.5, 1.0], np.float32)
    expected = FLUX2.predict(network, *arrays, guidance)
    check_close(call(ours, *arrays, guidance=guidance), expected, TOLERANCE)
    assert relative_error(FLUX2.predict(network, *arrays, guidance[::-1].copy()), expected) > 1e-3


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
    mean, _ = call(ours, images, method="encode")
    normalized = call(ours, mean, method="normalize")
    assert normalized.shape == (2, 6, 4, 3)
    back = call(ours, normalized, method="denormalize")
    check_close([mean, normalized, back], [raw, expected, mean], TOLERANCE)
    assert relative_error(raw, expected) > 0.1


def test_decoded_latents(autoencoders):
    network, ours = autoencoders
    latents = np.random.default_rng(0).normal(size=(2, 6, 4, 3)).astype(np.float32)
    check_close(call(ours, latents, method="decode"), network.decode(to_torch(latents)).sample, TOLERANCE)


def test_files_in_both_directions(autoencoders, tmp_path):
    check_files(*autoencoders, tmp_path)


def test_released_autoencoder():
    config = AutoencoderKLFlux2Config.flux2()
    with torch.device("meta"):
        network = diffusers.AutoencoderKLFlux2.from_config(config.to_dict())
    expected = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    assert expected.pop("bn.num_batches_tracked") == ()
    names = checkpoints.torch_names(checkpoints.abstract_model(AutoencoderKLFlux2, config))
    assert {name: shape for name, (_, shape) in names.items()} == expected
    assert AutoencoderKLFlux2Config.from_dict(dict(network.config)) == config
    with raises("unsupported-option", "patch_size"):
        AutoencoderKLFlux2Config.from_dict({"patch_size": (4, 4)})
    with raises("unsupported-option", "scaling_factor"):
        AutoencoderKLFlux2Config.from_dict({"scaling_factor": 0.13})
