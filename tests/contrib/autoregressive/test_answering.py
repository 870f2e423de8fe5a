"""A Janus answers about images as transformers' own code does."""

import hashlib

import jax
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests.contrib.autoregressive.tiny import pictures
from winobench import parallel
from winobench.base.errors import InputError
from winobench.contrib.autoregressive.answering import ImageAnswers, QuestionImage
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.responders.loading import load_responder
from winobench.runs.requests import ImageMatch, ImageOptions, ImageStarts, ImageText, InputImage

QUESTIONS = ("Is this a dog?", "", "Which colour does the ball on the left have, red or blue?")
OPTIONS = (("Yes", "No, it is not"), ("red", "green"), ("blue.", "I do not know"))
SIZES = ((64, 64), (90, 40), (33, 120))
# Of a log-probability in nats: float32 sums of up to 16 tokens.
TOLERANCE = 5e-5


@pytest.fixture(scope="module")
def folder(write_generator, tmp_path_factory):
    """The tiny Janus with a head of its own, which writes other tokens than its last one."""
    path = tmp_path_factory.mktemp("untied")
    torch.manual_seed(0)
    tied = write_generator("janus")
    model = transformers.JanusForConditionalGeneration.from_pretrained(tied, tie_word_embeddings=False)
    torch.nn.init.normal_(model.lm_head.weight, std=0.3)
    model.save_pretrained(path)
    transformers.JanusProcessor.from_pretrained(tied).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    base = tmp_path_factory.mktemp("images")
    for number, (image, size) in enumerate(zip(pictures(), SIZES, strict=True)):
        image.resize(size).save(base / f"{number}.png")
    return sorted(base.iterdir())


@pytest.fixture(scope="module")
def responder(folder, one_device):
    return ImageAnswers.from_pretrained(folder, mesh=one_device)


@pytest.fixture(scope="module")
def published(folder):
    return InTorch(folder)


class InTorch:
    """Answers by transformers, one by one, with the published system prompt."""

    def __init__(self, folder, dtype="float32"):
        self.processor = transformers.JanusProcessor.from_pretrained(folder, use_default_system_prompt=True)
        model = transformers.JanusForConditionalGeneration.from_pretrained(folder, dtype=getattr(torch, dtype))
        self.model = model.eval().requires_grad_(False)

    def inputs(self, path, question, answer=""):
        content = [{"type": "image"}, {"type": "text", "text": question}]
        text = self.processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        return self.processor(images=Image.open(path), text=text + answer, return_tensors="pt")

    def log_probabilities(self, path, question, answer):
        """Float64, of each token of an answer behind a blank."""
        inputs, before = self.inputs(path, question, f" {answer}"), self.inputs(path, question)["input_ids"].shape[1]
        logits = self.model(**inputs.to(self.model.dtype)).logits[0, before - 1 : -1].float()
        chosen = logits.log_softmax(-1).gather(-1, inputs["input_ids"][0, before:, None])
        return chosen[:, 0].double().numpy()

    def scores(self, paths, questions, options):
        return np.array(
            [
                [self.log_probabilities(path, question, answer).sum() for answer in answers]
                for path, question, answers in zip(paths, questions, options, strict=True)
            ]
        )

    def write(self, path, question, max_tokens):
        inputs = self.inputs(path, question)
        ids = self.model.generate(**inputs, generation_mode="text", max_new_tokens=max_tokens, do_sample=False)
        return self.processor.tokenizer.decode(ids[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip()


def scores_of(responder, paths, questions=QUESTIONS, options=OPTIONS):
    return np.array([scores for _, scores in responder.iter_option_scores(paths, questions, options)])


def or_caption(responder):
    return [question or responder._loaded.form.caption for question in QUESTIONS]


@pytest.mark.parametrize("size", [*SIZES, (300, 7), (7, 300), (384, 383)])
def test_images_equal_the_published_processor(published, size):
    image = pictures(1)[0].resize(size)
    of_transformers = published.processor.image_processor
    processor = QuestionImage.of(of_transformers)
    wanted = of_transformers(image, return_tensors="pt")["pixel_values"][0].movedim(0, -1).numpy()
    np.testing.assert_array_equal(processor.normalize(processor(image)), wanted)


def test_prompts_equal_the_published_processor(responder, published, paths):
    ids = published.inputs(paths[0], QUESTIONS[0])["input_ids"][0].tolist()
    slot = responder.config.image_token_index
    before, (behind,) = responder._loaded.tokens(responder.template, [QUESTIONS[0]])
    assert [*before, *[slot] * responder.config.image_states, *behind] == ids


def test_options_equal_torch(responder, published, paths):
    wanted = published.scores(paths, or_caption(responder), OPTIONS)
    scores = scores_of(responder, paths)
    np.testing.assert_allclose(scores, wanted, atol=TOLERANCE, rtol=1e-6)
    others = scores_of(responder, paths[::-1])
    assert np.abs(others - scores)[[0, 2]].min() > 0.01  # nats: images matter


@pytest.mark.slow
def test_options_of_a_tied_head_equal_torch(write_generator, one_device, paths):
    tied = write_generator("janus")
    responder = ImageAnswers.from_pretrained(tied, mesh=one_device)
    wanted = InTorch(tied).scores(paths, or_caption(responder), OPTIONS)
    np.testing.assert_allclose(scores_of(responder, paths), wanted, atol=TOLERANCE, rtol=1e-6)


@pytest.mark.slow
def test_bfloat16_differs_as_much_as_torch_does(folder, responder, published, one_device, paths):
    exact = scores_of(responder, paths)
    rounded = scores_of(ImageAnswers.from_pretrained(folder, "bfloat16", mesh=one_device), paths)
    in_torch = InTorch(folder, "bfloat16").scores(paths, or_caption(responder), OPTIONS)
    ours, theirs = (np.sqrt(np.mean(np.square(scores - exact))) for scores in (rounded, in_torch))
    assert 0 < ours < 2 * theirs


@pytest.mark.quick(1)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_texts_equal_generate(folder, one_device, published, paths, batch_size):
    responder = ImageAnswers.from_pretrained(folder, mesh=one_device, batch_size=batch_size)
    wanted = [published.write(*pair, 24) for pair in zip(paths, or_caption(responder), strict=True)]
    assert responder.write(paths, QUESTIONS, max_tokens=24) == wanted
    assert len(set(wanted)) == 3


def test_matches_are_probabilities_of_yes(responder, published, paths):
    image = InputImage(str(paths[1]), hashlib.sha256(paths[1].read_bytes()).hexdigest())
    texts = ("a dog", "a red ball on a blue cube")
    question = 'Does this figure show "{}"? Please answer yes or no.'
    wanted = [np.exp(published.log_probabilities(paths[1], question.format(text), "Yes").mean()) for text in texts]
    ((_, raw),) = responder.ask([ImageMatch(image, texts)])
    np.testing.assert_allclose(raw["scores"], wanted, rtol=1e-4)


def test_requests_are_answered_together(responder, paths):
    images = [InputImage(str(path), hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths]
    requests = [
        ImageOptions(images[0], QUESTIONS[0], OPTIONS[0]),
        ImageText(images[1], max_tokens=4),
        ImageStarts(images[2], QUESTIONS[2], (" blue", "blue")),
        ImageMatch(images[0], ("a dog",)),
        ImageOptions(images[1], QUESTIONS[1], OPTIONS[1]),
    ]
    answers = dict(responder.ask(requests))
    responses = [responder.read(request, answers[number]) for number, request in enumerate(requests)]
    scores = scores_of(responder, paths)
    np.testing.assert_allclose([responses[0].scores, responses[4].scores], scores[:2], atol=TOLERANCE)
    assert responses[1].text == responder.write(paths[1:2], max_tokens=4)[0]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("devices", "model_parallel"), [(4, 2), (2, 1), (2, 2)])
def test_devices_change_nothing(folder, responder, paths, devices, model_parallel):
    mesh = parallel.make_mesh(jax.devices()[:devices], model_parallel=model_parallel)
    shared = ImageAnswers.from_pretrained(folder, mesh=mesh)
    np.testing.assert_allclose(scores_of(shared, paths), scores_of(responder, paths), atol=TOLERANCE)


def test_one_program_has_all_questions(responder, paths, compilations):
    def answers(images, questions):
        return scores_of(responder, images, questions), responder.write(images, questions, max_tokens=4)

    answers(paths, QUESTIONS)
    with compilations() as count:
        answers(paths[::-1], ("Is it?", QUESTIONS[2].replace("red", "green"), "What?"))
    assert count.total == 0


def test_likelihood_and_answers_have_one_digest(folder, responder, one_device):
    likelihood = ImageLikelihood.from_pretrained(folder, mesh=one_device)
    assert responder.fingerprint()["model"] == likelihood.fingerprint()["model"]
    assert responder.fingerprint()["match"]["model"] == likelihood.fingerprint()["model"]


def test_fingerprint_has_the_images_and_the_tokenizer(folder, write_generator, one_device, responder):
    before = responder.fingerprint()
    assert before["image_processor"]["shortest"] == 14
    tied = ImageAnswers.from_pretrained(write_generator("janus"), mesh=one_device).fingerprint()
    assert tied["model"] != before["model"]
    assert tied["tokenizer"] == before["tokenizer"]


def test_a_kind_of_model_loads_it(folder):
    made = load_responder(str(folder), about_images=True, batch_size=2, seed=3)
    assert isinstance(made, ImageAnswers)
    assert made.fingerprint()["seed"] == 3


@pytest.mark.parametrize("family", ["emu3", "glm_image"])
def test_generators_that_read_no_images_are_refused(write_generator, family):
    with pytest.raises(InputError, match="generates images and answers nothing") as error:
        load_responder(str(write_generator(family)), about_images=True)
    assert error.value.code == "kind-not-answered"
