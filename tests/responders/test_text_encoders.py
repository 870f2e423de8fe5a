"""Encoders that answer requests: against torch, order, repetitions, compilations, fingerprints, bad input."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from tests.changed_files import edit
from tests.expectations import names, raises
from tests.scorers import tiny_models
from tests.tiny_encoders import COLORS, NOUNS, write_bert
from winobench import parallel
from winobench.base.errors import InputError
from winobench.checkpoints import encoder_layouts
from winobench.responders import text_encoders
from winobench.responders.text_encoders import ClipText, NliEncoder
from winobench.runs import asking, responses
from winobench.runs.requests import Entailment, Options, Responder, Similarity, Turn

REQUESTS = [
    Entailment(f"the {noun} is {color} . " * length, (f"a {color} {noun}", f"a {COLORS[0]} {noun}"))
    for length, noun, color in zip((1, 5, 1, 9, 2, 1), NOUNS, [*COLORS, *COLORS], strict=False)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def encoder(folder):
    return NliEncoder.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:2]), batch_size=2)


@pytest.fixture(scope="module")
def answers(encoder):
    return dict(encoder.ask(REQUESTS))


def scores(encoder, answers):
    return [encoder.read(request, answers[index]).scores for index, request in enumerate(REQUESTS)]


def test_probabilities_are_those_of_torch(folder, encoder, answers):
    assert isinstance(encoder, Responder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert network.config.id2label[1] == "Entailment"
    for request, found in zip(REQUESTS, scores(encoder, answers), strict=True):
        with torch.no_grad():
            batches = [tokenizer(request.premise, each, return_tensors="pt") for each in request.hypotheses]
            expected = [float(network(**batch).logits.softmax(dim=-1)[0, 1]) for batch in batches]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.std(scores(encoder, answers)) > 1e-3


def test_order_repetitions_and_neighbours_change_nothing(encoder, answers):
    order = [3, 0, 5, 3]
    again = dict(encoder.ask([REQUESTS[number] for number in order]))
    for place, number in enumerate(order):
        np.testing.assert_allclose(again[place]["logits"], answers[number]["logits"], atol=1e-6)
    assert list(encoder.ask([])) == []


def test_one_compilation_a_length(encoder, answers, compilations):
    with compilations() as count:
        list(encoder.ask(REQUESTS))
        list(encoder.ask([Entailment("the cup is red", ("a hat", "a car", "a cup"))]))
    assert count.total == 0


def test_long_pairs_are_truncated(encoder, caplog):
    (_, raw), *_ = encoder.ask([Entailment("the cup is red . " * 30, ("a red cup",))])
    assert encoder.read(Entailment("", ("",)), raw).scores
    assert "1 of 1 pairs are longer than 64 tokens and were truncated" in caplog.text


def test_fingerprints(folder, encoder, tmp_path):
    print_ = encoder.fingerprint()
    assert json.loads(json.dumps(print_)) == print_
    same = NliEncoder.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:1]))
    list(same.ask(REQUESTS[:1]))
    assert same.fingerprint() == print_
    other = shutil.copytree(folder, tmp_path / "other")
    edit(other / "config.json", layer_norm_eps=1e-3)
    assert NliEncoder.from_pretrained(other).fingerprint() != print_
    assert NliEncoder.from_pretrained(folder, "bfloat16").fingerprint() != print_


def test_nearly_certain_answers_differ(encoder):
    rows = [[0.0, 20.0, 0.0], [0.0, 21.0, 0.0]]
    one, two = encoder.read(Entailment("", ("", "")), {"logits": rows}).scores
    assert one < two < 1


@pytest.mark.parametrize(
    "raw",
    [
        {"error": {"kind": "memory", "message": "none left", "attempts": 1}},
        {"logits": [[0.0, 1.0, 2.0]]},
        {"logits": [[0.0, 1.0, float("nan")], [0.0, 1.0, 2.0]]},
        {"logits": [[0.0, 1.0, "2"], [0.0, 1.0, 2.0]]},
    ],
)
def test_malformed_answers(encoder, raw):
    with pytest.raises(ValueError, match=names("'memory'" if "error" in raw else "2 hypotheses")):
        encoder.read(REQUESTS[0], raw)


def test_what_is_not_finite_is_a_failed_call(folder, tmp_path):
    model, tokenizer = encoder_layouts.load_bert(folder)
    model.classifier.bias.set_value(jnp.full_like(model.classifier.bias[...], jnp.nan))
    encoder = NliEncoder(model, tokenizer, mesh=parallel.make_mesh(jax.devices()[:1]))
    key = responses.key(encoder.fingerprint(), REQUESTS[0])
    with asking.Session(tmp_path / "responses", progress=False) as session:
        answers = session.ask(encoder, {key: REQUESTS[0]})
        assert key not in session.store
    assert answers.failed[key].startswith("not_finite: the logits are not finite numbers: [[nan")
    assert not answers.read


def test_clip_vectors_that_are_not_finite_are_a_failed_call():
    class Broken:
        def encode_texts(self, texts):
            return np.asarray([[1.0, 0.0], *[[np.nan, 0.0]] * (len(texts) - 1)], np.float32)

    requests = [Similarity("a", ("b",)), Similarity("a", ("a",))]
    raws = dict(ClipText(Broken()).ask(requests))
    assert raws[0]["error"]["kind"] == "not_finite"
    assert raws[1] == {"cosines": [1.0]}


def test_many_pairs_are_tokenized_in_parts(encoder, monkeypatch, caplog):
    pairs = [(f"the {noun} is {color} . " * n, f"a {color}") for n in (1, 30) for noun in NOUNS for color in COLORS]
    whole = text_encoders.pack(encoder.tokenizer, pairs, 64)
    monkeypatch.setattr(text_encoders, "_PAIRS_AT_ONCE", 5)
    caplog.clear()
    for one, two in zip(text_encoders.pack(encoder.tokenizer, pairs, 64), whole, strict=True):
        np.testing.assert_array_equal(one, two)
    assert "24 of 48 pairs are longer than 64 tokens and were truncated" in caplog.text


def test_bad_input(encoder, folder, tmp_path):
    with raises("kind-not-answered", "requests[0]", "NLI"):
        list(encoder.ask([Options((Turn("user", "a"),), ("b", "c"))]))
    with raises("empty-list", "requests[0]"):
        list(encoder.ask([Entailment("a", ())]))
    unnamed = write_bert(tmp_path / "unnamed", labels=("LABEL_0", "LABEL_1"))
    with pytest.raises(InputError, match=names("LABEL_0", "LABEL_1")):
        NliEncoder.from_pretrained(unnamed)
    with raises("out-of-range", "batch_size", "0"):
        NliEncoder.from_pretrained(folder, batch_size=0)


def test_clip_text(tmp_path):
    folder = tiny_models.write_clip(tmp_path / "clip")
    encoder = ClipText.from_pretrained(folder, mesh=parallel.make_mesh(jax.devices()[:1]))
    assert isinstance(encoder, Responder)
    requests = [
        Similarity("a red cube", ("a red cube", "a blue ball")),
        Similarity("a ball", ("a blue ball", "a red cube", "a")),
    ]
    answers = dict(encoder.ask(requests))
    found = [encoder.read(request, answers[index]).scores for index, request in enumerate(requests)]
    assert found[0][0] == pytest.approx(1.0)
    texts = encoder.scorer.encode_texts(["a ball", "a blue ball", "a red cube", "a"])
    np.testing.assert_allclose(found[1], texts[1:] @ texts[0], atol=1e-6)
    assert len(set(found[1])) == 3
    print_ = encoder.fingerprint()
    assert (print_["responder"], len(print_["model"])) == ("clip_text", 64)
    with raises("kind-not-answered", "CLIP"):
        list(encoder.ask(REQUESTS))
    with pytest.raises(ValueError, match=names("2 texts", "{'cosines': [0.5]}")):
        encoder.read(requests[0], {"cosines": [0.5]})
