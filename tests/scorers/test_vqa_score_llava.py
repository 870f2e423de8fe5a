"""VQAScore of LLaVA: the published prompt and formula against torch, and what its place for the image brings along."""

import json
import logging
import shutil

import jax
import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests.expectations import raises
from tests.parity.torch_copy import QUICK_COMPILATION, relative_error
from tests.tiny_vision_language import SIZE, write_vision_language
from winobench import parallel
from winobench.checkpoints import vision_language
from winobench.data import question_texts
from winobench.scorers import loading, vqa_score
from winobench.scorers.vqa_score import VQAScore

IMAGES = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8) for seed in range(3)]
TEXTS = ["a red cube", "the blue ball left of a red cube, " * 2, ""]
TOLERANCE = 1e-5
BEFORE = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and"
    " polite answers to the user's questions. USER: "
)


@pytest.fixture(scope="module", autouse=True)
def _quick():
    step = vqa_score._score_pairs.__wrapped__
    with pytest.MonkeyPatch.context() as patch:
        compiled = jax.jit(step, static_argnames="how", compiler_options=QUICK_COMPILATION)
        patch.setattr(vqa_score, "_score_pairs", compiled)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp("llava"), "llava")


@pytest.fixture(scope="module")
def loaded(folder):
    return vision_language.load_vision_language(folder, mesh=parallel.make_mesh(jax.devices()[:1]))


@pytest.fixture(scope="module")
def scorer(loaded):
    return VQAScore(loaded, batch_size=4)


@torch.no_grad()
def torch_log_likelihoods(folder, answer):
    """As the published evaluation does: images on squares, the answer and the token that ends it behind the prompt."""
    network = transformers.LlavaForConditionalGeneration.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    tokenizer = processor.tokenizer
    images = transformers.LlavaImageProcessorPil(
        size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE}, do_pad=True
    )
    labels = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    found = np.zeros((len(IMAGES), len(TEXTS), len(labels)))
    for row, image in enumerate(IMAGES):
        pixels = images(Image.fromarray(image), return_tensors="pt")["pixel_values"]
        for column, text in enumerate(TEXTS):
            prompt = f'{BEFORE}<image>\nDoes this figure show "{text}"? Please answer yes or no. ASSISTANT:'
            ids = processor(images=Image.fromarray(image), text=[prompt], return_tensors="pt")["input_ids"]
            ids = torch.cat([ids, torch.tensor([labels])], dim=1)
            logits = network(pixel_values=pixels, input_ids=ids).logits[0, -len(labels) - 1 : -1]
            loss = torch.nn.CrossEntropyLoss(reduction="none")
            found[row, column] = -loss(logits, torch.tensor(labels))
    return found


def test_published_formula(folder, loaded, scorer):
    """exp(-mean of the answer's cross-entropies), in batches of pairs of several images, and the log-odds."""
    likelihoods, opposite = (torch_log_likelihoods(folder, answer) for answer in ("Yes", "No"))
    assert likelihoods.shape[-1] > 2  # "Yes" is several tokens here, and one ends it
    probability = np.exp(likelihoods.mean(axis=-1))
    log_odds = likelihoods.sum(axis=-1) - opposite.sum(axis=-1)
    for judge, wanted in ((scorer, probability), (VQAScore(loaded, score="log_odds", batch_size=1), log_odds)):
        scores = judge.score(IMAGES, TEXTS)
        assert relative_error(scores, wanted) < TOLERANCE
        # Otherwise any order would do.
        assert np.ptp(wanted, axis=0).min() > 1e-3 * np.abs(wanted).max()
        assert np.ptp(wanted, axis=1).min() > 1e-3 * np.abs(wanted).max()


def test_what_questions_share_of_an_image(scorer):
    """Keys and values of all tokens up to the question, which has none of them."""
    tokenizer, slot = scorer._loaded.tokenizer, scorer.config.image_token_index
    before = tokenizer(BEFORE)["input_ids"]
    whole = tokenizer(scorer.question.replace("{}", TEXTS[0]))["input_ids"]
    assert whole.index(slot) == len(before)
    ids = scorer._tokenize(TEXTS)[0][0]
    np.testing.assert_array_equal(ids[: ids[-1]], whole[len(before) + 1 :])
    keys, values = scorer._image_encoder.empty_table(2, scorer.processor.blank)
    length = len(before) + scorer.config.image_states
    language = scorer.config.text_config
    heads, width = language.num_key_value_heads, language.head_dim
    layers = language.num_hidden_layers
    assert scorer._compiled_for.shapes == ((heads, width, length),) * layers + ((heads, length, width),) * layers
    # In the table each head's are in one line.
    assert {each.shape for each in (*keys, *values)} == {(2, heads, width * length)}


def test_questions_with_answers_of_their_own(loaded, scorer):
    """They stand in the conversation that the published evaluation puts any question in."""
    question = "Is it red?"
    asked = VQAScore(loaded, question=f"{BEFORE}<image>\n{{}} ASSISTANT:", answer="no", batch_size=4)
    expected = asked.score(IMAGES, [question])
    found = scorer.score(IMAGES, [question_texts.join(question, "no"), TEXTS[0]])
    np.testing.assert_allclose(found[:, :1], expected, rtol=1e-6)
    np.testing.assert_allclose(found[:, 1:], scorer.score(IMAGES, TEXTS[:1]), rtol=1e-6)


def test_long_questions_lose_their_beginning(loaded, caplog):
    scorer = VQAScore(loaded, max_text_tokens=24)
    with caplog.at_level(logging.WARNING):
        ((ids,),) = scorer._tokenize(["ball of " * 40])
    assert "1 of 1 questions are longer than 24 tokens" in caplog.text
    assert ids[-1] == 24
    assert loaded.tokenizer.decode(ids[:-1]).endswith("ASSISTANT:")


def test_fingerprint(loaded, scorer):
    options = (
        {"score": "log_odds"},
        {"question": "USER: <image> {}? ASSISTANT:"},
        {"answer": "yes"},
        {"preprocessing": "processor"},
    )
    prints = [scorer.fingerprint(), *(VQAScore(loaded, **one).fingerprint() for one in options)]
    assert len({json.dumps(one, sort_keys=True) for one in prints}) == len(prints)
    assert prints[0]["answer"] == "Yes"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"question": "Is it {}?"}, ("bad-template", "question", "'Is it {}?'", "<image>")),
        ({"question": "Is it {}? <image>"}, ("bad-template", "question", "<image>")),
        ({"question": "USER: <image>{}"}, ("bad-template", "question", "<image>")),
        ({"question": "USER: <image> <image> {}?"}, ("bad-template", "question", "<image>")),
        ({"question": "USER: <image> ASSISTANT:"}, ("bad-template", "question", "{}")),
        ({"max_text_tokens": 513}, ("out-of-range", "max_text_tokens", "513", "512")),
    ],
)
def test_unknown_options(folder, options, message):
    with raises(*message):
        VQAScore.from_pretrained(folder, **options)


def test_a_text_with_the_images_token(scorer):
    with raises("image-slot-in-text", "'a <image> cube'"):
        scorer.score(IMAGES[:1], ["a cube", "a <image> cube"])


def test_parts_of_other_models(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"image_token_index": 7}))
    with raises("mismatched-parts", "<image>", "image_token_index=7"):
        VQAScore.from_pretrained(copy)
    (copy / "config.json").write_text(json.dumps(config))
    words = (copy / "tokenizer.json").read_text()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copy / name).write_text((copy / name).read_text().replace("<image>", "<picture>"))
    assert words != (copy / "tokenizer.json").read_text()
    with raises("mismatched-parts", "tokenizer", "no token <image>"):
        VQAScore.from_pretrained(copy)


def test_kinds_of_checkpoints():
    """What can be loaded is what is found."""
    assert loading.SCORERS["vqa_score"].model_types == tuple(vision_language.NETWORKS)


@pytest.mark.slow
def test_bfloat16_int8_and_shared_parameters(folder, scorer):
    whole = scorer.score(IMAGES, TEXTS)
    for options in ({"dtype": "bfloat16"}, {"int8": True}):
        scores = VQAScore.from_pretrained(folder, **options).score(IMAGES, TEXTS)
        np.testing.assert_allclose(scores, whole, rtol=0.3)
        assert not np.array_equal(scores, whole)
    shared = loading.load_scorer(str(folder), model_parallel=2)
    assert shared.mesh.shape["model"] == 2
    np.testing.assert_allclose(shared.score(IMAGES, TEXTS), whole, rtol=1e-4)
    few = VQAScore(scorer._loaded, batch_size=4, table_rows=2)
    np.testing.assert_allclose(few.score(IMAGES, TEXTS), whole, rtol=1e-5)
