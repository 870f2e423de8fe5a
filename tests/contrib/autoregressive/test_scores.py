"""Scores of pairs equal a plain loop in torch, whatever the batches, the devices and the parts of the head."""

import jax
import numpy as np
import pytest

from tests.contrib.autoregressive.tiny import TEXTS, WRITERS, pictures
from winobench import parallel
from winobench.contrib.autoregressive import network, scorer
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.models import attention, snapshots
from winobench.scorers.base import WithoutSamples

FAMILIES = tuple(WRITERS)
# Of the spread of an image's scores.
TOLERANCE = 1e-5


def codes_of(likelihood, images):
    structure, params = snapshots.split(likelihood.model)
    batch = [np.stack(one_size) for one_size in zip(*map(likelihood.processor, images), strict=True)]
    return np.asarray(
        jax.jit(lambda params, batch: scorer._codes(structure.module(params), batch, likelihood.processor))(
            params, batch
        )
    )


def difference(got, wanted):
    """The largest difference, as a share of the spread of an image's scores over texts."""
    return np.abs(got - wanted).max() / np.ptp(wanted, axis=1).mean()


@pytest.mark.quick(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_codes_of_images_equal_torch(load_generator, codes_in_torch, one_device, family):
    likelihood = ImageLikelihood(load_generator(family), mesh=one_device)
    codes = codes_of(likelihood, pictures())
    np.testing.assert_array_equal(codes, np.stack(codes_in_torch(family)))
    assert len(np.unique(codes)) > 2  # of random weights


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("family", "guidance"),
    [
        *((family, None) for family in FAMILIES),
        *(pytest.param(family, 3.0, marks=pytest.mark.slow if family != "janus" else ()) for family in FAMILIES),
    ],
)
def test_scores_equal_torch(load_generator, reference_of, codes_in_torch, one_device, family, guidance):
    wanted = reference_of(family).scores(codes_in_torch(family), TEXTS, guidance)
    likelihood = ImageLikelihood(load_generator(family), guidance=guidance, batch_size=5, mesh=one_device)
    scores = likelihood.score(pictures(), TEXTS)
    assert scores.dtype == np.float64
    assert difference(scores, wanted) < TOLERANCE
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)
    assert np.ptp(wanted, axis=1).min() > 1  # nats: texts matter


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_batches_and_devices_change_nothing(load_generator, one_device, family):
    generator = load_generator(family)
    wanted = ImageLikelihood(generator, batch_size=5, mesh=one_device).score(pictures(), TEXTS)
    meshes = [(1, 1, 1), (2, 1, 3), (8, 1, 1), (4, 2, 2)]
    for devices, sharing, batch_size in meshes:
        mesh = parallel.make_mesh(jax.devices()[:devices], model_parallel=sharing)
        likelihood = ImageLikelihood(generator, batch_size=batch_size, mesh=mesh)
        got = likelihood.score(pictures(), TEXTS)
        assert difference(got, wanted) < TOLERANCE, (devices, sharing, batch_size)


def test_all_pairs_have_one_program(load_generator, one_device):
    likelihood = ImageLikelihood(load_generator("janus"), guidance=2.0, batch_size=4, mesh=one_device)
    before = scorer._score_pairs._cache_size()
    likelihood.score(pictures(), TEXTS)
    assert scorer._score_pairs._cache_size() == before + 1
    likelihood.score(pictures(1), [*TEXTS, "another text", "x" * len(TEXTS[1])])
    assert scorer._score_pairs._cache_size() == before + 1


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision(load_generator, reference_of, codes_in_torch, one_device, family):
    """Codes are those of float32. Scores are as near to float32's as torch's own in bfloat16."""
    likelihood = ImageLikelihood(load_generator(family, "bfloat16"), batch_size=5, mesh=one_device)
    np.testing.assert_array_equal(codes_of(likelihood, pictures()), np.stack(codes_in_torch(family)))
    kinds = {array.get_value().dtype.name for array in likelihood.model.arrays.values()}
    assert {"bfloat16", "float32"} <= kinds
    wanted = reference_of(family).scores(codes_in_torch(family), TEXTS)
    of_torch = reference_of(family, "bfloat16").scores(codes_in_torch(family), TEXTS)
    got = likelihood.score(pictures(), TEXTS)
    print(family, "bfloat16", difference(got, wanted), difference(of_torch, wanted))
    assert 0 < difference(got, wanted) < max(0.02, 2 * difference(of_torch, wanted))


def test_the_head_in_parts_equals_the_head_at_once(load_generator, monkeypatch):
    generator = load_generator("janus")
    family, random = generator.family, np.random.default_rng(0)
    ids = random.integers(0, 256, (2, 3, 12)).astype(np.int32)
    codes = random.integers(0, family.codes, (3, family.scored)).astype(np.int32)
    lengths = np.asarray([12, 5, 9], np.int32)
    structure, params = snapshots.split(generator.network)

    def compute():
        def ratios(params, ids, codes):
            without = (ids[1], lengths)
            return structure.module(params).log_ratios((ids[0], lengths), codes, without, 3.0)

        all_logits = f"f32[3,{family.scored},{family.codes}]"
        return np.asarray(jax.jit(ratios)(params, ids, codes)), all_logits in str(
            jax.make_jaxpr(ratios)(params, ids, codes)
        )

    at_once, is_whole = compute()
    assert is_whole
    monkeypatch.setattr(network, "_LOGITS", 4 * 3 * family.codes)
    in_parts, is_whole = compute()
    assert not is_whole
    np.testing.assert_allclose(in_parts, at_once, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_is_causal_without_a_mask(load_generator, monkeypatch, family):
    """A mask would be one of all pairs of tokens, and would miss the fast kernels of GPUs and TPUs."""
    generator, calls = load_generator(family), set()
    usual = attention.dot_product_attention

    def recorded(*arrays, is_causal=False, mask=None, **others):
        calls.add((is_causal, mask is None))
        return usual(*arrays, is_causal=is_causal, mask=mask, **others)

    monkeypatch.setattr(attention, "dot_product_attention", recorded)
    structure, params = snapshots.split(generator.network)
    ids, codes = np.zeros((2, 8), np.int32), np.zeros((2, generator.family.scored), np.int32)
    jax.eval_shape(
        lambda params: structure.module(params).log_ratios((ids, np.asarray([8, 3], np.int32)), codes), params
    )
    assert calls == {(True, True)}
    assert network.CAUSAL in str(generator.network.program.key)  # networks with other attention share no program


def test_scores_keep_what_float32_loses(load_generator, one_device, monkeypatch):
    """Long images have scores near -70,000 nats, where a float32 has steps of 0.008."""
    likelihood = ImageLikelihood(load_generator("janus"), mesh=one_device)
    family = likelihood.model.family
    assert likelihood.chance == pytest.approx(-family.scored * np.log(family.codes))
    usual = likelihood.score(pictures(1), TEXTS[:2])[0]
    monkeypatch.setattr(likelihood, "chance", likelihood.chance - 70_000)
    far = likelihood.score(pictures(1), TEXTS[:2])[0]
    np.testing.assert_allclose(far + 70_000, usual, atol=1e-9)
    # Runs record what is left of the error without the number that all scores share.
    wrapped = WithoutSamples(likelihood)
    ((_, errors),) = wrapped.iter_errors(pictures(1), list(TEXTS[:2]), np.asarray([[0, 0, 0], [0, 1, 0]]))
    assert errors.dtype == np.float32
    np.testing.assert_allclose(likelihood.chance - errors.astype(np.float64), far, atol=1e-5)
