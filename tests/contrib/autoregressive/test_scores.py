"""Scores of pairs equal a plain loop in torch, whatever the batches, the devices and the parts of the head."""

import jax
import numpy as np
import pytest

from tests.contrib.autoregressive.tiny import TEXTS, WRITERS, pictures
from winobench.contrib.autoregressive import scorer
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.models import snapshots

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


@pytest.mark.parametrize("family", FAMILIES)
def test_codes_of_images_equal_torch(load_generator, codes_in_torch, one_device, family):
    likelihood = ImageLikelihood(load_generator(family), mesh=one_device)
    codes = codes_of(likelihood, pictures())
    np.testing.assert_array_equal(codes, np.stack(codes_in_torch(family)))
    assert len(np.unique(codes)) > 5


@pytest.mark.parametrize("guidance", [None, 3.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_equal_torch(load_generator, reference_of, codes_in_torch, one_device, family, guidance):
    wanted = reference_of(family).scores(codes_in_torch(family), TEXTS, guidance)
    likelihood = ImageLikelihood(load_generator(family), guidance=guidance, batch_size=5, mesh=one_device)
    scores = likelihood.score(pictures(), TEXTS)
    assert scores.dtype == np.float64
    assert difference(scores, wanted) < TOLERANCE
    np.testing.assert_allclose(scores, wanted, rtol=1e-6)
    assert np.ptp(wanted, axis=1).min() > 1  # nats: texts matter
