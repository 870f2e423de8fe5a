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

from tests.changed_files import edit
from tests.expectations import names, raises
from tests.models.test_networks import filled
from tests.parity.harness import call
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


@pytest.mark.parametrize("head", ["itm", pytest.param("itc", marks=pytest.mark.slow)])
def test_scores(parts, expected, one_device, head):
    head_scorer = ItmHead(*parts, head=head, mesh=one_device)
    assert head_scorer.match_threshold == (0 if head == "itm" else None)
    scores = head_scorer.score(IMAGES, TEXTS)
    assert scores.dtype == np.float32
    # Only the order of sums may differ.
    np.testing.assert_allclose(scores, expected[head], rtol=1e-5, atol=1e-6)
    assert np.ptp(expected[head], axis=0).min() > 1e-3
    assert np.ptp(expected[head], axis=1).min() > 1e-3


def test_what_is_given_twice_is_scored_once(scorer, expected, tmp_path, monkeypatch):
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


@pytest.mark.parametrize(("head", "more"), [("itm", {"batch_size": 3, "table_rows": 2}), ("itc", {"batch_size": 64})])
def test_pairs_in_any_order(parts, expected, one_device, head, more):
    pairs = np.random.default_rng(1).permutation(np.argwhere(expected[head] < np.inf))[:-3]
    scorer = ItmHead(*parts, head=head, mesh=one_device, **more)
    rows, scores = zip(*scorer.iter_scores(IMAGES, TEXTS, pairs), strict=True)
    np.testing.assert_array_equal(np.concatenate(rows), np.arange(len(pairs)))
    np.testing.assert_allclose(np.concatenate(scores), expected[head][tuple(pairs.T)], rtol=1e-5, atol=1e-6)
    assert list(scorer.iter_scores(IMAGES, TEXTS, [])) == []


def test_number_of_devices_changes_nothing(parts, one_device):
    several = parallel.make_mesh(jax.devices()[:3])
    assert parallel.data_parallelism(several) > 1
    first, second = (ItmHead(*parts, mesh=mesh).score(IMAGES, TEXTS) for mesh in (one_device, several))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


def test_other_numbers_of_pairs_compile_nothing(parts, one_device, compilations):
    scorer = ItmHead(*parts, mesh=one_device, batch_size=2)
    scorer.score(IMAGES, TEXTS)
    with compilations() as count:
        scorer.score(IMAGES[:3], [*TEXTS[1:], "a red ball"])
        ItmHead(*parts, mesh=one_device, batch_size=2).score(IMAGES[1:], TEXTS[1:])
    assert count.total == 0


def test_log_odds_stay_apart_where_probabilities_do_not(parts, one_device):
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
        ({"batch_size": 0}, ("out-of-range", "batch_size", "0")),
        ({"table_rows": 1.5}, ("out-of-range", "table_rows", "1.5")),
        ({"dtype": "int8"}, ("unsupported-dtype", "'int8'", "float32")),
    ],
)
def test_unknown_options(folder, options, message):
    with raises(*message):
        ItmHead.from_pretrained(folder, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES, "a ball"), ("wrong-type", "texts")),
        (([], TEXTS), ("empty-list", "images")),
        ((["nowhere.png"], TEXTS), ("no-such-file", "nowhere.png")),
        (([np.zeros((4, 4), np.uint8)], TEXTS), ("wrong-shape", "uint8", "[height, width, 3]", "[4, 4]")),
        ((IMAGES, TEXTS, [[0, 0, 0]]), ("wrong-shape", "pairs", "[1, 3]")),
        ((IMAGES, TEXTS, [[0.0, 1.0]]), ("wrong-shape", "float64")),
        ((IMAGES, TEXTS, [[0, 4]]), ("out-of-range", "pairs", "4")),
        ((IMAGES, TEXTS, [[-1, 0]]), ("out-of-range", "pairs", "-1")),
    ],
)
def test_bad_input(scorer, arguments, message):
    with raises(*message):
        (scorer.score if len(arguments) == 2 else scorer.iter_scores)(*arguments)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", '{"model_type": "blip", "depth": 3}', ("unknown-option", "BlipConfig", "depth=3")),
        ("vocab.txt", None, ("no-such-file", "vocab.txt", "BERT")),
        ("tokenizer.json", "{", ("unreadable-tokenizer", "BERT")),
        ("preprocessor_config.json", None, ("no-such-file", "preprocessor_config.json")),
        ("preprocessor_config.json", '{"do_rescale": false}', ("unsupported-option", "do_rescale")),
        ("preprocessor_config.json", '{"size": 24}', ("mismatched-parts", "24", "16")),
        ("preprocessor_config.json", '{"image_processor_type": "CLIP"}', ("wrong-kind-of-processor", "CLIP")),
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


def test_config_and_weights_of_two_models(copy):
    edit(copy / "config.json", lambda config: config["vision_config"].update(intermediate_size=24))
    with raises("mismatched-parts", "vision_model.encoder.layers.0.mlp.fc1.bias", "[16]"):
        ItmHead.from_pretrained(copy)


def test_a_text_encoder_without_enc(copy):
    edit(copy / "config.json", lambda config: config["text_config"].update(bos_token_id=len(BLIP_VOCABULARY) + 1))
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
