"""The transformers of flow models against torch diffusers: what all must do, and then what one alone has."""

import types

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers import Flux2KleinPipeline, FluxPipeline
from flax import nnx

from tests.expectations import names, raises
from tests.parity import harness
from tests.parity.transformer_families import FAMILIES, TOLERANCE
from winobench import checkpoints
from winobench.base.errors import InputError
from winobench.models import flux_blocks, lora
from winobench.models.autoencoder_kl_flux2 import AutoencoderKLFlux2, AutoencoderKLFlux2Config
from winobench.models.transformer_sd3 import SD3Transformer2DModel
from winobench.models.transformer_z_image import ZImageConditions

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
    harness.check_close(harness.call(ours, *arrays), family.predict(network, *arrays), TOLERANCE)


@pytest.mark.slow
@EACH
def test_published_heads(family):
    """Their width and axes, and positions as far out as those of 640 pixels."""
    network, ours = family.pair(**family.published_heads)
    arrays = family.inputs(ours.config, height=4, width=80, tokens=20)
    harness.check_close(harness.call(ours, *arrays), family.predict(network, *arrays), TOLERANCE)


@pytest.mark.slow
@EACH
def test_remat_gives_the_same_gradient(family):
    _, ours = family.small_pair()
    arrays = family.inputs(ours.config, height=4, width=4)
    graph, state = nnx.split(ours)

    def gradient(remat):
        def loss(state):
            return jnp.sum(jnp.square(nnx.merge(graph, state)(*arrays, remat=remat)))

        return jax.tree.leaves(jax.jit(jax.grad(loss), compiler_options=harness.QUICK_COMPILATION)(state))

    harness.check_close(gradient(True), gradient(False), TOLERANCE)


@pytest.mark.quick(1)
@EACH
def test_half_precision(family):
    network, ours = family.small_pair()
    half = harness.from_torch(family.ours, ours.config, network, dtype="bfloat16")
    arrays = family.inputs(ours.config)
    found = harness.call(half, *arrays)
    assert found.dtype == jnp.bfloat16
    assert harness.relative_error(found.astype(jnp.float32), family.predict(network, *arrays)) < family.half


@EACH
def test_adapted_layers(family):
    for targets, count in family.adapted.items():
        ours = checkpoints.abstract_model(family.ours, family.small_pair()[1].config)
        lora.add_lora(ours, lora.LoRAConfig(targets), rngs=nnx.Rngs(0))
        assert len(lora.adapters(ours)) == count, targets


@EACH
def test_files_in_both_directions(family, tmp_path):
    harness.check_files(*family.small_pair(), tmp_path, max_shard_size="40KB")
    assert (tmp_path / "theirs" / "diffusion_pytorch_model.safetensors.index.json").exists()


@pytest.mark.slow
@table("released")
def test_released_sizes(family, entry):
    config = getattr(family.config, entry)()
    network = harness.check_shapes(family.ours, config, lambda: family.theirs.from_config(config.to_dict()))
    size = sum(tensor.numel() for tensor in network.state_dict().values())
    assert round(size / 1e9, 3) == family.released[entry]
    assert family.config.from_dict(dict(network.config)) == config


@table("unsupported")
def test_unsupported_options(family, entry):
    with pytest.raises(InputError, match=names(family.config.__name__, entry)):
        family.config.from_dict({entry: family.unsupported[entry]})


SD3, FLUX, FLUX2, Z_IMAGE = FAMILIES["sd3"], FAMILIES["flux"], FAMILIES["flux2"], FAMILIES["z_image"]
# The small network of the family is like 3.5-medium.
SD3_MEDIUM = {"dual_attention_layers": (), "qk_norm": None, "in_channels": 16, "out_channels": None}
ONE_BLOCK = {"dual_attention_layers": (), "num_layers": 1, "patch_size": 1}
Z_OPTIONS = {"qk_norm": False, "rope_theta": 40.0, "t_scale": 30.0, "norm_eps": 1e-3, "n_refiner_layers": 2}


@pytest.mark.parametrize(
    ("family", "options", "size"),
    [
        # Odd in positions, too, which are taken from the middle of the table.
        pytest.param(SD3, SD3_MEDIUM, (6, 8), id="3-medium"),
        pytest.param(SD3, ONE_BLOCK, (6, 8), id="one block"),
        pytest.param(Z_IMAGE, Z_OPTIONS, (12, 8), id="z_image", marks=pytest.mark.slow),
    ],
)
def test_other_options(family, options, size):
    theirs, ours = family.pair(**options)
    arrays = family.inputs(ours.config, height=size[0], width=size[1])
    harness.check_close(harness.call(ours, *arrays), family.predict(theirs, *arrays), TOLERANCE)


@pytest.mark.slow
def test_the_table_of_positions_is_read_and_made():
    """Files hold it, rounded to their dtype; where a network is new, it is computed: float32's last bits."""
    theirs, ours = SD3.pair(**SD3_MEDIUM)
    table = theirs.pos_embed.pos_embed
    fresh = SD3Transformer2DModel(ours.config, rngs=nnx.Rngs(0))
    assert harness.relative_error(fresh.pos_embed.pos_embed[...], table) < 1e-6
    with torch.no_grad():
        table += 1
    read = harness.from_torch(SD3Transformer2DModel, ours.config, theirs)
    assert harness.relative_error(read.pos_embed.pos_embed[...], table) == 0


def test_a_sample_of_another_size_is_refused():
    _, ours = SD3.pair(**SD3_MEDIUM)
    for size in ((20, 8), (7, 8)):
        with pytest.raises(ValueError, match=names(str(size[0]), str(size[1]))):
            ours(*SD3.inputs(ours.config, height=size[0], width=size[1]))


FLUX2_OPTIONS = {"guidance_embeds": True, "mlp_ratio": 2.3, "rope_theta": 500, "eps": 1e-3, "num_layers": 1}


@pytest.fixture(scope="module")
def told_guidance():
    return FLUX.pair(guidance_embeds=True)


@pytest.mark.parametrize("family", [pytest.param(FLUX, marks=pytest.mark.slow), FLUX2], ids=["flux", "flux2"])
def test_network_with_guidance(family, told_guidance):
    """FLUX.2's has other options, too."""
    network, ours = told_guidance if family is FLUX else family.pair(**FLUX2_OPTIONS)
    arrays, guidance = family.inputs(ours.config), np.array([3.5, 1.0], np.float32)
    expected = family.predict(network, *arrays, guidance)
    harness.check_close(harness.call(ours, *arrays, guidance=guidance), expected, TOLERANCE)
    assert harness.relative_error(family.predict(network, *arrays, guidance[::-1].copy()), expected) > 1e-3


def test_patches_and_back():
    latents = np.random.default_rng(0).normal(size=(2, 6, 4, 3)).astype(np.float32)
    packed = FluxPipeline._pack_latents(torch.from_numpy(latents.transpose(0, 3, 1, 2).copy()), 2, 3, 6, 4)
    patches = flux_blocks.to_patches(latents)
    np.testing.assert_array_equal(np.asarray(patches).reshape(2, 6, 12), packed.numpy())
    np.testing.assert_array_equal(flux_blocks.from_patches(patches), latents)


def test_what_it_is_not_given(told_guidance):
    _, untold = FLUX.small_pair()
    sample, times, conditions = FLUX.inputs(untold.config)
    with pytest.raises(ValueError, match=names("guidance_embeds=True")):
        told_guidance[1](sample, times, conditions)
    with pytest.raises(ValueError, match=names("guidance_embeds=False")):
        untold(sample, times, conditions, guidance=times)
    with pytest.raises(ValueError, match=names("11", "8")):
        untold(sample[:, 1:], times, conditions)


@pytest.mark.slow
def test_what_is_behind_a_text_does_not_matter():
    """Neither its values, nor how much there is of it; rows do not matter to each other."""
    _, ours = Z_IMAGE.small_pair()
    sample, times, (states, lengths) = Z_IMAGE.inputs(ours.config, batch=3)
    expected = harness.call(ours, sample, times, ZImageConditions(states, lengths))
    behind = np.where(np.arange(45)[:, None] < lengths[:, None, None], states, np.nan)
    longer = np.pad(behind, ((0, 0), (0, 50), (0, 0)), constant_values=np.nan)
    for changed in (behind, longer):
        harness.check_close(harness.call(ours, sample, times, ZImageConditions(changed, lengths)), expected, TOLERANCE)
    none = harness.call(ours, sample, times, ZImageConditions(states, lengths * np.array([1, 0, 1], np.int32)))
    assert np.isfinite(none).all()
    np.testing.assert_allclose(none[::2], expected[::2], atol=1e-5)


@pytest.mark.parametrize("size", [(11, 8), (12, 200)])
def test_sizes_that_cannot_be(size):
    _, ours = Z_IMAGE.small_pair()
    with pytest.raises(ValueError, match=str(size[0] if size[0] % 2 else "axes_lens")):
        harness.call(ours, *Z_IMAGE.inputs(ours.config, height=size[0], width=size[1]))


@pytest.fixture(scope="module")
def autoencoders():
    levels = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    sizes = {"block_out_channels": (8, 12), "layers_per_block": 1, "latent_channels": 3, "norm_num_groups": 4}
    network = harness.randomize(diffusers.AutoencoderKLFlux2(**levels, **sizes, batch_norm_eps=1e-2))
    rng = np.random.default_rng(1)
    network.bn.running_mean.copy_(torch.from_numpy(rng.normal(size=12)))
    network.bn.running_var.copy_(torch.from_numpy(rng.uniform(0.01, 2, size=12)))
    config = AutoencoderKLFlux2Config.from_dict(dict(network.config))
    return network, harness.from_torch(AutoencoderKLFlux2, config, network)


def test_normalized_latents(autoencoders):
    """Those of the published pipeline's own encoding."""
    network, ours = autoencoders
    images = np.random.default_rng(0).uniform(-1, 1, (2, 12, 8, 3)).astype(np.float32)
    pipeline = types.SimpleNamespace(vae=network, _patchify_latents=Flux2KleinPipeline._patchify_latents)
    with torch.no_grad():
        normal = Flux2KleinPipeline._encode_vae_image(pipeline, harness.to_torch(images), generator=None)
        raw = harness.from_nchw(network.encode(harness.to_torch(images)).latent_dist.mean)
    expected = harness.from_nchw(Flux2KleinPipeline._unpatchify_latents(normal))
    mean, _ = harness.call(ours, images, method="encode")
    normalized = harness.call(ours, mean, method="normalize")
    assert normalized.shape == (2, 6, 4, 3)
    back = harness.call(ours, normalized, method="denormalize")
    harness.check_close([mean, normalized, back], [raw, expected, mean], TOLERANCE)
    assert harness.relative_error(raw, expected) > 0.1


def test_decoded_latents(autoencoders):
    network, ours = autoencoders
    latents = np.random.default_rng(0).normal(size=(2, 6, 4, 3)).astype(np.float32)
    harness.check_close(
        harness.call(ours, latents, method="decode"), network.decode(harness.to_torch(latents)).sample, TOLERANCE
    )


def test_files_of_the_autoencoder(autoencoders, tmp_path):
    harness.check_files(*autoencoders, tmp_path)


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
