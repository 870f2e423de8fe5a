"""Inside of `jax.set_mesh` of the caller: the same numbers, whatever the axes are called, explicit or automatic."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import winobench
from tests.scorers import fakes, tiny_models
from winobench import parallel
from winobench.diffusion.schedules import NoiseSchedule
from winobench.responders.language_model import LanguageModel
from winobench.runs.requests import Generation, Options, Turn
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube", "the blue ball"]
# Of float32 sums over 4 x 4 x 3 or 8 x 8 x 4 numbers, in another order. Own programs give the same bits.
RELATIVE = 2e-6
MESHES = {"batch": ((2,), ("batch",)), "data-fsdp": ((2, 2), ("data", "fsdp"))}


@contextlib.contextmanager
def inside(name, kind):
    shape, axes = MESHES[name]
    devices = jax.devices()[: int(np.prod(shape))]
    mesh = jax.make_mesh(shape, axes, axis_types=(kind,) * len(axes), devices=devices)
    with jax.set_mesh(mesh):
        yield lambda array: jax.device_put(array, NamedSharding(mesh, PartitionSpec(axes)))


CASES = [("batch", AxisType.Explicit), ("data-fsdp", AxisType.Explicit), ("data-fsdp", AxisType.Auto)]


def triples(put=jnp.asarray):
    rows = np.arange(4) % 2
    return winobench.Triples(put(rows), put(rows), put(np.arange(4)), put(np.array([100, 400, 700, 900])))


def plain_denoiser(params, noisy, times, states):
    return params * noisy + states.mean(axis=(1, 2))[:, None, None, None] + times[:, None, None, None] / 1000


@pytest.fixture(scope="module")
def pipeline(tiny_pipeline):
    return winobench.load_pipeline(tiny_pipeline)


@pytest.fixture(scope="module")
def errors(pipeline):
    function, params = pipeline.denoiser_function()
    states = pipeline.encode_texts(TEXTS)
    latents = np.random.default_rng(0).standard_normal((4, *pipeline.latent_shape(pipeline.image_size)), np.float32)

    @jax.jit
    def compiled(latents, triples):
        key = winobench.noise_key(0)
        return winobench.denoising_errors(function, params, pipeline.schedule, latents, states, triples, key)

    return compiled, latents, compiled(latents, triples())


@pytest.mark.slow  # the quick one is that of a caller's denoiser
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_errors_of_split_triples(errors, name, kind):
    compiled, latents, expected = errors
    with inside(name, kind) as put:
        found = compiled(put(latents), triples(put))
        np.testing.assert_allclose(found, expected, rtol=RELATIVE)
        if kind == AxisType.Explicit:  # they stay where the caller has put the rows
            assert jax.typeof(found).sharding.spec == PartitionSpec(MESHES[name][1])


@pytest.mark.quick(1)
@pytest.mark.parametrize(("name", "kind", "jitted"), [*((*mesh, True) for mesh in CASES), (*CASES[0], False)])
def test_a_callers_denoiser_keeps_explicit_axes(name, kind, jitted):
    schedule, seen = NoiseSchedule(), []
    latents, states = np.ones((2, 4, 4, 3), np.float32), np.ones((2, 3, 5), np.float32)

    def denoiser(params, noisy, times, states):
        seen.append(jax.typeof(noisy).sharding.spec)
        return plain_denoiser(params, noisy, times, states)

    def errors(params, triples):
        noise, target = winobench.noise_key(1), "epsilon"
        return winobench.denoising_errors(denoiser, params, schedule, latents, states, triples, noise, target=target)

    call, gradient = errors, jax.grad(lambda params, triples: errors(params, triples).mean())
    if jitted:
        call, gradient = jax.jit(call), jax.jit(gradient)
    expected, slope = call(0.5, triples()), gradient(0.5, triples())
    with inside(name, kind) as put:
        np.testing.assert_allclose(call(0.5, triples(put)), expected, rtol=RELATIVE)
        np.testing.assert_allclose(call(0.5, triples()), expected, rtol=RELATIVE)  # rows that all devices hold
        np.testing.assert_allclose(gradient(0.5, triples(put)), slope, rtol=RELATIVE)
    if kind == AxisType.Explicit:
        assert PartitionSpec(MESHES[name][1], None, None, None) in seen


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_raw_keys_are_keys(impl):
    def errors(key):
        latents, states = jnp.ones((2, 4, 4, 3)), jnp.ones((2, 3, 5))
        return winobench.denoising_errors(plain_denoiser, 0.5, NoiseSchedule(), latents, states, triples(), key)

    with jax.default_prng_impl(impl):
        np.testing.assert_array_equal(errors(jax.random.PRNGKey(3)), errors(jax.random.key(3)))


@pytest.fixture(scope="module")
def own_programs(pipeline, tmp_path_factory, tiny_language_model):
    folder = tmp_path_factory.mktemp("models")
    images = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), np.uint8) for seed in range(2)]
    mesh = parallel.make_mesh(jax.devices()[:2])
    blip = tiny_models.write_blip(folder / "blip")
    turns = (Turn("user", "Is it yellow?"),)

    def answers(model):
        return [raw for _, raw in model.ask([Options(turns, ("yes", "no")), Generation(turns, max_tokens=4)])]

    return {
        "given noise": lambda: DiffusionITM(fakes.Pipeline(), mesh=mesh, batch_size=2).score(
            images, TEXTS, noise=np.ones((3, *fakes.LATENT_SHAPE), np.float32), normalize="gray_image"
        ),
        "generate": lambda: pipeline.generate(TEXTS, num_steps=2, batch_size=2, sampler="euler_ancestral", seed=3),
        "matching head": lambda: winobench.ItmHead.from_pretrained(blip, mesh=mesh).score(images, TEXTS),
        "language model": lambda: answers(LanguageModel.from_pretrained(tiny_language_model, mesh=mesh)),
    }


@pytest.mark.quick(2)
@pytest.mark.parametrize("what", ["given noise", "matching head", "generate", "language model"])
def test_own_programs_do_not_meet_the_callers_mesh(own_programs, what):
    expected = own_programs[what]()
    for name, kind in (CASES[0], CASES[-1]):
        with inside(name, kind):
            found = own_programs[what]()
            assert jax.sharding.get_abstract_mesh().axis_names == MESHES[name][1]
        if what == "language model":
            assert found == expected
        else:
            np.testing.assert_array_equal(found, expected)


def test_errors_come_one_by_one_between_the_callers_own_work():
    scorer = DiffusionITM(fakes.Pipeline(), mesh=parallel.make_mesh(jax.devices()[:1]), batch_size=2)
    images, rows = [fakes.image(seed) for seed in range(3)], np.indices((3, 2, 2)).reshape(3, -1).T
    expected = scorer.errors(images, TEXTS, num_samples=2)
    found = np.zeros(len(rows), np.float32)
    with inside("batch", AxisType.Explicit) as put:
        for numbers, errors in scorer.iter_errors(images, TEXTS, rows, num_samples=2):
            assert jax.sharding.get_abstract_mesh().axis_names == ("batch",)
            assert put(np.ones(2)).sum() == 2
            found[numbers] = errors
    np.testing.assert_array_equal(found.reshape(3, 2, 2), expected)


@pytest.mark.slow
def test_weights_that_a_caller_has_split(pipeline):
    scorer = DiffusionITM(pipeline, mesh=parallel.make_mesh(jax.devices()[:2]))
    images = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), np.uint8) for seed in range(2)]
    before = jax.tree.map(jnp.asarray, nnx.state(pipeline.unet))
    first = scorer.score(images, TEXTS, num_samples=2)
    with inside("batch", AxisType.Explicit) as put:
        split = jax.tree.map(lambda array: put(1.5 * array) if array.shape[0] % 2 == 0 else 1.5 * array, before)
        nnx.update(pipeline.unet, split)
        second = scorer.score(images, TEXTS, num_samples=2)
    nnx.update(pipeline.unet, jax.tree.map(lambda array: 1.5 * array, before))
    np.testing.assert_array_equal(scorer.score(images, TEXTS, num_samples=2), second)
    nnx.update(pipeline.unet, before)
    assert np.abs(second - first).max() > 1e-3
