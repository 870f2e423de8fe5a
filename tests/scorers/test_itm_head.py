"""The matching head as a scorer: which pairs are scored, how often what is encoded, what is refused."""

import json
import logging
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from PIL import Image

from tests.expectations import names, raises
from tests.models.test_networks import filled
from tests.parity.torch_copy import call
from tests.scorers import tiny_models
from tests.scorers.tiny_models import BLIP, BLIP_VOCABULARY, SIZE
from winobench import checkpoints, parallel
from winobench.base.errors import InputError
from winobench.data.processors import ImageProcessor
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.scorers.itm_head import ItmHead

IMAGES = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8) for seed in range(5)]
TEXTS = ["a red cube", "a blue ball", "ball of cube of ball of a red cube of blue ball", ""]
# Words and the two tokens at the ends of each.
LENGTHS = [5, 5, 14, 2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.write_blip(tmp_path_factory.mktemp("blip"))


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.fixture(scope="module")
def one_device():
    return parallel.make_mesh(jax.devices()[:1])


@pytest.fixture(scope="module")
def parts(folder):
    scorer = ItmHead.from_pretrained(folder)
    return scorer.model, scorer.tokenizer, scorer.processor


@pytest.fixture(scope="module")
def scorer(parts, one_device):
    return ItmHead(*parts, mesh=one_device)


@pytest.fixture(scope="module")
def expected(parts):
    """Head -> scores pair by pair from the network's own functions, float [images, texts]."""
    model, _, processor = parts
    assert processor == ImageProcessor(resize=(SIZE, SIZE))
    pixels = np.stack([processor.normalize(processor(image)) for image in IMAGES])
    states = call(model, pixels, method="image_states")
    ids = np.zeros((len(TEXTS), max(LENGTHS)), np.int32)
    for row, text in zip(ids, TEXTS, strict=True):
        tokens = [BLIP_VOCABULARY.index(word) for word in ["[CLS]", *text.split(), "[SEP]"]]
        row[: len(tokens)] = tokens
    lengths = np.array(LENGTHS, np.int32)
    cosines = call(model, states, method="image_features") @ call(model, ids, lengths, method="text_features").T
    # [ENC] is the last of the ids.
    ids[:, 0] = len(BLIP_VOCABULARY) + 1
    image = call(model, states, method="image_keys_values")
    logits = np.zeros((len(IMAGES), len(TEXTS), 2))
    for number in range(len(IMAGES)):
        same = jax.tree.map(lambda array, number=number: jnp.repeat(array[number][None], len(TEXTS), 0), image)
        logits[number] = call(model, ids, lengths, same, method="match_logits")
    return {"itm": logits[..., 1] - logits[..., 0], "itc": np.asarray(cosines)}


@pytest.mark.quick(1)
@pytest.mark.parametrize("head", ["itm", "itc"])
def test_scores(parts, expected, one_device, head):
    scores = ItmHead(*parts, head=head, mesh=one_device).score(IMAGES, TEXTS)
    assert scores.dtype == np.float32
    # Only the order of sums may differ.
    np.testing.assert_allclose(scores, expected[head], rtol=1e-5, atol=1e-6)
    assert np.ptp(expected[head], axis=0).min() > 1e-3
    assert np.ptp(expected[head], axis=1).min() > 1e-3


def test_what_is_given_twice_is_scored_once(scorer, expected, tmp_path, monkeypatch):
    """Arrays, PIL images, paths and images that open themselves give the same."""

    class Lazy:
        content_hash = "one"
        opened = 0

        def open(self):
            Lazy.opened += 1
            return Image.fromarray(IMAGES[1])

    Image.fromarray(IMAGES[2]).save(tmp_path / "image.png")
    images = [IMAGES[0], IMAGES[0].copy(), Lazy(), Lazy(), tmp_path / "image.png", Image.fromarray(IMAGES[3])]
    asked = []
    original = scorer.iter_scores
    monkeypatch.setattr(scorer, "iter_scores", lambda *a: asked.append([len(part) for part in a]) or original(*a))
    scores = scorer.score(images, [TEXTS[1], TEXTS[0], TEXTS[1]])
    np.testing.assert_allclose(scores, expected["itm"][np.ix_([0, 0, 1, 1, 2, 3], [1, 0, 1])], rtol=1e-5, atol=1e-6)
    assert asked == [[4, 2, 8]]
    assert Lazy.opened == 1


@pytest.mark.parametrize("head", ["itm", "itc"])
@pytest.mark.parametrize("options", [{"batch_size": 3, "table_rows": 2}, {"batch_size": 64}])
def test_pairs_in_any_order(parts, expected, one_device, head, options):
    """Also with more images and texts than the tables have rows."""
    pairs = np.random.default_rng(1).permutation(np.argwhere(expected[head] < np.inf))[:-3]
    scorer = ItmHead(*parts, head=head, mesh=one_device, **options)
    rows, scores = zip(*scorer.iter_scores(IMAGES, TEXTS, pairs), strict=True)
    np.testing.assert_array_equal(np.concatenate(rows), np.arange(len(pairs)))
    np.testing.assert_allclose(np.concatenate(scores), expected[head][tuple(pairs.T)], rtol=1e-5, atol=1e-6)


def test_number_of_devices_changes_nothing(parts, one_device):
    several = parallel.make_mesh()
    assert parallel.data_parallelism(several) > 1
    first, second = (ItmHead(*parts, mesh=mesh).score(IMAGES, TEXTS) for mesh in (one_device, several))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_split_parameters(parts, expected):
    scorer = ItmHead(*parts, mesh=parallel.make_mesh(jax.devices()[:4], model_parallel=2))
    np.testing.assert_allclose(scorer.score(IMAGES, TEXTS), expected["itm"], rtol=1e-5, atol=1e-6)


def test_images_and_texts_are_encoded_once(parts, one_device, monkeypatch):
    scorer = ItmHead(*parts, mesh=one_device, batch_size=2)
    encoded = {"image": 0, "text": 0}
    for name, encoder in (("image", scorer._image_encoder), ("text", scorer._text_encoder)):

        def write(table, rows, items, name=name, original=encoder.write):
            encoded[name] += len(items)
            return original(table, rows, items)

        monkeypatch.setattr(encoder, "write", write)
    scorer.score(IMAGES, TEXTS)
    assert encoded == {"image": len(IMAGES), "text": len(TEXTS)}


def test_other_numbers_of_pairs_compile_nothing(parts, one_device, compilations):
    """An evaluation has one shape, whatever it asks."""
    scorer = ItmHead(*parts, mesh=one_device, batch_size=2)
    scorer.score(IMAGES, TEXTS)
    with compilations() as count:
        scorer.score(IMAGES[:3], [*TEXTS[1:], "a red ball"])
        ItmHead(*parts, mesh=one_device, batch_size=2).score(IMAGES[1:], TEXTS[1:])
    assert count.total == 0


def test_an_evaluation_without_pairs(scorer):
    assert list(scorer.iter_scores(IMAGES, TEXTS, [])) == []


def test_log_odds_stay_apart_where_probabilities_do_not(parts, one_device):
    """Odds of e^30 to 1 and of e^40 to 1 are both a probability of 1 in float32."""
    model, *others = parts
    graph, state = nnx.split(model)
    sure = nnx.merge(graph, jax.tree.map(jnp.copy, state))
    sure.itm_head.bias[...] = jnp.array([0.0, 40.0])
    scores = ItmHead(sure, *others, mesh=one_device).score(IMAGES, TEXTS)
    assert np.all(1 / (1 + np.exp(-scores, dtype=np.float32)) == 1)
    assert len(np.unique(scores)) == scores.size


def test_long_texts_are_cut_off(parts, expected, one_device, caplog):
    scorer = ItmHead(*parts, max_text_tokens=5, mesh=one_device)
    with caplog.at_level(logging.WARNING):
        scores = scorer.score(IMAGES, TEXTS)
    assert "1 of 4 texts are longer than 5 tokens" in caplog.text
    np.testing.assert_allclose(scores[:, [0, 1, 3]], expected["itm"][:, [0, 1, 3]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores[:, 2], scorer.score(IMAGES, ["ball of cube"])[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_bfloat16(folder, expected):
    scorer = ItmHead.from_pretrained(folder, "bfloat16")
    scores = scorer.score(IMAGES, TEXTS)
    assert scores.dtype == np.float32
    # Of scores of about 1, whose inputs are rounded to 8 bits in each layer.
    np.testing.assert_allclose(scores, expected["itm"], atol=0.1)
    assert np.any(scores != scores.astype(jnp.bfloat16).astype(np.float32))


def test_fingerprint(folder, parts, copy):
    scorer = ItmHead.from_pretrained(folder)
    fingerprint = scorer.fingerprint()
    assert json.loads(json.dumps(fingerprint)) == fingerprint
    assert fingerprint.keys() >= {"scorer", "scoring_version", "model", "dtype", "head"}
    scorer.score(IMAGES[:1], ["a ball"])
    assert scorer.fingerprint() == fingerprint
    assert ItmHead(*parts, batch_size=3, table_rows=7).fingerprint() == fingerprint
    others = [
        ItmHead(*parts, head="itc"),
        ItmHead(*parts, first_token="cls"),
        ItmHead(*parts, max_text_tokens=7),
        ItmHead.from_pretrained(folder, "bfloat16"),
    ]
    changed = [other.fingerprint() for other in others]
    (copy / "preprocessor_config.json").write_text(json.dumps({"size": SIZE, "resample": 2}))
    other_pixels = ItmHead.from_pretrained(copy).fingerprint()
    (copy / "vocab.txt").write_text("".join(f"{token}\n" for token in reversed(BLIP_VOCABULARY)))
    other_words = ItmHead.from_pretrained(copy).fingerprint()
    network = filled(BlipForImageTextRetrieval, BLIP)
    network.itm_head.bias[...] += 1
    checkpoints.save_model(network, copy)
    everything = [fingerprint, *changed, other_pixels, other_words, ItmHead.from_pretrained(copy).fingerprint()]
    assert len({json.dumps(one, sort_keys=True) for one in everything}) == len(everything)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "clip"}, ("bad-value", "head", "'clip'")),
        ({"heads": "itm"}, ("unknown-option", "'heads'", "ItmHead")),
        ({"first_token": "dec"}, ("bad-value", "first_token", "'dec'")),
        ({"head": "itc", "first_token": "enc"}, ("bad-value", "first_token", "'enc'")),
        ({"max_text_tokens": 21}, ("out-of-range", "max_text_tokens", "21", "3", "20")),
        ({"max_text_tokens": 2}, ("out-of-range", "max_text_tokens", "2")),
        ({"batch_size": 0}, ("out-of-range", "batch_size", "0")),
        ({"table_rows": 1.5}, ("out-of-range", "table_rows", "1.5")),
        ({"dtype": "int8"}, ("unsupported-dtype", "'int8'", "float32")),
        ({"variant": "fp16"}, ("no-weights", "model.fp16.safetensors")),
    ],
)
def test_unknown_options(folder, options, message):
    with raises(*message):
        ItmHead.from_pretrained(folder, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES, "a ball"), ("wrong-type", "texts")),
        ((IMAGES, []), ("empty-list", "texts")),
        ((IMAGES, ["a", 3]), ("wrong-type", "texts[1]")),
        (([], TEXTS), ("empty-list", "images")),
        ((["nowhere.png"], TEXTS), ("no-such-file", "nowhere.png")),
        (([np.zeros((4, 4), np.uint8)], TEXTS), ("wrong-shape", "uint8", "[height, width, 3]", "[4, 4]")),
    ],
)
def test_bad_images_and_texts(scorer, arguments, message):
    with raises(*message):
        scorer.score(*arguments)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 0, 0]], ("wrong-shape", "pairs", "[1, 3]")),
        ([[0.0, 1.0]], ("wrong-shape", "float64")),
        ([[0, 4]], ("out-of-range", "pairs", "4")),
        ([[5, 0]], ("out-of-range", "pairs", "5")),
        ([[-1, 0]], ("out-of-range", "pairs", "-1")),
    ],
)
def test_bad_pairs(scorer, pairs, message):
    with raises(*message):
        scorer.iter_scores(IMAGES, TEXTS, pairs)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, ("no-such-file", "config.json")),
        ("config.json", "{", ("not-json", "config.json")),
        (
            "config.json",
            '{"model_type": "blip", "depth": 3}',
            ("unknown-option", "config.json", "BlipConfig", "depth=3"),
        ),
        ("model.safetensors", None, ("no-weights", "model.safetensors")),
        ("model.safetensors", "cut off", ("incomplete-file", "model.safetensors")),
        ("vocab.txt", None, ("no-such-file", "vocab.txt", "BERT")),
        ("tokenizer.json", "{", ("unreadable-tokenizer", "BERT")),
        ("preprocessor_config.json", None, ("no-such-file", "preprocessor_config.json")),
        (
            "preprocessor_config.json",
            '{"do_rescale": false}',
            ("unsupported-option", "preprocessor_config.json", "do_rescale"),
        ),
        ("preprocessor_config.json", '{"size": 24}', ("mismatched-parts", "24", "16")),
        (
            "preprocessor_config.json",
            '{"image_processor_type": "CLIPImageProcessor"}',
            ("wrong-kind-of-processor", "CLIPImageProcessor"),
        ),
    ],
)
def test_missing_and_damaged_files(copy, file, content, message):
    if content is None:
        (copy / file).unlink()
    else:
        (copy / file).write_text(content)
    with raises(*message) as caught:
        ItmHead.from_pretrained(copy)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (
            "vision_config",
            {"intermediate_size": 24},
            ("mismatched-parts", "vision_model.encoder.layers.0.mlp.fc1.bias", "[16]"),
        ),
        ("text_config", {"num_hidden_layers": 2}, ("mismatched-parts", "text_encoder.encoder.layer.1")),
        ("text_config", {"vocab_size": len(BLIP_VOCABULARY)}, ("mismatched-parts", "text_encoder")),
    ],
)
def test_config_and_weights_of_two_models(copy, part, change, message):
    config = json.loads((copy / "config.json").read_text())
    config[part].update(change)
    (copy / "config.json").write_text(json.dumps(config))
    with raises(*message):
        ItmHead.from_pretrained(copy)


def test_tokenizer_of_another_model(copy):
    words = [*BLIP_VOCABULARY, "and", "other", "words"]
    (copy / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    with raises("mismatched-parts", "17", "16"):
        ItmHead.from_pretrained(copy)


def test_a_text_encoder_without_enc(copy):
    config = json.loads((copy / "config.json").read_text())
    config["text_config"]["bos_token_id"] = len(BLIP_VOCABULARY) + 1
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=names("ENC", "first_token", "'cls'")):
        ItmHead.from_pretrained(copy)
    assert ItmHead.from_pretrained(copy, first_token="cls").first_token == "cls"


@pytest.mark.slow
def test_no_torch_is_needed(folder, fake_devices):
    """In a process that cannot find torch, and with nothing of it loaded at the end."""
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name.split('.')[0] == 'torch' else find(name, *a)\n"
        "import numpy as np\n"
        "from winobench.scorers.itm_head import ItmHead\n"
        "scores = ItmHead.from_pretrained(sys.argv[1]).score([np.zeros((4, 4, 3), np.uint8)], ['a ball'])\n"
        "print(scores.shape, [name for name in ('torch', 'tensorflow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True, env=fake_devices(1)
    )
    assert done.stdout.strip() == "(1, 1) []"
