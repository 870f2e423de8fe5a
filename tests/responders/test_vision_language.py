"""Texts, likelihoods of options and matches: those of torch, the same for any batch, and what is refused."""

import hashlib

import jax
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests import tiny_language_models
from tests.expectations import raises
from tests.tiny_vision_language import write_vision_language
from winobench import parallel
from winobench.checkpoints.vision_language import load_vision_language
from winobench.data import question_texts
from winobench.responders import loading
from winobench.responders.vision_language import VisionLanguageModel
from winobench.runs.requests import SEVERAL, ImageMatch, ImageOptions, ImagesText, ImageText, InputImage
from winobench.scorers.vqa_score import VQAScore

IMAGES = [np.random.default_rng(seed).integers(0, 256, (20 + seed, 24, 3), dtype=np.uint8) for seed in range(3)]
# A Vicuna reads as OPT and LLaVA do. The quick tests of VQAScore ask an InstructBLIP, whose T5 is BLIP-2's.
_SLOW = [pytest.param(family, marks=pytest.mark.slow) for family in ("instructblip", "vicuna", "blip-2")]
FAMILIES = [*_SLOW, "opt", "llava"]
TEXTS = ("a red cube", "a blue ball left of the cube")
PROMPTS = ["", "Question: Is the ball left of the red cube? Answer:", "a cube"]


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        tiny_language_models.compile_quickly(patch)
        yield


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp(family), family)


@pytest.fixture(scope="module")
def model(folder):
    mesh = parallel.make_mesh(jax.devices()[:1])
    return VisionLanguageModel(load_vision_language(folder, mesh=mesh), batch_size=2)


def torch_texts(folder, family, max_tokens):
    cls = transformers.InstructBlipForConditionalGeneration
    if family in ("blip-2", "opt"):
        cls = transformers.Blip2ForConditionalGeneration
    if family == "llava":
        cls = transformers.LlavaForConditionalGeneration
    network = cls.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    texts = []
    for image, prompt in zip(IMAGES, PROMPTS, strict=True):
        if family == "llava":
            prompt = f"USER: <image>\n{prompt or 'Provide a brief description of the given image.'} ASSISTANT:"
        inputs = processor(images=Image.fromarray(image), text=[prompt], return_tensors="pt")
        with torch.no_grad():
            ids = network.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=max_tokens)
        # What a decoder has read, it returns, too.
        written = ids[0, inputs["input_ids"].shape[1] :] if family in ("vicuna", "opt", "llava") else ids[0]
        texts.append(processor.tokenizer.decode(written, skip_special_tokens=True).strip())
    return texts


@pytest.mark.parametrize("family", [*_SLOW, pytest.param("opt", marks=pytest.mark.slow), "llava"], indirect=True)
def test_greedy_texts_are_those_of_torch(model, folder, family):
    texts = model.write(IMAGES, PROMPTS, max_tokens=12)
    assert texts == torch_texts(folder, family, 12)
    assert len(set(texts)) == len(texts)
    assert model.write(IMAGES[1:2], PROMPTS[1], max_tokens=12) == texts[1:2]


@pytest.mark.slow
def test_sampled_texts(model, family, folder):
    if family != "instructblip":
        pytest.skip("sampling does not depend on the family")
    drawn = model.write(IMAGES, PROMPTS, max_tokens=12, temperature=1.0)
    several = VisionLanguageModel.from_pretrained(folder, batch_size=1, mesh=parallel.make_mesh(jax.devices()[:2]))
    assert several.write(IMAGES[::-1], PROMPTS[::-1], max_tokens=12, temperature=1.0) == drawn[::-1]
    assert model.write(IMAGES, PROMPTS, max_tokens=12, temperature=1.0, sample=1) != drawn
    other = VisionLanguageModel(model._loaded, batch_size=2, seed=1)
    assert other.write(IMAGES, PROMPTS, max_tokens=12, temperature=1.0) != drawn
    assert other.fingerprint() != model.fingerprint() == several.fingerprint()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), ("empty-list", "images")),
        ((IMAGES, PROMPTS[:2]), ("wrong-length", "2", "3")),
        ((IMAGES, "a <image>"), ("image-slot-in-text", "'a <image>'")),
    ],
)
def test_bad_images_and_prompts(model, arguments, message):
    with raises(*message):
        model.write(*arguments)


def test_bad_options(model, family, folder, tmp_path):
    with raises("out-of-range", "max_tokens", "0"):
        model.write(IMAGES, max_tokens=0)
    with raises("bad-value", "temperature", "-1"):
        model.write(IMAGES, temperature=-1)
    with raises("unknown-option", "'beams'", "VisionLanguageModel"):
        VisionLanguageModel.from_pretrained(folder, beams=5)
    if family == "instructblip":
        with raises("text-too-long", "64"):
            model.write(IMAGES, "ball " * 80)
    if family == "opt":
        with raises("text-too-long", "126"):
            model.write(IMAGES, "ball " * 80, max_tokens=31)
    with raises("bad-template", "template", "'Describe it.'", "{}"):
        VisionLanguageModel.from_pretrained(folder, template="Describe it.")
    if family == "llava":
        with raises("bad-template", "template", "'{} ASSISTANT:'", "<image>"):
            VisionLanguageModel.from_pretrained(folder, template="{} ASSISTANT:")
    with raises("wrong-kind-of-model", "'t5'"):
        VisionLanguageModel.from_pretrained(tiny_language_models.write_language_model(tmp_path, "t5"))


def test_one_image_at_a_time(model, folder):
    """Known by a small file, before anything is loaded."""
    assert not (model.kinds | loading.answered_kinds(str(folder))) & SEVERAL
    with raises("kind-not-answered", "2 images", "one at a time", "Qwen2.5-VL"):
        model.write([tuple(IMAGES[:2])])
    with raises("wrong-length", "about 1 and about 2 images"):
        model.write([IMAGES[0], tuple(IMAGES[:2])])
    with raises("wrong-length", "about 0"):
        model.write([()])
    image = InputImage("a.png", "0" * 64)
    with raises("kind-not-answered", "requests[0]", "pictures_text"):
        list(model.ask([ImagesText(image, "q", more_images=(image,))]))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("pictures"), []
    for number, image in enumerate(IMAGES):
        Image.fromarray(image).save(path := folder / f"{number}.png")
        found.append(InputImage(str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
    return found


@pytest.mark.slow
def test_all_three_kinds_of_requests(model, family, images):
    if family not in ("instructblip", "llava"):
        pytest.skip("one family with an encoder and one without do")
    question, options = "Option 1: a red cube. Option 2: a blue ball. Answer:", ("red cube", "ball")
    requests = [ImageOptions(image, question, options) for image in images]
    requests[1:1] = [ImageText(images[0], max_tokens=4), ImageMatch(images[1], TEXTS)]
    requests.append(ImageText(images[1], question, max_tokens=4))
    read = {index: model.read(requests[index], raw) for index, raw in model.ask(requests)}
    assert sorted(read) == list(range(6))
    assert read[1].text == model.write([images[0].path], max_tokens=4)[0]
    assert read[5].text == model.write([images[1].path], question, max_tokens=4)[0]
    scorer = VQAScore(model._loaded)
    np.testing.assert_allclose(read[2].scores, scorer.score([images[1].path], TEXTS)[0], rtol=1e-5)
    assert model.fingerprint()["responder"] == "picture_reader"
    if family == "instructblip":
        # VQAScore is the mean of each answer's tokens, the one that ends it included.
        # Options are about images as the model's files prepare them.
        scorer = VQAScore(model._loaded, preprocessing="processor")
        tokens = [len(model._loaded.tokenizer(option)["input_ids"]) for option in options]
        asked = [question_texts.join(question, option) for option in options]
        for place, image in zip((0, 3, 4), images, strict=True):
            likely = scorer.score([image.path], asked)[0]
            np.testing.assert_allclose(read[place].scores, np.log(likely) * tokens, rtol=1e-4)


@pytest.mark.slow
def test_options_of_a_decoder_are_as_likely_as_in_torch(model, family, folder, images):
    if family != "llava":
        pytest.skip("one decoder does")
    options = ("red cube", "The banana is ripe", "1")
    ((_, raw),) = model.ask([ImageOptions(images[2], "a cube", options)])
    network = transformers.LlavaForConditionalGeneration.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    _, answers = model._option_tokens("a cube", options)
    for option, answer, score in zip(options, answers, raw["scores"], strict=True):
        text = f"USER: <image>\na cube ASSISTANT: {option}"
        inputs = processor(images=Image.open(images[2].path), text=[text], return_tensors="pt")
        assert inputs["input_ids"][0, -len(answer) :].tolist() == answer
        with torch.no_grad():
            likely = network(**inputs).logits[0].log_softmax(dim=-1)
        places = range(len(likely) - len(answer), len(likely))
        expected = sum(float(likely[place - 1, token]) for place, token in zip(places, answer, strict=True))
        assert score == pytest.approx(expected, rel=1e-4)
