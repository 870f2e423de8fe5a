"""Texts about pictures: those of torch transformers, the same for any batch, and what is refused."""

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
from winobench.checkpoints import vision_language
from winobench.responders.captioner import Captioner

IMAGES = [np.random.default_rng(seed).integers(0, 256, (20 + seed, 24, 3), dtype=np.uint8) for seed in range(3)]
FAMILIES = ["instructblip", pytest.param("vicuna", marks=pytest.mark.slow), "blip-2", "opt", "llava"]
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
def captioner(folder):
    mesh = parallel.make_mesh(jax.devices()[:1])
    return Captioner(vision_language.load_vision_language(folder, mesh=mesh), batch_size=2)


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


def test_greedy_texts_are_those_of_torch(captioner, folder, family):
    texts = captioner.write(IMAGES, PROMPTS, max_tokens=12)
    assert texts == torch_texts(folder, family, 12)
    assert len(set(texts)) == len(texts)
    assert captioner.write(IMAGES[1:2], PROMPTS[1], max_tokens=12) == texts[1:2]


@pytest.mark.slow
def test_drawn_texts(captioner, family):
    """Of the seed, the picture, the prompt and the number of the draw alone, not of the batch or the devices."""
    if family != "instructblip":
        pytest.skip("what draws does not know the family")
    drawn = captioner.write(IMAGES, PROMPTS, max_tokens=12, temperature=1.0)
    several = Captioner(captioner._loaded, batch_size=1, mesh=parallel.make_mesh(jax.devices()[:2]))
    assert several.write(IMAGES[::-1], PROMPTS[::-1], max_tokens=12, temperature=1.0) == drawn[::-1]
    assert captioner.write(IMAGES, PROMPTS, max_tokens=12, temperature=1.0, sample=1) != drawn
    other = Captioner(captioner._loaded, batch_size=2, seed=1)
    assert other.write(IMAGES, PROMPTS, max_tokens=12, temperature=1.0) != drawn
    assert other.fingerprint() != captioner.fingerprint() == several.fingerprint()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), ("empty-list", "images")),
        ((IMAGES, PROMPTS[:2]), ("wrong-length", "2", "3")),
        ((IMAGES, ["a", "b", 3]), ("wrong-type", "3")),
        ((IMAGES, "a <image>"), ("image-slot-in-text", "'a <image>'")),
        ((["nowhere.png"],), ("no-such-file", "nowhere.png")),
    ],
)
def test_bad_images_and_prompts(captioner, arguments, message):
    with raises(*message):
        captioner.write(*arguments)


def test_bad_options(captioner, family, folder, tmp_path):
    with raises("out-of-range", "max_tokens", "0"):
        captioner.write(IMAGES, max_tokens=0)
    with raises("bad-value", "temperature", "-1"):
        captioner.write(IMAGES, temperature=-1)
    with raises("unknown-option", "'beams'", "Captioner"):
        Captioner.from_pretrained(folder, beams=5)
    if family == "instructblip":
        with raises("text-too-long", "64"):
            captioner.write(IMAGES, "ball " * 80)
    if family == "opt":
        with raises("text-too-long", "126"):
            captioner.write(IMAGES, "ball " * 80, max_tokens=31)
    with raises("bad-template", "template", "'Describe it.'", "{}"):
        Captioner.from_pretrained(folder, template="Describe it.")
    if family == "llava":
        with raises("bad-template", "template", "'{} ASSISTANT:'", "<image>"):
            Captioner.from_pretrained(folder, template="{} ASSISTANT:")
    with raises("wrong-kind-of-model", "'t5'", "without eyes"):
        Captioner.from_pretrained(tiny_language_models.write_language_model(tmp_path, "t5"))
