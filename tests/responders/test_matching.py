"""Any scorer as a responder by its scores, and which requests about images a name answers."""

import dataclasses
import hashlib

import numpy as np
import pytest
from PIL import Image

from tests.evaluation.image_fakes import Brightness, Noisy, draw
from tests.expectations import raises
from tests.scorers import tiny_models
from winobench.base import registry
from winobench.responders import loading
from winobench.responders.matching import Matcher
from winobench.runs import responses
from winobench.runs.requests import SEVERAL, ImageMatch, ImageSimilarity, InputImage, Similarity
from winobench.scorers import loading as scorers

TEXTS = ("a red cube", "a blue ball left of the cube")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    found = []
    for number in range(5):
        pixels = np.random.default_rng(number % 4).integers(0, 256, (24, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels // (1 + number % 4)).save(path := folder / f"{number}.png")
        found.append(InputImage(str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
    assert found[0].sha256 == found[4].sha256
    return found


def test_a_scorer_is_asked_once_for_each_picture_and_text(images):
    scorer = Brightness()
    matcher = Matcher(scorer)
    requests = [ImageMatch(image, TEXTS) for image in images]
    answers = dict(matcher.ask(requests))
    assert sorted(answers) == [0, 1, 2, 3, 4]
    assert scorer.calls == 4
    assert answers[0] == answers[4] != answers[1]
    expected = scorer.score([Image.open(images[1].path)], TEXTS)[0]
    assert matcher.read(requests[1], answers[1]).scores == pytest.approx(expected.tolist())
    assert "sampling" not in matcher.fingerprint()
    assert list(matcher.ask([])) == []


def test_scores_of_samples_are_means_and_come_part_by_part(images):
    scorer = Noisy()
    matcher = Matcher(scorer, num_samples=4, seed=3)
    requests = [ImageMatch(images[number % 4], (f"text {number}", "the other")) for number in range(40)]
    answers = matcher.ask(requests)
    first, raw = next(answers)
    # Sixteen requests at once, so that a kill takes no more.
    assert len({text for _, text, _ in scorer.computed}) <= 17
    assert first < 16
    rest = dict(answers)
    assert sorted([first, *rest]) == list(range(40))
    assert len(scorer.computed) == len(set(scorer.computed)) + 2 * 4 * 4  # "the other" of four pictures, three parts
    path = images[first % 4].path
    mean = np.mean([np.float32(draw(path, f"text {first}", sample)) for sample in range(4)])
    assert matcher.read(requests[first], raw).scores[0] == pytest.approx(-mean)
    assert matcher.fingerprint()["sampling"] == {"num_samples": 4, "seed": 3, "timesteps": "uniform"}
    assert Matcher(scorer, num_samples=5).fingerprint() != matcher.fingerprint()


class Encoder(Brightness):
    """A scorer whose vectors are an image's mean colours, of any length."""

    def encode_images(self, images):
        return np.stack([np.asarray(Image.open(path)).mean((0, 1)) - 60 for path in images])


def test_images_are_compared_with_each_other(images):
    """The cosines of all pairs in order, next to matches."""
    matcher = Matcher(Encoder())
    requests = [
        ImageSimilarity(tuple(images[:3])),
        ImageMatch(images[0], TEXTS),
        ImageSimilarity((images[4], images[0])),
    ]
    read = {number: matcher.read(requests[number], raw) for number, raw in matcher.ask(requests)}
    vectors = Encoder().encode_images([image.path for image in images[:3]])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = [vectors[0] @ vectors[1], vectors[0] @ vectors[2], vectors[1] @ vectors[2]]
    assert read[0].scores == pytest.approx(expected, abs=1e-12)
    assert read[2].scores == pytest.approx((1.0,), abs=1e-12)
    assert len(read[1].scores) == 2
    assert "picture_similarity" not in Matcher(Brightness()).kinds
    with raises("empty-list", "1 images"):
        next(matcher.ask([ImageSimilarity((images[0],))]))
    with pytest.raises(ValueError, match="3 candidates"):
        matcher.read(requests[0], {"scores": [1.0]})
    moved = [dataclasses.replace(image, path="elsewhere.png") for image in images[:3]]
    assert responses.key({}, requests[0]) == responses.key({}, ImageSimilarity(tuple(moved)))
    assert responses.key({}, requests[0]) != responses.key({}, ImageSimilarity(tuple(images[1:4])))


def test_what_cannot_be_asked_or_read(images):
    matcher = Matcher(Brightness())
    with raises("kind-not-answered", "requests[0]", "similarity", "picture_match"):
        next(matcher.ask([Similarity("a", ("b", "c"))]))
    with raises("empty-list", "requests[0]"):
        next(matcher.ask([ImageMatch(images[0], ())]))
    with raises("no-such-file", "nowhere.png"):
        next(matcher.ask([ImageMatch(InputImage("nowhere.png", "0" * 64), TEXTS)]))
    request = ImageMatch(images[0], TEXTS)
    for raw in ({}, {"scores": [1.0]}, {"scores": [1.0, None]}, {"scores": [1.0, float("nan")]}, {"error": {}}):
        with pytest.raises(ValueError, match=r"."):
            matcher.read(request, raw)


def test_names_tell_what_a_model_does(tmp_path, tiny_t5, tiny_pipeline):
    folders = {
        "clip": tiny_models.write_clip(tmp_path / "clip"),
        "blip": tiny_models.write_blip(tmp_path / "blip"),
        "pipeline": tiny_pipeline,
    }
    match = frozenset({"picture_match"})
    writes = match | {"picture_text", "picture_turn", "picture_options", "picture_starts"}
    encodes, reads = match | {"picture_similarity"}, writes - {"picture_turn"}  # Janus reads images
    for name, folder in folders.items():
        assert loading.answered_kinds(str(folder)) == (encodes if name == "clip" else match)
    assert loading.answered_kinds(str(folders["clip"]), scorers.TEXTS) == {"similarity"}
    assert loading.answered_kinds(str(tiny_t5)) == {"generation", "options"}
    assert loading.answered_kinds("openai:gpt-4o") is None
    for name, model in registry.MODELS.items():
        answered = {"vqa_score": writes, "contrastive": encodes, "image_likelihood": reads}.get(model.scorer, match)
        if name == "clevr-tokens":  # its vision tower is not trained
            answered = frozenset()
        assert loading.answered_kinds(name) - SEVERAL == answered
    for name in {*registry.LANGUAGE_MODELS} - {*registry.MODELS}:
        assert not scorers._sees(registry.resolve(name))
    with raises("wrong-kind-of-model", "'clevr-tiny'"):
        scorers.resolve("clevr-tiny", scorers.TEXTS)
    assert scorers.resolve("clevr-tiny", scorers.IMAGES).kind == "diffusion_itm"
    with raises("option-of-others", "int8", repr(str(folders["clip"]))):
        loading.load_responder(str(folders["clip"]), about_images=True, int8=True)
    for name in (str(folders["clip"]), "openai:gpt-4o"):
        with raises("option-of-others", "max_pixels", repr(name)):
            loading.load_responder(name, about_images=True, max_pixels=4096)
    clip = loading.load_responder(str(folders["clip"]), about_images=True, batch_size=4)
    assert clip.kinds == encodes
    assert clip.fingerprint()["scorer"] == "contrastive"
