import json
from typing import ClassVar
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import PIL.Image
import pytest
from flax import nnx

from tests.expectations import names, raises
from tests.scorers import fakes
from winobench import parallel
from winobench.base.errors import InputError
from winobench.checkpoints import models
from winobench.diffusion.schedules import NoiseSchedule
from winobench.engine import batch_size, sharing
from winobench.metrics import normalization
from winobench.models import layers
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.scorers import denoising, diffusion_itm, samples
from winobench.scorers.diffusion_itm import DiffusionITM

IMAGES = [fakes.image(seed) for seed in range(3)]
TEXTS = ["a cat", "three blind mice", ""]


def scorer(**options):
    defaults = {"batch_size": 8, "mesh": parallel.make_mesh(jax.devices()[:1])}
    return DiffusionITM(fakes.Pipeline(**options.pop("pipeline", {})), **defaults | options)


def given_noise(count=5):
    return np.random.default_rng(0).standard_normal((count, *fakes.LATENT_SHAPE)).astype(np.float32)


def by_hand(noise, timesteps, *, prediction_type="epsilon", target="own", gain=0.5, offset=0.1):
    schedule = NoiseSchedule(prediction_type=prediction_type)
    result = np.zeros((len(IMAGES), len(TEXTS), len(noise)))
    for i, image in enumerate(IMAGES):
        for j, text in enumerate(TEXTS):
            for s, (eps, t) in enumerate(zip(noise.astype(np.float64), timesteps, strict=True)):
                z, kept = fakes.latents(image), float(schedule.alphas_cumprod[t])
                noisy = np.sqrt(kept) * z + np.sqrt(1 - kept) * eps
                predicted = gain * noisy + offset * fakes.text_value(text)
                if prediction_type == "epsilon":
                    wanted = eps
                else:
                    wanted = np.sqrt(kept) * eps - np.sqrt(1 - kept) * z
                    if target == "epsilon":
                        predicted, wanted = np.sqrt(kept) * predicted + np.sqrt(1 - kept) * noisy, eps
                result[i, j, s] = np.sum((wanted - predicted) ** 2)
    return result


@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction"])
@pytest.mark.parametrize(("target", "error"), [("own", "squared_l2"), ("epsilon", "l2")])
def test_errors_are_the_definition(prediction_type, target, error):
    timesteps = [0, 10, 500, 998, 500]
    squared = by_hand(given_noise(), timesteps, prediction_type=prediction_type, target=target)
    expected = squared if error == "squared_l2" else np.sqrt(squared)
    pipeline = {"schedule": NoiseSchedule(prediction_type=prediction_type)}
    got = scorer(pipeline=pipeline, target=target, error=error).errors(
        IMAGES, TEXTS, noise=given_noise(), timesteps=timesteps
    )
    assert got.dtype == np.float32
    # Float32 against float64; the smallest error is 1e-2 of the largest term in it.
    np.testing.assert_allclose(got, expected, rtol=2e-5)


def test_antithetic_errors_are_those_of_negated_noise():
    timesteps = samples.choose_timesteps("antithetic", 5, seed=3)
    first = np.asarray(samples.draw_noise(samples.noise_key(3), jnp.array([0, 2, 4]), fakes.LATENT_SHAPE))
    noise = np.stack([first[0], -first[0], first[1], -first[1], first[2]])
    errors = scorer().errors(IMAGES, TEXTS, num_samples=5, seed=3, timesteps="antithetic")
    np.testing.assert_allclose(errors, by_hand(noise, timesteps), rtol=2e-5)
    # The same timesteps as a list have independent noise.
    others = scorer().errors(IMAGES, TEXTS, seed=3, timesteps=timesteps)
    np.testing.assert_allclose(others[..., ::2], errors[..., ::2], rtol=1e-6)  # another program
    assert (np.abs(others[..., 1::2] - errors[..., 1::2]) > 1e-3).all()
    same = scorer().errors(IMAGES, TEXTS, seed=3, timesteps=timesteps, noise="antithetic")
    np.testing.assert_array_equal(same, errors)
    with raises("bad-value", "opposite"):
        scorer().errors(IMAGES, TEXTS, noise="opposite")


def test_pure_function_takes_trees_of_text_states_and_runs_in_the_callers_jit():
    def denoiser(params, noisy, timesteps, states):
        return noisy * 0 + params * states["a"][:, :, None, None] + states["b"][:, None, None, None]

    @jax.jit
    def mean_error(params, states):
        index = jnp.array([0, 1, 1])
        errors = denoising.denoising_errors(
            denoiser,
            params,
            NoiseSchedule(),
            jnp.zeros((2, 1, 1, 1)),
            states,
            denoising.Triples(index, index, index, jnp.array([1, 2, 3])),
            jnp.zeros((2, 1, 1, 1)),
        )
        return errors

    states = {"a": jnp.array([[1.0], [2.0]]), "b": jnp.array([0.0, 10.0])}
    np.testing.assert_allclose(mean_error(2.0, states), [4.0, 196.0, 196.0])
    gradient = jax.grad(lambda p: mean_error(p, states).sum())(2.0)
    np.testing.assert_allclose(gradient, 2 * 2 + 2 * (2 * 14 * 2))


def test_drawn_noise_and_timesteps_are_those_of_samples():
    s = scorer()
    drawn = s.errors(IMAGES, TEXTS, num_samples=6, seed=9)
    noise = samples.draw_noise(samples.noise_key(9), jnp.arange(6), s.latent_shape)
    timesteps = samples.choose_timesteps("uniform", 6, seed=9)
    np.testing.assert_allclose(drawn, s.errors(IMAGES, TEXTS, noise=noise, timesteps=timesteps), rtol=1e-6)
    np.testing.assert_allclose(drawn, by_hand(np.asarray(noise), timesteps), rtol=2e-5)
    assert not np.allclose(drawn, s.errors(IMAGES, TEXTS, num_samples=6, seed=10))


def test_scores():
    s = scorer(error="l2")
    errors = s.errors(IMAGES, TEXTS, num_samples=4).astype(np.float64)
    plain = s.score(IMAGES, TEXTS, num_samples=4, normalize="none")
    np.testing.assert_allclose(plain, -errors.mean(axis=-1), rtol=1e-12)
    normalised = s.score(IMAGES, TEXTS, num_samples=4, normalize="unconditional")
    np.testing.assert_allclose(normalised, -(errors - errors[:, 2:]).mean(axis=-1), rtol=1e-12)
    np.testing.assert_array_equal(normalised[:, 2], 0)
    np.testing.assert_array_equal(s.score(IMAGES, TEXTS, num_samples=4), normalised)
    assert plain.shape == (3, 3)


@pytest.mark.parametrize("normalize", normalization.NORMALIZATIONS)
def test_a_score_depends_on_its_own_image_and_text_alone(normalize):
    s, how = scorer(), {"num_samples": 4, "normalize": normalize}
    together = s.score(IMAGES, [*TEXTS, "a text of more words than the others have"], **how)
    for row, image in enumerate(IMAGES):
        for column, text in enumerate(TEXTS):
            # Up to rounding: the empty text is scored among the others, or beside them.
            alone = s.score([image], [text], **how)
            np.testing.assert_allclose(alone[0, 0], together[row, column], rtol=1e-5, atol=1e-5)


def test_the_gray_image_is_subtracted_text_by_text():
    """Appendix F; the gray image's own unconditional error is not in it: it is the same for all candidates."""
    s = scorer()
    gray = np.full((7, 9, 3), 128, np.uint8)  # of another size than ours: resized, it is the same
    errors = s.errors([*IMAGES, gray], TEXTS, num_samples=4).astype(np.float64)
    several = s.score(IMAGES, TEXTS, num_samples=4, normalize="gray_image")
    expected = -(errors[:3] - errors[:3, 2:] - errors[3:])  # the last text is the empty one
    np.testing.assert_allclose(several, expected.mean(axis=-1), rtol=1e-12, atol=1e-12)


def count_triples(monkeypatch):
    seen = []
    original = DiffusionITM.iter_errors

    def recorded(self, images, texts, triples, **options):
        seen.append((list(images), list(texts), np.asarray(triples)))
        return original(self, images, texts, triples, **options)

    monkeypatch.setattr(DiffusionITM, "iter_errors", recorded)
    return seen


@pytest.mark.parametrize(("normalize", "scored"), [("unconditional", ["a", "b b", ""]), ("none", ["a", "b b"])])
def test_the_unconditional_pass_is_made_once_where_it_is_needed(monkeypatch, normalize, scored):
    seen = count_triples(monkeypatch)
    scorer().score(IMAGES, ["a", "b b"], num_samples=4, normalize=normalize)
    ((_, texts, triples),) = seen
    assert texts == scored
    assert len(triples) == len(np.unique(triples, axis=0)) == 3 * len(scored) * 4


def test_repeated_images_and_texts_are_scored_once(monkeypatch, tmp_path):
    path = tmp_path / "image.png"
    PIL.Image.fromarray(IMAGES[2]).save(path)
    image = PIL.Image.open(path)
    seen = count_triples(monkeypatch)
    images = [IMAGES[0], str(path), IMAGES[0].copy(), path, image, image]
    errors = scorer().errors(images, ["a", "b", "a"], num_samples=2)
    ((distinct, texts, triples),) = seen
    assert (len(distinct), texts, len(triples)) == (3, ["a", "b"], 3 * 2 * 2)
    np.testing.assert_array_equal(errors[[0, 1, 1]], errors[[2, 3, 4]])
    np.testing.assert_array_equal(errors[:, 0], errors[:, 2])
    assert (errors[0] != errors[1]).all()


@pytest.mark.parametrize("unet", [fakes.UNet, fakes.SharingUNet])
def test_triples_in_any_order_arrive_in_parts(unet):
    s = scorer(batch_size=4, pipeline={"unet": unet()})
    everything = s.errors(IMAGES, TEXTS, num_samples=6)
    triples = np.random.default_rng(1).permutation(np.indices(everything.shape).reshape(3, -1).T)[:30]
    parts = list(s.iter_errors(IMAGES, TEXTS, triples, num_samples=6))
    assert [len(part) for _, part in parts] == [4] * 7 + [2]
    np.testing.assert_allclose(in_one_piece(parts, 30), everything[tuple(triples.T)], rtol=1e-6)
    assert list(s.iter_errors(IMAGES, TEXTS, np.zeros((0, 3), int), num_samples=6)) == []


def test_texts_of_an_image_and_a_sample_are_scored_together():
    s = scorer(batch_size=4)
    triples = np.indices((3, 3, 4)).reshape(3, -1).T
    parts = list(s.iter_errors(IMAGES, TEXTS, triples, num_samples=4))
    scored = triples[np.concatenate([rows for rows, _ in parts])]
    np.testing.assert_array_equal(scored, np.array([(i, t, n) for i in range(3) for n in range(4) for t in range(3)]))


class CountingUNet(fakes.SharingUNet):  # of a class of its own, so that no other test has compiled it
    traced: ClassVar[list[int]] = []


@pytest.mark.parametrize(
    ("devices", "texts", "noised"),
    [
        (1, 1, 24),
        (2, 4, 7),
        *(pytest.param(1, *case, marks=pytest.mark.slow) for case in ((3, 13), (9, 4))),
    ],
)
def test_what_comes_ahead_of_the_texts_is_computed_once(devices, texts, noised):
    """Of 24 texts of a device in a row, with two (four, eight) of each image and sample, at most 13 (7, 4) differ."""
    texts = ["x" * n for n in range(1, 1 + texts)]
    expected = scorer().errors(IMAGES, texts, num_samples=20)
    CountingUNet.traced.clear()
    jax.clear_caches()
    mesh = parallel.make_mesh(jax.devices()[:devices])
    s = scorer(pipeline={"unet": CountingUNet()}, batch_size=24, mesh=mesh)
    np.testing.assert_allclose(s.errors(IMAGES, texts, num_samples=20), expected, rtol=1e-6)
    assert set(CountingUNet.traced) == {noised}


@mock.patch.object(sharing, "WORTH_A_PROGRAM", 0)
def test_sharing_where_it_does_not_fit():
    expected = scorer().errors(IMAGES, TEXTS, num_samples=11)
    triples = [(0, t, n) for t in range(3) for n in range(11)] + [(i, 1, n) for i in (1, 2) for n in range(11)]
    s = scorer(pipeline={"unet": CountingUNet()}, batch_size=8)
    CountingUNet.traced.clear()
    jax.clear_caches()
    got = in_one_piece(s.iter_errors(IMAGES, TEXTS, triples, num_samples=11), len(triples))
    np.testing.assert_allclose(got, expected[tuple(np.transpose(triples))], rtol=1e-6)
    assert set(CountingUNet.traced) == {5, 8}


def test_a_session_shares_as_it_did_first():
    session = scorer(pipeline={"unet": CountingUNet()}, batch_size=8).session(IMAGES, TEXTS, num_samples=3)
    jax.clear_caches()
    CountingUNet.traced.clear()
    whole, half = np.indices((3, 3, 3)).reshape(3, -1).T, np.indices((3, 1, 3)).reshape(3, -1).T
    for triples in (whole, half, whole):
        in_one_piece(session.iter_errors(triples), len(triples))
    assert sorted(CountingUNet.traced) == [5, 8]
    assert session._texts_to_share == 2
    in_one_piece(session.iter_errors(half, choose_again=True), len(half))
    assert session._texts_to_share == 1


def test_more_images_and_texts_than_rows():
    images = [fakes.image(seed) for seed in range(11)]
    texts = ["x" * n for n in range(1, 9)]
    expected = scorer().errors(images, texts, num_samples=2)
    # Five rows: encoding in batches of four, everything is dropped and encoded again many times.
    small = scorer(table_rows=5)
    np.testing.assert_allclose(small.errors(images, texts, num_samples=2), expected, rtol=1e-6)
    triples = np.random.default_rng(1).permutation(np.indices(expected.shape).reshape(3, -1).T)
    got = in_one_piece(small.iter_errors(images, texts, triples, num_samples=2), len(triples))
    np.testing.assert_allclose(got, expected[tuple(triples.T)], rtol=1e-6)


def test_nothing_is_compiled_when_images_texts_or_samples_change(compilations):
    s = scorer()
    s.score(IMAGES, TEXTS, num_samples=3)
    with compilations() as count:
        scorer().errors(IMAGES, TEXTS, num_samples=3)
        s.score(IMAGES[:2], ["new text"], num_samples=17, seed=5)
        s.errors([fakes.image(seed) for seed in range(40)], [f"text {n}" for n in range(50)], num_samples=1)
        s.score(IMAGES[:1], ["a", "b"], timesteps="even", num_samples=4)
    assert count.total == 0
    # With a network that shares: as long as the number of texts is of the same kind, here two or three.
    s = scorer(pipeline={"unet": fakes.SharingUNet()})
    s.score(IMAGES, TEXTS, num_samples=3)
    with compilations() as count:
        s.score(IMAGES[:2], ["new text"], num_samples=17, seed=5)
        s.errors([fakes.image(seed) for seed in range(40)], ["a", "b", "c"], num_samples=9)
    assert count.total == 0
    with compilations() as count:
        # The counter counts: another batch size is another shape.
        scorer(batch_size=5).errors(IMAGES, TEXTS, num_samples=3)
    assert count.total > 0


def test_nothing_hidden_crosses_between_host_and_device():
    s = scorer()
    iterator = s.iter_errors(IMAGES, TEXTS, np.indices((3, 3, 9)).reshape(3, -1).T, num_samples=9)
    with jax.transfer_guard("disallow"):
        # The guard works on this platform: NumPy indices would be an implicit copy.
        with pytest.raises(Exception, match="Disallowed host-to-device"):
            jax.jit(lambda x: x + 1)(np.arange(3))
        assert sum(len(part) for _, part in iterator) == 81


def test_images_are_read_shortly_before_they_are_needed(monkeypatch):
    read = []
    original = diffusion_itm.image_files.load_image

    def recorded(source, size):
        read.append(source)
        return original(source, size)

    monkeypatch.setattr(diffusion_itm.image_files, "load_image", recorded)
    images = [fakes.image(seed) for seed in range(300)]
    s = scorer(batch_size=1)
    triples = np.stack([np.arange(300), np.zeros(300, int), np.zeros(300, int)], axis=1)
    iterator = s.iter_errors(images, ["a"], triples, num_samples=1)
    next(iterator)
    assert 0 < len(read) < 60
    iterator.close()
    assert len(read) < 60


def test_fingerprint_tells_scorers_apart():
    prints = [
        scorer().fingerprint(),
        scorer(error="l2").fingerprint(),
        scorer(target="epsilon").fingerprint(),
        scorer(image_size=32).fingerprint(),
        scorer(timestep_range=(100, 900)).fingerprint(),
        scorer(pipeline={"fingerprint": "other"}).fingerprint(),
        scorer(pipeline={"unet": fakes.UNet(dtype=jnp.bfloat16)}).fingerprint(),
    ]
    assert len({json.dumps(value, sort_keys=True) for value in prints}) == len(prints)
    assert scorer(batch_size=3).fingerprint() == prints[0]


def test_images_are_encoded_in_bfloat16_where_the_option_says_so():
    config = AutoencoderKLConfig(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(4, 4, 4),
        latent_channels=3,
        norm_num_groups=2,
    )
    exact = AutoencoderKL(config, rngs=nnx.Rngs(0))
    rounded = models.in_dtype(exact, "bfloat16")
    first, second, third = (
        scorer(pipeline={"vae": vae}, autoencoder_dtype=dtype)
        for vae, dtype in ((exact, "bfloat16"), (rounded, None), (exact, "float32"))
    )
    errors = [scorer.errors(IMAGES, TEXTS, num_samples=2) for scorer in (first, second, third)]
    np.testing.assert_array_equal(errors[0], errors[1])
    assert 0 < np.abs(errors[0] - errors[2]).max() / errors[2].max() < 0.02
    assert first.fingerprint() == third.fingerprint() | {"autoencoder_dtype": "bfloat16"}
    with raises("bad-value", "autoencoder_dtype", "float16"):
        scorer(autoencoder_dtype="float16")


def test_image_size_and_range_are_used():
    assert scorer(image_size=32).latent_shape == (8, 8, 3)
    s = scorer(timestep_range=(990, 1000))
    timesteps = samples.choose_timesteps("uniform", 4, timestep_range=(990, 1000))
    np.testing.assert_array_equal(
        s.errors(IMAGES, TEXTS, num_samples=4), scorer().errors(IMAGES, TEXTS, num_samples=4, timesteps=timesteps)
    )


def test_bfloat16_is_near_float32():
    exact = scorer().errors(IMAGES, TEXTS, num_samples=4)
    rough = scorer(pipeline={"unet": fakes.UNet(dtype=jnp.bfloat16)}).errors(IMAGES, TEXTS, num_samples=4)
    # Rounding to 8 bits moves each term by up to 1/256, and leaves the sum in float32.
    np.testing.assert_allclose(rough, exact, rtol=2e-2)
    assert (rough != exact).any()
    assert len(np.unique(rough)) == rough.size


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.score([], ["a"]), ("empty-list", "images")),
        (lambda s: s.score(IMAGES, []), ("empty-list", "texts")),
        (lambda s: s.score(IMAGES, "a cat"), ("wrong-type", "texts")),
        (lambda s: s.score("cat.png", ["a"]), ("wrong-type", "images")),
        (lambda s: s.score(IMAGES[0], ["a"]), ("wrong-type", "images")),
        (lambda s: s.score(IMAGES, ["a"], noise=jax.random.key(0)), ("wrong-shape", "noise")),
        (lambda s: s.score(IMAGES, [7]), ("wrong-type", "texts[0]")),
        (lambda s: s.score(IMAGES, ["a"], normalize="gray"), ("bad-value", "normalize", "'gray'")),
        (lambda s: s.score(IMAGES, ["a"], normalize="auto"), ("bad-value", "'auto'", "unconditional", "none")),
        (lambda s: s.errors(IMAGES, ["a"], noise=np.zeros((2, 3, 4, 4))), ("wrong-shape", "noise", "num_samples", "4")),
        (lambda s: s.errors(IMAGES, ["a"], noise=np.zeros((0, 4, 4, 3))), ("wrong-shape", "noise")),
        (lambda s: s.errors(IMAGES, ["a"], noise=np.zeros((2, 4, 4, 3), int)), ("wrong-shape", "noise")),
        (lambda s: s.errors(IMAGES, ["a"], noise=given_noise(2), timesteps=[1, 2, 3]), ("wrong-shape", "2")),
        (lambda s: s.errors(IMAGES, ["a"], noise=given_noise(2), num_samples=3), ("wrong-shape", "2")),
        (lambda s: s.iter_errors(IMAGES, ["a"], [[0, 0]], num_samples=1), ("wrong-shape", "triples")),
        (lambda s: s.iter_errors(IMAGES, ["a"], [[0.0, 0, 0]], num_samples=1), ("wrong-shape", "triples")),
        (lambda s: s.iter_errors(IMAGES, ["a"], [[0, 1, 0]], num_samples=1), ("out-of-range", "triples", "1")),
        (lambda s: s.iter_errors(IMAGES, ["a"], [[-1, 0, 0]], num_samples=1), ("out-of-range", "triples", "images")),
        (lambda s: s.score(["/nowhere/cat.png"], ["a"]), ("no-such-file", "/nowhere/cat.png")),
    ],
)
def test_bad_input(call, words):
    with raises(*words):
        call(scorer())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"error": "l1"}, ("bad-value", "error", "'l1'")),
        ({"batch_size": 0}, ("bad-value", "batch_size", "0")),
        ({"batch_size": "fast"}, ("out-of-range", "batch_size", "'fast'", "1")),
        ({"table_rows": 0}, ("bad-value", "table_rows", "0")),
        ({"image_size": 18}, ("not-a-multiple", "4")),
        ({"timestep_range": (10, 5)}, ("bad-value", "timestep_range")),
        ({"mesh": jax.make_mesh((1, 1), ("x", "y"), devices=jax.devices()[:1])}, ("wrong-axes", "mesh", "'x'")),
    ],
)
def test_bad_options(options, words):
    with raises(*words):
        scorer(**options)


def test_neither_the_batch_size_nor_the_number_of_devices_changes_anything():
    devices = jax.devices("cpu")
    assert len(devices) >= 8  # tests/conftest.py asks for them
    assert DiffusionITM(fakes.Pipeline()).mesh.size == jax.device_count()
    expected = scorer(batch_size=8).errors(IMAGES, TEXTS, num_samples=7)
    np.testing.assert_allclose(scorer(batch_size=3).errors(IMAGES, TEXTS, num_samples=7), expected, rtol=1e-6)
    split = parallel.make_mesh(devices[:8], model_parallel=2)
    for mesh in (split, jax.make_mesh((3,), ("data",), devices=devices[:3])):
        found = scorer(batch_size=2, mesh=mesh).errors(IMAGES, TEXTS, num_samples=7)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_cores_have_room_for_transformed_kernels(monkeypatch):
    class UNet(fakes.UNet):
        def __init__(self):
            super().__init__()
            kinds = {"dtype": jnp.float32, "param_dtype": jnp.float32, "rngs": nnx.Rngs(0)}
            self.convolution = layers.Conv2d(64, 64, 3, padding=1, **kinds)

    bytes_given = 4 * (9 * 64 * 64 + 64 + 2)
    monkeypatch.setattr(parallel.mesh, "_CPU_COPIES_BYTES", 8 * bytes_given)
    pipeline = fakes.Pipeline(unet=UNet())
    assert parallel.default_mesh(pipeline.denoiser_function()[1]).size == 8
    # 16 numbers in place of 9.
    assert DiffusionITM(pipeline).mesh.size == 4


def in_one_piece(parts, count):
    errors, times = np.full(count, np.nan, np.float32), np.zeros(count, int)
    for rows, part in parts:
        assert rows.shape == part.shape
        errors[rows] = part
        times[rows] += 1
    np.testing.assert_array_equal(times, 1)
    return errors


def test_a_batch_that_does_not_fit_is_halved(caplog):
    mesh = parallel.make_mesh(jax.devices()[:2])
    triples = np.indices((3, 3, 9)).reshape(3, -1).T
    expected = in_one_piece(scorer(mesh=mesh, batch_size=2).iter_errors(IMAGES, TEXTS, triples, num_samples=9), 81)
    greedy = scorer(mesh=mesh, batch_size=9, pipeline={"unet": fakes.GreedyUNet()})
    got = in_one_piece(greedy.iter_errors(IMAGES, TEXTS, triples, num_samples=9), 81)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "9 triples at once on each device do not fit into memory",
        "4 triples at once on each device do not fit into memory",
    ]
    assert caplog.records[-1].getMessage().endswith("bytes): going on with 2")
    assert greedy.batch_size == 2
    # It stays so.
    greedy.errors(IMAGES, TEXTS, num_samples=3)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(("part", "noun", "sizes"), [("vae", "image", [4]), ("text_encoder", "text", [8, 4])])
def test_what_does_not_fit_while_encoding_is_halved(part, noun, sizes, caplog):
    kind = {"vae": fakes.GreedyVAE, "text_encoder": fakes.GreedyTextEncoder}[part]
    images, texts = [fakes.image(seed) for seed in range(9)], ["x" * n for n in range(1, 19)]
    expected = scorer().errors(images, texts, num_samples=2)
    greedy = scorer(pipeline={part: kind()}, table_rows=7)
    np.testing.assert_allclose(greedy.errors(images, texts, num_samples=2), expected, rtol=1e-6)
    assert [record.getMessage().split(" at once")[0] for record in caplog.records] == [f"{n} {noun}s" for n in sizes]
    assert greedy.batch_size == 8


class HopelessUNet(fakes.GreedyUNet):
    fits = 0


def test_not_even_one_fits(caplog):
    greedy = scorer(batch_size=2, pipeline={"unet": HopelessUNet()})
    with pytest.raises(InputError, match=names("bfloat16", "image_size", "model_parallel")):
        greedy.errors(IMAGES, TEXTS, num_samples=2)
    assert len(caplog.records) == 1


def out_of_memory():
    return jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12345 bytes.")


@pytest.mark.parametrize(("at", "fails"), [("dispatch", 3), ("fetch", 1), ("fetch", 8)])
def test_work_goes_on_where_it_stopped(at, fails, monkeypatch, caplog):
    expected = scorer().errors(IMAGES, TEXTS, num_samples=9).ravel()
    module, name = (denoising, "fused_step") if at == "dispatch" else (parallel, "fetch")
    steps, calls, fused_step = [], [], denoising.fused_step

    def counted(*arguments):
        steps.append(len(arguments[-2]))
        return fused_step(*arguments)

    monkeypatch.setattr(denoising, "fused_step", counted)
    original = getattr(module, name)

    def failing(*arguments):
        calls.append(None)
        if len(calls) == fails:
            raise out_of_memory()
        return original(*arguments)

    monkeypatch.setattr(module, name, failing)
    s = scorer(batch_size=8)
    triples = np.indices((3, 3, 9)).reshape(3, -1).T
    got = in_one_piece(s.iter_errors(IMAGES, TEXTS, triples, num_samples=9), 81)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert s.batch_size == 4
    assert len(caplog.records) == 1
    # Beyond what is needed, no more than the steps that were under way when one failed, and padding.
    assert sum(steps) <= len(triples) + 5 * 8 + 7


def test_other_errors_of_a_device_are_passed_on(monkeypatch):
    def broken(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    monkeypatch.setattr(denoising, "fused_step", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        scorer().errors(IMAGES, TEXTS, num_samples=1)


def test_processes_that_share_a_mesh_do_not_halve(monkeypatch):
    def failing(*_):
        raise out_of_memory()

    s = scorer()
    monkeypatch.setattr(denoising, "fused_step", failing)
    monkeypatch.setattr(parallel, "is_multihost", lambda mesh: True)
    with pytest.raises(InputError, match=names("8", "batch_size")):
        s.errors(IMAGES, TEXTS, num_samples=1)
    assert s.batch_size == 8


def test_a_session_survives_a_failure_also_at_its_end(monkeypatch):
    s = scorer(batch_size=1)
    expected = s.errors(IMAGES, TEXTS, num_samples=2).ravel()
    triples = np.indices((3, 3, 2)).reshape(3, -1).T
    session = s.session(IMAGES, TEXTS, num_samples=2)
    with monkeypatch.context() as patch:

        def losing(*_):
            for table in session._images, session._texts:
                table.array.delete()
            raise out_of_memory()

        patch.setattr(denoising, "fused_step", losing)
        s._images.encoder.size.per_device = s._texts.encoder.size.per_device = 1
        with raises("out-of-memory"):
            list(session.iter_errors(triples))
    np.testing.assert_allclose(in_one_piece(session.iter_errors(triples), 18), expected, rtol=1e-6)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(batch_size, "_SECONDS", 0.01)
    monkeypatch.setattr(batch_size, "_SPAN", 2)
    return tmp_path


def test_the_batch_size_is_searched_for_once(cache, monkeypatch, caplog):
    found = scorer(batch_size="search", image_size=64)
    assert found.latent_shape == (16, 16, 3)
    assert len(caplog.records) == 1
    message = caplog.records[0].getMessage()
    assert message.startswith(f"batch size {found.batch_size} was found to be the fastest (passes/s: ")
    assert message.endswith(f"; remembered in {cache / 'batch_sizes.json'}")
    monkeypatch.setattr(batch_size, "search", None)
    assert scorer(batch_size="search", image_size=64).batch_size == found.batch_size
    assert len(caplog.records) == 1
    np.testing.assert_allclose(
        found.errors(IMAGES, TEXTS, num_samples=2),
        scorer(image_size=64).errors(IMAGES, TEXTS, num_samples=2),
        rtol=1e-5,
    )
    # Other latents, other networks and other devices have sizes of their own.
    others = {"pipeline": {"unet": fakes.UNet(dtype=jnp.bfloat16)}}, {"mesh": parallel.make_mesh(jax.devices()[:2])}
    for options in ({"image_size": 32}, *({"image_size": 64, **other} for other in others)):
        with pytest.raises(TypeError, match="not callable"):
            scorer(batch_size="search", **options)


def test_the_search_compiles_what_the_evaluation_runs(cache, compilations):
    s = scorer(batch_size="search", pipeline={"unet": fakes.UNet(gain=0.125)})
    s._images.encoder.encode([s._images.blank])  # encoding is compiled apart
    with compilations() as count:
        run = s._timed_steps()
        run(s.batch_size, 1)
    assert count.total == 0


def test_a_search_leaves_out_what_does_not_fit(cache):
    assert scorer(batch_size="search", pipeline={"unet": fakes.GreedyUNet()}).batch_size <= 2


def test_weights_of_timesteps_weigh_the_errors():
    s = scorer()
    curve = {"edges": [300.0, 600.0], "weights": [0.5, 0.0, 2.0]}
    timesteps = [100, 400, 700, 900]
    errors = s.errors(IMAGES, TEXTS, timesteps=timesteps).astype(np.float64)
    scores = s.score(IMAGES, TEXTS, timesteps=timesteps, timestep_weights=curve, normalize="none")
    np.testing.assert_allclose(scores, -(errors @ [0.5, 0.0, 2.0, 2.0]) / 4.5, rtol=1e-6)
    with pytest.raises(InputError, match=names("cosmap", "uniform")):
        s.score(IMAGES, TEXTS, timestep_weights="cosmap")


class Plain(nnx.Module):
    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __call__(self, noisy, times, conditions):
        return 0.5 * noisy


def test_a_plain_module_is_a_denoiser_with_two_attributes():
    with raises("wrong-type", "unet", "Plain", "config"):
        fakes.Pipeline().replace(unet=Plain())
    with raises("wrong-type", "dtype"):
        fakes.Pipeline().replace(unet=Plain(config=None))
    plain = DiffusionITM(fakes.Pipeline().replace(unet=Plain(config=None, dtype=jnp.float32)), batch_size=2)
    assert np.isfinite(plain.errors(IMAGES, TEXTS, num_samples=2)).all()
