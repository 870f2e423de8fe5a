"""Who answers about pictures: any scorer by its scores, models that write by texts and likelihoods."""

import hashlib

import jax
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests import tiny_language_models
from tests.evaluation.picture_fakes import Brightness, Noisy, draw
from tests.expectations import raises
from tests.scorers import tiny_models
from tests.tiny_vision_language import write_vision_language
from winobench import parallel
from winobench.base import registry
from winobench.checkpoints import vision_language
from winobench.data import question_texts
from winobench.responders import loading
from winobench.responders.picture_matcher import PictureMatcher
from winobench.responders.picture_reader import PictureReader
from winobench.runs.requests import Picture, PictureMatch, PictureOptions, PictureText, Similarity
from winobench.scorers.vqa_score import VQAScore

TEXTS = ("a red cube", "a blue ball left of the cube")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Five pictures, of which two are equal."""
    folder = tmp_path_factory.mktemp("pictures")
    found = []
    for number in range(5):
        pixels = np.random.default_rng(number % 4).integers(0, 256, (24, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels // (1 + number % 4)).save(path := folder / f"{number}.png")
        found.append(Picture(str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
    assert found[0].sha256 == found[4].sha256
    return found


def test_a_scorer_is_asked_once_for_each_picture_and_text(pictures):
    scorer = Brightness()
    matcher = PictureMatcher(scorer)
    requests = [PictureMatch(picture, TEXTS) for picture in pictures]
    answers = dict(matcher.ask(requests))
    assert sorted(answers) == [0, 1, 2, 3, 4]
    assert scorer.calls == 4
    assert answers[0] == answers[4] != answers[1]
    expected = scorer.score([Image.open(pictures[1].path)], TEXTS)[0]
    assert matcher.read(requests[1], answers[1]).scores == pytest.approx(expected.tolist())
    assert "sampling" not in matcher.fingerprint()
    assert list(matcher.ask([])) == []


def test_scores_of_samples_are_means_and_come_part_by_part(pictures):
    scorer = Noisy()
    matcher = PictureMatcher(scorer, num_samples=4, seed=3)
    requests = [PictureMatch(pictures[number % 4], (f"text {number}", "the other")) for number in range(40)]
    answers = matcher.ask(requests)
    first, raw = next(answers)
    # Sixteen requests at once, so that a kill takes no more.
    assert len({text for _, text, _ in scorer.computed}) <= 17
    assert first < 16
    rest = dict(answers)
    assert sorted([first, *rest]) == list(range(40))
    assert len(scorer.computed) == len(set(scorer.computed)) + 2 * 4 * 4  # "the other" of four pictures, three parts
    path = pictures[first % 4].path
    mean = np.mean([np.float32(draw(path, f"text {first}", sample)) for sample in range(4)])
    assert matcher.read(requests[first], raw).scores[0] == pytest.approx(-mean)
    assert matcher.fingerprint()["sampling"] == {"num_samples": 4, "seed": 3, "timesteps": "uniform"}
    assert PictureMatcher(scorer, num_samples=5).fingerprint() != matcher.fingerprint()


def test_what_cannot_be_asked_or_read(pictures):
    matcher = PictureMatcher(Brightness())
    with raises("kind-not-answered", "requests[0]", "similarity", "picture_match"):
        next(matcher.ask([Similarity("a", ("b", "c"))]))
    with raises("empty-list", "requests[0]"):
        next(matcher.ask([PictureMatch(pictures[0], ())]))
    with raises("no-such-file", "nowhere.png"):
        next(matcher.ask([PictureMatch(Picture("nowhere.png", "0" * 64), TEXTS)]))
    request = PictureMatch(pictures[0], TEXTS)
    for raw in ({}, {"scores": [1.0]}, {"scores": [1.0, None]}, {"scores": [1.0, float("nan")]}, {"error": {}}):
        with pytest.raises(ValueError, match=r"."):
            matcher.read(request, raw)


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        tiny_language_models.compile_quickly(patch)
        yield


@pytest.fixture(scope="module", params=["instructblip", pytest.param("llava", marks=pytest.mark.slow)])
def reader(request, tmp_path_factory):
    folder = write_vision_language(tmp_path_factory.mktemp(request.param), request.param)
    mesh = parallel.make_mesh(jax.devices()[:1])
    made = PictureReader(vision_language.load_vision_language(folder, mesh=mesh), batch_size=2)
    made.folder = folder
    return made


def test_a_model_that_writes_answers_all_three_kinds(reader, pictures):
    question = "Option 1: a red cube. Option 2: a blue ball. Answer:"
    options = ("red cube", "ball", "blue")
    requests = [PictureOptions(picture, question, options) for picture in pictures[:3]]
    requests[1:1] = [PictureText(pictures[0], max_tokens=4), PictureMatch(pictures[1], TEXTS)]
    requests.append(PictureText(pictures[1], question, max_tokens=4))
    read = {index: reader.read(requests[index], raw) for index, raw in reader.ask(requests)}
    assert sorted(read) == list(range(6))
    assert read[1].text == reader._captioner.write([pictures[0].path], max_tokens=4)[0]
    assert read[5].text == reader._captioner.write([pictures[1].path], question, max_tokens=4)[0]
    scorer = VQAScore(reader._captioner._loaded)
    np.testing.assert_allclose(read[2].scores, scorer.score([pictures[1].path], TEXTS)[0], rtol=1e-5)
    # VQAScore says how likely each answer's tokens are in the mean, the one that ends it included.
    # Options are about images as the model's files prepare them.
    scorer = VQAScore(reader._captioner._loaded, preprocessing="processor")
    tokenizer, is_t5 = reader._captioner._loaded.tokenizer, reader._captioner.config.start is not None
    if is_t5:
        for place, number in ((0, 0), (3, 1), (4, 2)):
            asked = [question_texts.join(question, option) for option in options]
            likely = scorer.score([pictures[number].path], asked)[0]
            tokens = [len(tokenizer(option)["input_ids"]) for option in options]
            np.testing.assert_allclose(read[place].scores, np.log(likely) * tokens, rtol=1e-4)
    assert reader.fingerprint()["responder"] == "picture_reader"


def test_options_of_a_decoder_are_as_likely_as_in_torch(reader, pictures):
    if reader._captioner.config.start is not None:
        pytest.skip("VQAScore has told")
    options = ("red cube", "The banana is ripe", "1")
    request = PictureOptions(pictures[2], "a cube", options)
    ((_, raw),) = reader.ask([request])
    network = transformers.LlavaForConditionalGeneration.from_pretrained(reader.folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(reader.folder)
    _, answers = reader._captioner._option_tokens("a cube", options)
    for option, answer, score in zip(options, answers, raw["scores"], strict=True):
        text = f"USER: <image>\na cube ASSISTANT: {option}"
        inputs = processor(images=Image.open(pictures[2].path), text=[text], return_tensors="pt")
        assert inputs["input_ids"][0, -len(answer) :].tolist() == answer
        with torch.no_grad():
            likely = network(**inputs).logits[0].log_softmax(dim=-1)
        places = range(len(likely) - len(answer), len(likely))
        expected = sum(float(likely[place - 1, token]) for place, token in zip(places, answer, strict=True))
        assert score == pytest.approx(expected, rel=1e-4)


def test_names_tell_what_a_model_does(tmp_path, tiny_t5, tiny_pipeline):
    folders = {
        "clip": tiny_models.write_clip(tmp_path / "clip"),
        "blip": tiny_models.write_blip(tmp_path / "blip"),
        "pipeline": tiny_pipeline,
    }
    match, writes = frozenset({"picture_match"}), frozenset({"picture_match", "picture_text", "picture_options"})
    for folder in folders.values():
        assert loading.answered_kinds(str(folder), about_pictures=True) == match
    assert loading.answered_kinds(str(folders["clip"])) == {"similarity"}
    assert loading.answered_kinds(str(tiny_t5), about_pictures=True) == {"generation", "options"}
    assert loading.answered_kinds("openai:gpt-4o", about_pictures=True) is None
    for name, model in registry.MODELS.items():
        assert loading.answered_kinds(name, about_pictures=True) == (writes if model.scorer == "vqa_score" else match)
    for name in {*registry.LANGUAGE_MODELS} - {*registry.MODELS}:
        assert not loading._sees(registry.resolve(name))
    with raises("wrong-kind-of-model", "'clevr-tiny'"):
        loading.check_responder_name("clevr-tiny")
    loading.check_responder_name("clevr-tiny", about_pictures=True)
    with raises("option-of-others", "int8", repr(str(folders["clip"]))):
        loading.load_responder(str(folders["clip"]), about_pictures=True, int8=True)
    clip = loading.load_responder(str(folders["clip"]), about_pictures=True, batch_size=4)
    assert clip.kinds == match
    assert clip.fingerprint()["scorer"] == "contrastive"
