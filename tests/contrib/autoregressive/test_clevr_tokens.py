"""The shipped weights: they are small, and they know their scenes."""

import pathlib

import jax
import numpy as np
import pytest
import safetensors

from winobench import parallel
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.clevr import captions
from winobench.contrib.autoregressive import answering
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.responders import loading as responders
from winobench.tasks import clevr_common

FOLDER = pathlib.Path(registry.resolve("clevr-tokens").source)


def test_is_small_and_in_half_precision():
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 12e6
    (weights,) = (path for path in files if path.suffix == ".safetensors")
    with safetensors.safe_open(weights, "np") as file:
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"F16"}  # noqa: SIM118
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".ckpt", ".pkl")]


def test_is_not_asked_because_its_vision_tower_is_not_trained():
    assert responders.answered_kinds("clevr-tokens") == frozenset()
    with pytest.raises(InputError, match="reads images is not trained") as error:
        answering.ImageAnswers.from_pretrained("clevr-tokens")
    assert error.value.code == "kind-not-answered"


@pytest.mark.slow
def test_tells_captions_of_scenes_that_it_never_saw():
    """Far above chance in each sub-task: a coin would reach 25 of 32 once in 950 tries."""
    scorer = ImageLikelihood.from_pretrained("clevr-tokens", mesh=parallel.make_mesh(jax.devices()[:2]))
    things, images = clevr_common.evaluation_things(16), clevr_common.evaluation_images(16)
    questions = [
        captions.items(scene, clevr_common.distractor_color(number, scene)) for number, scene in enumerate(things)
    ]
    texts = sorted({text for items in questions for pairs in items.values() for pair in pairs for text in pair})
    scores = scorer.score(images, texts)
    for subtask in ("recognition_color", "spatial"):
        margins = [
            scores[image, texts.index(true)] - scores[image, texts.index(false)]
            for image, items in enumerate(questions)
            for true, false in items[subtask]
        ]
        assert len(margins) == 32
        assert np.sum(np.asarray(margins) > 0) >= 25, subtask
