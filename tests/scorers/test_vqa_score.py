"""VQAScore: the published formula against torch, what is computed how often, what is refused."""

import dataclasses
import functools
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
from tests.parity.harness import QUICK_COMPILATION, relative_error
from tests.tiny_language_models import make_tokenizer, write_language_model
from tests.tiny_vision_language import QUERIES, SIZE, VOCABULARY, write_vision_language
from winobench import parallel
from winobench.base import memory, registry
from winobench.checkpoints import vision_language
from winobench.data import question_texts
from winobench.scorers import loading, vqa_score
from winobench.scorers.vqa_score import VQAScore

IMAGES = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8) for seed in range(3)]
TEXTS = ["a red cube", "the blue ball left of a red cube, " * 3, ""]
# So that the second text loses its beginning.
LONGEST = 48
TOLERANCE = 1e-5
FAMILIES = ("instructblip", "blip-2", "vicuna", "opt", "llava")
BEFORE = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and"
    " polite answers to the user's questions. USER: "
)
# What only some of them do has a quick test in tests/parity/test_vision_language.py.
OTHERS = [pytest.param(family, marks=pytest.mark.slow) for family in FAMILIES[1:4]]


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """The step over pairs is compiled with few optimizations: that takes most of the time otherwise."""
    step = vqa_score._score_pairs.__wrapped__
    with pytest.MonkeyPatch.context() as patch:
        compiled = jax.jit(step, static_argnames="how", compiler_options=QUICK_COMPILATION)
        patch.setattr(vqa_score, "_score_pairs", compiled)
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return functools.cache(lambda family: write_vision_language(folder / family, family))


@pytest.fixture(scope="module")
def load(folders):
    mesh = parallel.make_mesh(jax.devices()[:1])
    return functools.cache(lambda family: vision_language.load_vision_language(folders(family), mesh=mesh))


@pytest.fixture(scope="module")
def folder(folders):
    return folders("instructblip")


@pytest.fixture(scope="module")
def loaded(load):
    return load("instructblip")


@pytest.fixture(scope="module")
def scorer(loaded):
    return VQAScore(loaded, batch_size=2)


@pytest.fixture(scope="module")
def llava(load):
    return VQAScore(load("llava"), batch_size=4)


def middle_square(image, side):
    """As the published evaluation of InstructBLIP, by torchvision's rules: the shorter side is resized, then a crop."""
    width, height = image.size
    short, long = sorted(image.size)
    longer = int(side * long / short)
    image = image.resize((side, longer) if width < height else (longer, side), Image.Resampling.BICUBIC)
    left, top = (round((have - side) / 2) for have in image.size)
    return image.crop((left, top, left + side, top + side))


def torch_log_likelihoods(folder, family, answer):
    """With the library's model and tokenizers; questions and images are those of the published evaluation."""
    cls = transformers.InstructBlipForConditionalGeneration
    if family in ("blip-2", "opt"):
        cls = transformers.Blip2ForConditionalGeneration
    network = cls.from_pretrained(folder).eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    limits = {"truncation": True, "max_length": LONGEST, "return_tensors": "pt"}
    follows = family in ("vicuna", "opt")
    # An OPT was trained on answers that begin with a blank and end with a line.
    text, end = (f" {answer}", "\n") if family == "opt" else (answer, processor.tokenizer.eos_token * follows)
    labels = processor.tokenizer(text, return_tensors="pt", add_special_tokens=not follows)["input_ids"]
    if follows:
        end = processor.tokenizer(end, return_tensors="pt", add_special_tokens=False)["input_ids"]
        labels = torch.cat([labels, end], dim=1)
    found = np.zeros((len(IMAGES), len(TEXTS), labels.shape[1]))
    for row, image in enumerate(IMAGES):
        picture = Image.fromarray(image)
        if family in ("instructblip", "vicuna"):
            picture = middle_square(picture, SIZE)
        pixels = processor.image_processor(picture, return_tensors="pt")["pixel_values"]
        for column, text in enumerate(TEXTS):
            asked = "Answer:" if family == "opt" else "Please answer yes or no."
            question = f'Question: Does this figure show "{text}"? {asked}'
            processor.tokenizer.truncation_side = "left"
            ids = processor.tokenizer(question, **limits)["input_ids"]
            slots = torch.full((1, QUERIES), network.config.image_token_index)
            inputs = {"pixel_values": pixels, "input_ids": torch.cat([slots, ids], dim=1)}
            if follows:
                inputs["input_ids"] = torch.cat([inputs["input_ids"], labels[:, :-1]], dim=1)
            else:
                inputs["labels"] = labels
            if family not in ("blip-2", "opt"):
                processor.qformer_tokenizer.truncation_side = "left"
                inputs["qformer_input_ids"] = processor.qformer_tokenizer(question, **limits)["input_ids"]
            logits = network(**inputs).logits[0, -labels.shape[1] :]
            found[row, column] = -torch.nn.CrossEntropyLoss(reduction="none")(logits, labels[0])
    return found


def llava_log_likelihoods(folder, answer):
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
            found[row, column] = -torch.nn.CrossEntropyLoss(reduction="none")(logits, torch.tensor(labels))
    return found


def test_published_preprocessing(loaded, scorer, monkeypatch):
    random = np.random.default_rng(3)
    squashing = VQAScore(loaded, preprocessing="processor", batch_size=2)
    for shape in ((48, 97, 3), (91, 40, 3), (200, 34, 3), (3, 5, 3), (1, 1, 3), (SIZE, SIZE, 3), (33, 47)):
        image = Image.fromarray(random.integers(0, 256, shape, np.uint8)).convert("RGB")
        np.testing.assert_array_equal(scorer.processor(image), middle_square(image, SIZE))
        squashed = image.resize((SIZE, SIZE), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(squashing.processor(image), squashed)
    assert (scorer.fingerprint()["on_crop"], squashing.fingerprint().get("on_crop")) == (True, None)
    monkeypatch.setattr(memory, "host_bytes", lambda: 1 << 20)
    with raises("out-of-memory", "1 x 2,000", f"{SIZE} x {2_000 * SIZE:,}"):
        scorer.processor(np.zeros((1, 2_000, 3), np.uint8))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "template"),
    # LLaVA's stand in the conversation that the published evaluation puts any question in.
    [("instructblip", "{}"), pytest.param("llava", f"{BEFORE}<image>\n{{}} ASSISTANT:", marks=pytest.mark.slow)],
)
def test_questions_with_answers_of_their_own(load, scorer, llava, family, template):
    question, loaded, scorer = "Is it red?", load(family), scorer if family == "instructblip" else llava
    texts = [question_texts.join(question, "yes"), TEXTS[0], question_texts.join(question, "no")]
    yes, no = (VQAScore(loaded, question=template, answer=answer, batch_size=2) for answer in ("yes", "no"))
    expected = [one.score(IMAGES, [text])[:, 0] for one, text in ((yes, question), (scorer, TEXTS[0]), (no, question))]
    np.testing.assert_allclose(scorer.score(IMAGES, texts), np.stack(expected, axis=1), rtol=1e-6)
    assert not np.allclose(expected[0], expected[2])
    (numbers, scores), *more = scorer.iter_scores(IMAGES, texts, [[1, 2]])
    assert (more, list(numbers)) == ([], [0])
    np.testing.assert_allclose(scores, expected[2][1:2], rtol=1e-6)


def test_how_an_opt_is_asked(load):
    loaded = load("opt")
    scorer = VQAScore(loaded)
    of_answer = scorer._of_answer("no")

    def tokens(text):
        return tuple(loaded.tokenizer(text, add_special_tokens=False)["input_ids"])

    assert scorer.question == 'Question: Does this figure show "{}"? Answer:'
    assert of_answer.question == "Question: {} Answer:"
    assert scorer._compiled_for.answers == (tokens(" yes") + tokens("\n"),)
    assert of_answer._compiled_for.answers == (tokens(" no") + tokens("\n"),)
    row = scorer._tokenize(["a cube"])[0][0]
    asked = loaded.tokenizer.decode(row[: row[-1]])
    assert asked == '</s>Question: Does this figure show "a cube"? Answer:'
    with raises("unknown-answer", "answer", "''"):  # although the blank before it is a token
        VQAScore(loaded, answer="")
    bare = dataclasses.replace(loaded, tokenizer=make_tokenizer(kind="bare"))
    assert bare.tokens("{}", ["", "a"]) == ((), [[loaded.config.text_config.bos_token_id], [*tokens("a")]])


@pytest.mark.parametrize("family", [FAMILIES[0], *OTHERS, pytest.param("llava", marks=pytest.mark.slow)])
def test_published_formula(folders, family):
    loaded = vision_language.load_vision_language(folders(family))
    longest = None if family == "llava" else LONGEST
    torchs = llava_log_likelihoods if family == "llava" else functools.partial(torch_log_likelihoods, family=family)
    with torch.no_grad():
        likelihoods, opposite = (
            torchs(folders(family), answer=getattr(loaded.form, name)) for name in ("answer", "opposite")
        )
    assert likelihoods.shape[-1] > 2  # "yes" is several tokens here, and one ends it
    probability = np.exp(likelihoods.mean(axis=-1))
    log_odds = likelihoods.sum(axis=-1) - opposite.sum(axis=-1)
    for kind, wanted in (("probability", probability), ("log_odds", log_odds)):
        scorer = VQAScore(loaded, score=kind, max_text_tokens=longest, batch_size=1)
        assert scorer.match_threshold == (0.5 if kind == "probability" else 0)
        scores = scorer.score(IMAGES, TEXTS)
        assert scores.dtype == np.float32
        assert relative_error(scores, wanted) < TOLERANCE
        # Otherwise any order would do.
        assert np.ptp(wanted, axis=0).min() > 1e-3 * np.abs(wanted).max()
        assert np.ptp(wanted, axis=1).min() > 1e-3 * np.abs(wanted).max()


def test_images_are_encoded_once_and_nothing_is_compiled_again(loaded, scorer, monkeypatch, compilations):
    scorer.score(IMAGES, TEXTS)
    encoded = []
    original = scorer._image_encoder.write
    monkeypatch.setattr(
        scorer._image_encoder, "write", lambda table, rows, items: encoded.extend(items) or original(table, rows, items)
    )
    with compilations() as count:
        scorer.score(IMAGES[1:], [TEXTS[1], "the ball"])
        VQAScore(loaded, batch_size=2).score(IMAGES, [*TEXTS[1:], "a red ball"])
    assert count.total == 0
    assert len(encoded) == len(IMAGES) - 1


@pytest.mark.slow
@pytest.mark.parametrize(("family", "tolerance"), [("instructblip", 0.15), ("llava", 0.3)])
def test_bfloat16_int8_and_shared_parameters(folders, scorer, llava, family, tolerance):
    folder, scorer = folders(family), scorer if family == "instructblip" else llava
    whole = scorer.score(IMAGES, TEXTS)
    for options in ({"dtype": "bfloat16"}, {"int8": True}):
        other = VQAScore.from_pretrained(folder, mesh=scorer.mesh, **options)
        scores = other.score(IMAGES, TEXTS)
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, whole, rtol=tolerance)
        assert not np.array_equal(scores, whole)
        assert other.fingerprint() != scorer.fingerprint()
    shared = loading.load_scorer(str(folder), model_parallel=2)
    assert shared.mesh.shape["model"] == 2
    np.testing.assert_allclose(shared.score(IMAGES, TEXTS), whole, rtol=1e-4)
    few = VQAScore(scorer._loaded, batch_size=4, table_rows=2)
    np.testing.assert_allclose(few.score(IMAGES, TEXTS), whole, rtol=1e-5)


def test_fingerprint(folder, loaded, scorer, tmp_path):
    fingerprint = scorer.fingerprint()
    assert json.loads(json.dumps(fingerprint)) == fingerprint
    # Recorded runs are found by it.
    expected = {"scorer": "vqa_score", "scoring_version": 1, "model": loaded.identity(), "dtype": "float32"}
    expected |= {"question": 'Question: Does this figure show "{}"? Please answer yes or no.', "answer": "yes"}
    expected |= {"score": "probability", "opposite": None, "max_text_tokens": 64, "on_crop": True}
    assert fingerprint == expected
    assert VQAScore(loaded, batch_size=3, table_rows=7).fingerprint() == fingerprint
    options = [{"score": "log_odds"}, {"score": "log_odds", "opposite": "neither"}, {"question": "Is it {}?"}]
    options += [{"answer": "Yes"}, {"max_text_tokens": 20}]
    copy = shutil.copytree(folder, tmp_path / "copy")
    words = json.loads((copy / "qformer_tokenizer" / "tokenizer.json").read_text())
    words["model"]["vocab"]["red"], words["model"]["vocab"]["blue"] = (
        words["model"]["vocab"][word] for word in ("blue", "red")
    )
    (copy / "qformer_tokenizer" / "tokenizer.json").write_text(json.dumps(words))
    all_of_them = [fingerprint, VQAScore.from_pretrained(copy).fingerprint()]
    all_of_them += [VQAScore(loaded, **one).fingerprint() for one in options]
    assert len({json.dumps(one, sort_keys=True) for one in all_of_them}) == 2 + len(options)


def test_long_questions_lose_their_beginning(loaded, caplog):
    scorer = VQAScore(loaded, max_text_tokens=LONGEST, batch_size=2)
    with caplog.at_level(logging.WARNING):
        ids, of_qformer = scorer._tokenize(["a cube", "ball of " * 40])[1]
    assert "1 of 2 questions are longer than 48 tokens" in caplog.text
    tokenizer = loaded.tokenizer
    assert ids[-1] == of_qformer[-1] == LONGEST
    assert tokenizer.decode(ids[:-1]).endswith("Please answer yes or no.</s>")
    assert [VOCABULARY[of_qformer[place]] for place in (0, LONGEST - 1)] == ["[CLS]", "[SEP]"]


def test_long_questions_to_llava_lose_their_beginning_behind_the_image(load, caplog):
    with caplog.at_level(logging.WARNING):
        ((ids,),) = VQAScore(load("llava"), max_text_tokens=24)._tokenize(["ball of " * 40])
    assert "1 of 1 questions are longer than 24 tokens" in caplog.text
    assert ids[-1] == 24
    assert load("llava").tokenizer.decode(ids[:-1]).endswith("ASSISTANT:")


def test_how_a_llava_is_asked(llava):
    assert llava.fingerprint()["answer"] == "Yes"
    assert VQAScore(llava._loaded, preprocessing="processor").fingerprint() != llava.fingerprint()
    assert llava._of_answer("no").question == f"{BEFORE}<image>\n{{}} ASSISTANT:"


def test_what_questions_share_of_an_image(llava):
    tokenizer, slot = llava._loaded.tokenizer, llava.config.image_token_index
    before = tokenizer(BEFORE)["input_ids"]
    whole = tokenizer(llava.question.replace("{}", TEXTS[0]))["input_ids"]
    assert whole.index(slot) == len(before)
    ids = llava._tokenize(TEXTS)[0][0]
    np.testing.assert_array_equal(ids[: ids[-1]], whole[len(before) + 1 :])
    keys, values = llava._image_encoder.empty_table(2, llava.processor.blank)
    length = len(before) + llava.config.image_states
    language = llava.config.text_config
    heads, width = language.num_key_value_heads, language.head_dim
    layers = language.num_hidden_layers
    assert llava._compiled_for.shapes == ((heads, width, length),) * layers + ((heads, length, width),) * layers
    # In the table each head's are in one line.
    assert {each.shape for each in (*keys, *values)} == {(2, heads, width * length)}


def test_names_and_folders_bring_the_scorer(folder):
    for name in ("instructblip-flan-t5-xl", "blip2-flan-t5-xl", "blip2-opt-2.7b", "blip2-opt-6.7b"):
        assert registry.MODELS[name].scorer == "vqa_score"
    assert type(loading.load_scorer(str(folder), batch_size=3)) is VQAScore


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        (FAMILIES[0], {"preprocessing": "crop"}, ("bad-value", "preprocessing", "'crop'", "processor")),
        (FAMILIES[0], {"score": "logits"}, ("bad-value", "score", "'logits'", "log_odds")),
        (FAMILIES[0], {"question": "{} or {}?"}, ("bad-template", "question")),
        (FAMILIES[0], {"answer": ""}, ("unknown-answer", "answer", "''")),
        (FAMILIES[0], {"score": "log_odds", "opposite": "yes"}, ("unknown-answer", "opposite", "'yes'")),
        (FAMILIES[0], {"max_text_tokens": 65}, ("out-of-range", "max_text_tokens", "65", "64")),
        (FAMILIES[0], {"dtype": "float16"}, ("unsupported-dtype", "float16", "bfloat16")),
        ("llava", {"question": "Is it {}?"}, ("bad-template", "question", "'Is it {}?'", "<image>")),
        ("llava", {"question": "USER: <image>{}"}, ("bad-template", "question", "<image>")),
        ("llava", {"question": "USER: <image> <image> {}?"}, ("bad-template", "question", "<image>")),
        ("llava", {"question": "USER: <image> ASSISTANT:"}, ("bad-template", "question", "{}")),
        ("llava", {"max_text_tokens": 513}, ("out-of-range", "max_text_tokens", "513", "512")),
    ],
)
def test_unknown_options(folders, family, options, message):
    with raises(*message):
        VQAScore.from_pretrained(folders(family), **options)


def test_an_answer_without_tokens_of_its_own():
    tokenizer = transformers.BertTokenizerFast(vocab={word: number for number, word in enumerate(VOCABULARY)})
    with raises("unknown-answer", "answer", "'yes'"):
        vqa_score._answer_tokens("answer", "yes", tokenizer, False)


def test_a_text_with_the_images_token(scorer, llava):
    for one in (scorer, llava):
        with raises("image-slot-in-text", "'a <image> cube'"):
            one.score(IMAGES[:1], ["a cube", "a <image> cube"])


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_text_only_model(tmp_path):
    folder = write_language_model(tmp_path / "t5", "t5")
    for load in (VQAScore.from_pretrained, lambda name: loading.load_scorer(str(name))):
        with raises("wrong-kind-of-model", "'t5'", "config.json"):
            load(folder)


def test_parts_of_other_models(folder, tmp_path):
    processor = json.loads((folder / "processor_config.json").read_text())
    images = processor["image_processor"]
    faults = [
        ({"image_processor": images | {"size": {"height": 24, "width": 24}}}, ("mismatched-parts", "24", "32")),
        ({"image_processor": images | {"image_processor_type": "CLIP"}}, ("wrong-kind-of-processor", "CLIP")),
        ({"num_query_tokens": 5}, ("mismatched-parts", "num_query_tokens=5", "4")),
    ]
    copy = shutil.copytree(folder, tmp_path / "copy")
    for values, message in faults:
        change(copy / "processor_config.json", **(processor | values))
        with raises(*message):
            VQAScore.from_pretrained(copy)
    change(copy / "processor_config.json", **processor)
    change(copy / "config.json", image_token_index=7)
    with raises("mismatched-parts", "<image>", "image_token_index=7"):
        VQAScore.from_pretrained(copy)
    change(copy / "config.json", text_config={"model_type": "opt"})
    with raises("unsupported-option", "config.json", "'opt'", "'t5'", "'llama'"):
        VQAScore.from_pretrained(copy)


def test_a_tokenizer_without_the_token_of_llavas_images(folders, tmp_path):
    copy = shutil.copytree(folders("llava"), tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    change(copy / "config.json", image_token_index=7)
    with raises("mismatched-parts", "<image>", "image_token_index=7"):
        VQAScore.from_pretrained(copy)
    change(copy / "config.json", **config)
    words = (copy / "tokenizer.json").read_text()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copy / name).write_text((copy / name).read_text().replace("<image>", "<picture>"))
    assert words != (copy / "tokenizer.json").read_text()
    with raises("mismatched-parts", "tokenizer", "no token <image>"):
        VQAScore.from_pretrained(copy)
