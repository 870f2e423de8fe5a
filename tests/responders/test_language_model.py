"""Local language models: the same answers as torch's, whatever the batch; draws, limits, devices, and bad input."""

import contextlib
import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import names, raises
from tests.tiny_language_models import compile_quickly, write_language_model
from winobench import parallel
from winobench.checkpoints import language_models
from winobench.responders import batches, decoding, language_model, shapes
from winobench.responders.language_model import LanguageModel
from winobench.runs.requests import Entailment, Generation, Options, Responder, Turn

pytestmark = pytest.mark.usefixtures("usual_optimizations_throughout")

SHOTS = (
    Turn("user", "Which option is right? Option 1: The banana is ripe. Option 2: The trophy is green."),
    Turn("assistant", "Option 1"),
)
OPTIONS = ("Option 1", "neither of the two options")
# Three by themselves, and five that begin with the same examples.
CONVERSATIONS = [
    (Turn("user", "What?"),),
    (Turn("system", "You are a helpful assistant."), Turn("user", "Is it yellow?")),
    (Turn("user", "The trophy does not fit into the brown suitcase. " * 2),),
    *((*SHOTS, Turn("user", f"Which option is right{' or green' * number}?")) for number in (4, 0, 1, 3, 2)),
]
OPTION_REQUESTS = [Options(turns, OPTIONS, prefix_turns=2 * (len(turns) > 2)) for turns in CONVERSATIONS]
SAMPLED = [Generation(turns, max_tokens=8, temperature=1.5) for turns in CONVERSATIONS[:3]]


@pytest.fixture(scope="module", autouse=True)
def _quick_compilation():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "_SMALLEST_WIDTH", 64)
        compile_quickly(patch)
        yield


def load(folder, **options):
    return LanguageModel.from_pretrained(
        folder, **{"mesh": parallel.make_mesh(jax.devices()[:2]), "batch_size": 2} | options
    )


@pytest.fixture(scope="module")
def model(tiny_language_model):
    return load(tiny_language_model)


@pytest.fixture(scope="module")
def scores(model):
    return [raw["scores"] for raw in in_order(model, OPTION_REQUESTS)]


def in_order(model, requests):
    answers = list(model.ask(requests))
    assert sorted(index for index, _ in answers) == list(range(len(requests)))
    return [raw for _, raw in sorted(answers, key=lambda item: item[0])]


@contextlib.contextmanager
def torch_model(folder):
    import torch
    import transformers

    torch.set_num_threads(1)
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    cls = transformers.T5ForConditionalGeneration if kind == "t5" else transformers.AutoModelForCausalLM
    with torch.inference_mode():
        yield torch, cls.from_pretrained(folder).eval()


def test_scores_are_those_of_torch(model, scores, tiny_language_model):
    assert isinstance(model, Responder)
    with torch_model(tiny_language_model) as (torch, network):
        for request, found in zip(OPTION_REQUESTS, scores, strict=True):
            tokens = model.prompts.encode_options(request.turns, request.options)
            for option, score in zip(tokens.options, found, strict=True):
                ids = torch.tensor([tokens.context + option])
                logits = network(ids).logits[0, -len(option) - 1 : -1].log_softmax(-1)
                assert score == pytest.approx(logits.gather(1, torch.tensor(option)[:, None]).sum().item(), abs=1e-4)
    assert np.std(scores, axis=0).min() > 0.1


def test_answers_about_options(model, scores):
    raw = in_order(model, OPTION_REQUESTS[:3])[0]
    assert json.loads(json.dumps(raw)) == raw
    counts = [len(model.prompts.encode_options(CONVERSATIONS[0], [option]).options[0]) for option in OPTIONS]
    response = model.read(OPTION_REQUESTS[0], raw)
    assert response.scores == pytest.approx(scores[0], abs=1e-5)
    assert response.num_tokens == tuple(counts)
    assert response.input_tokens == len(model.prompts.encode(CONVERSATIONS[0])) + sum(counts)
    assert response.output_tokens == 0


def test_scores_depend_on_the_request_alone(model, scores, monkeypatch):
    """Not on other requests, on their order, on what is shared, on the bucket, or on the batch's filling."""
    backwards = in_order(model, OPTION_REQUESTS[::-1])
    np.testing.assert_allclose([raw["scores"] for raw in backwards[::-1]], scores, atol=1e-5)
    # Alone: nothing shared, a batch that is filled up, and another bucket.
    monkeypatch.setattr(shapes, "width", lambda length: 160)
    alone = in_order(model, OPTION_REQUESTS[4:5])
    np.testing.assert_allclose(alone[0]["scores"], scores[4], atol=1e-5)


def test_a_prefix_is_read_once(model, monkeypatch):
    read = []

    def record(*arguments):
        read.append(arguments[1:])
        raise RuntimeError("enough")

    monkeypatch.setattr(decoding, "score_options", record)
    monkeypatch.setattr(decoding, "encode_prefix", lambda program, params, ids, length: ("the prefix", int(length)))
    monkeypatch.setattr(batches.Room, "rows", lambda *arguments: 8)
    with pytest.raises(RuntimeError, match="enough"):
        list(model.ask(OPTION_REQUESTS[3:]))
    ((_, prompts, _, _),) = read
    shared = len(model.prompts.encode_prefix(CONVERSATIONS[3], 2))
    assert prompts.prefix == ("the prefix", shared)
    longest = model.prompts.encode(CONVERSATIONS[3])
    assert prompts.ids.shape == (8, 64)
    assert max(prompts.lengths.tolist()) == len(longest) - shared


def test_one_compilation_a_bucket(model, scores, compilations):
    with compilations() as count:
        in_order(model, OPTION_REQUESTS[::-1])
        in_order(model, [Options((Turn("user", "x" * length),), OPTIONS[::-1]) for length in (3, 9, 40)])
        in_order(model, [Options((*SHOTS, Turn("user", "0" * length)), OPTIONS, 2) for length in (1, 30, 9, 5)])
    assert count.total == 0


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("fixture", "family"),
    [
        pytest.param("tiny_language_model", "llama", marks=pytest.mark.slow),
        ("tiny_chat_model", "qwen3"),
        ("tiny_t5", "t5"),
    ],
)
def test_texts_are_those_of_torch(fixture, family, request, tmp_path):
    folder = shutil.copytree(request.getfixturevalue(fixture), tmp_path / family)
    requests = [Generation(turns, max_tokens=10, prefix_turns=2) for turns in CONVERSATIONS[3:6]]
    requests.append(Generation(CONVERSATIONS[6], max_tokens=4, prefix_turns=2))
    with torch_model(folder) as (torch, network):
        loaded = load(folder)
        prompts = [loaded.prompts.encode(each.turns) for each in requests]

        def write(**options):
            texts = []
            for each, prompt in zip(requests, prompts, strict=True):
                out = network.generate(
                    torch.tensor([prompt]), max_new_tokens=each.max_tokens, do_sample=False, **options
                )
                texts.append(out[0, 1 if family == "t5" else len(prompt) :].tolist())
            return texts

        # One of the tokens that would be written ends a text.
        end = write()[0][4]
        settings = json.loads((folder / "generation_config.json").read_text())
        ends = [end, loaded.prompts._tokenizer.eos_token_id]
        (folder / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": ends}))
        expected = write(eos_token_id=ends)
    model = load(folder)
    answers = in_order(model, requests)
    for each, prompt, tokens, raw in zip(requests, prompts, expected, answers, strict=True):
        ended = tokens[-1] in ends
        assert raw == {
            "text": model.prompts.decode(tokens[:-1] if ended else tokens),
            "finish": "stop" if ended else "length",
            "input_tokens": len(prompt),
            "output_tokens": len(tokens),
        }
        assert model.read(each, raw).text == raw["text"]
    assert answers[0]["finish"] == "stop"
    assert answers[3]["output_tokens"] <= 4
    assert model.fingerprint() != loaded.fingerprint()


def test_t5_scores_are_those_of_torch(tiny_t5):
    model = load(tiny_t5)
    requests = OPTION_REQUESTS[:2]
    answers = in_order(model, requests)
    with torch_model(tiny_t5) as (torch, network):
        for request, raw in zip(requests, answers, strict=True):
            tokens = model.prompts.encode_options(request.turns, request.options)
            for option, score in zip(tokens.options, raw["scores"], strict=True):
                ids = torch.tensor([(0, *option[:-1])])
                logits = network(torch.tensor([tokens.context]), decoder_input_ids=ids).logits[0].log_softmax(-1)
                assert score == pytest.approx(logits.gather(1, torch.tensor(option)[:, None]).sum().item(), abs=1e-4)


def test_draws_depend_on_the_request_alone(model):
    texts = [raw["text"] for raw in in_order(model, SAMPLED)]
    assert len(set(texts)) == len(texts)
    again = [*SAMPLED[1:], Generation(CONVERSATIONS[0], max_tokens=8, temperature=1.5, sample=1)]
    found = [raw["text"] for raw in in_order(model, again[::-1])]
    assert found[::-1][:2] == texts[1:]
    assert found[0] not in texts
    # Other samples, temperatures and seeds are other draws; a longer text begins as a shorter one.
    key = language_model._draw_key
    request = SAMPLED[0]
    others = [key(1, request), key(0, again[2]), key(0, SAMPLED[1]), key(0, Generation(request.turns, temperature=1.4))]
    assert len({key(0, request), *others}) == 5
    assert key(0, request) == key(0, Generation(request.turns, max_tokens=99, temperature=1.5, prefix_turns=1))


@pytest.mark.slow
def test_draws_are_from_the_softmax():
    logits = jnp.asarray([2.0, 0.0, -1.0, 1.0])
    count = 20_000
    keys = jnp.stack([jnp.arange(count, dtype=jnp.uint32), jnp.zeros(count, jnp.uint32)], axis=1)

    def shares(temperature):
        draws = decoding.Draws(keys, jnp.full(count, temperature))
        tokens = decoding._perturbed(jnp.tile(logits, (count, 1)), draws, jnp.int32(3)).argmax(axis=1)
        return np.bincount(tokens, minlength=4) / count

    np.testing.assert_allclose(shares(2.0), jax.nn.softmax(logits / 2.0), atol=0.012)  # three standard errors
    np.testing.assert_array_equal(shares(0.0), [1, 0, 0, 0])


def test_devices_that_share_parameters(tiny_language_model, scores):
    model = load(tiny_language_model, mesh=parallel.make_mesh(jax.devices()[:4], model_parallel=2))
    found = [raw["scores"] for raw in in_order(model, OPTION_REQUESTS[:1])]
    np.testing.assert_allclose(found, scores[:1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "t5"])
def test_texts_of_devices_that_share_parameters(family, tmp_path):
    folder = write_language_model(tmp_path / family, family)
    alone, shared = (
        in_order(load(folder, mesh=mesh), [*SAMPLED, Generation(CONVERSATIONS[3], max_tokens=8)])
        for mesh in (parallel.make_mesh(jax.devices()[:1]), parallel.make_mesh(jax.devices()[:8], model_parallel=2))
    )
    assert alone == shared


def test_what_is_too_long(model, monkeypatch):
    monkeypatch.setattr(model, "_longest", 24)
    long = (Turn("user", "The suitcase is green. " * 9),)
    requests = [Generation(long), Options(long, OPTIONS), OPTION_REQUESTS[0]]
    answers = in_order(model, requests)
    for raw in answers[:2]:
        assert raw["error"]["kind"] == "too_long"
        assert "tokens are more than the 24 that this model can read" in raw["error"]["message"]
    assert "scores" in answers[2]
    with pytest.raises(ValueError, match=names("'too_long'", "68", "24")):
        model.read(requests[0], answers[0])
    # Where a prompt can be read, its answer ends with what the model can read.
    monkeypatch.setattr(model, "_longest", 6 + len(model.prompts.encode(CONVERSATIONS[0])))
    assert model._job(0, Generation(CONVERSATIONS[0])).limit == 6


def test_numbers_that_are_none_are_no_scores(model, monkeypatch):
    def fail(program, params, prompts, options, lengths):
        return jnp.full(lengths.shape, jnp.nan).at[1].set(-1.0)

    monkeypatch.setattr(decoding, "score_options", fail)
    answers = in_order(model, [OPTION_REQUESTS[0]] * 2)
    assert sorted("error" in raw for raw in answers) == [False, True]
    assert [raw["error"]["kind"] for raw in answers if "error" in raw] == ["not_finite"]


@pytest.mark.parametrize(
    ("request_", "raw", "message"),
    [
        (OPTION_REQUESTS[0], {"scores": [-1.0], "num_tokens": [2]}, ("2 options", "[-1.0]")),
        (OPTION_REQUESTS[0], {"scores": [-1.0, float("nan")], "num_tokens": [2, 2]}, ("2 options", "nan")),
        (SAMPLED[0], {"scores": [-1.0]}, ("generation", "[-1.0]")),
        (SAMPLED[0], {"text": None}, ("generation", "None")),
    ],
)
def test_malformed_answers(model, request_, raw, message):
    with pytest.raises(ValueError, match=names(*message)):
        model.read(request_, raw)


def test_bad_requests(model):
    with raises("kind-not-answered", "requests[1]"):
        next(model.ask([OPTION_REQUESTS[0], Entailment("a", ("b",))]))
    with raises("out-of-range", "max_tokens", "0"):
        next(model.ask([Generation(CONVERSATIONS[0], max_tokens=0)]))


def test_bad_models(tiny_language_model, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with raises("wrong-kind-of-model", "bert"):
        LanguageModel.from_pretrained(tmp_path)
    with raises("out-of-range", "batch_size", "0"):
        load(tiny_language_model, batch_size=0)
    with raises("bad-value", "seed", "-1"):
        load(tiny_language_model, seed=-1)


def test_sizes_of_batches(model):
    shape = shapes.Shape(prompt=512, options=2, answer=8, sampled=False)
    assert model._room.rows(shape, 1) == 2
    assert model._room.rows(shape, 100) == 4
    room = batches.Room(parallel.make_mesh(jax.devices()[:2]), parameter_bytes=1 << 10, bytes_a_token=1 << 10)
    # 2,048 tokens, then 512 MiB of keys and values, on each of two devices; never more than there is to do.
    assert room.rows(shape, 100) == 2 * 4
    assert room.rows(shape, 3) == 2 * 2
    assert dataclasses.replace(room, bytes_a_token=1 << 17).rows(shape, 100) == 2 * 2
    assert dataclasses.replace(room, bytes_a_token=1 << 30).rows(shape, 100) == 2
    # Batches are equally full, and each device has 1, 2, 3, 4, 6, 8, ... rows.
    room = dataclasses.replace(room, bytes_a_token=1)
    shape = shapes.Shape(prompt=64, options=0, answer=8, sampled=False)
    assert [room.rows(shape, count) for count in (1, 9, 48, 64, 65, 90, 130)] == [2, 12, 48, 64, 48, 48, 48]


def test_what_does_not_fill_a_batch_waits_for_a_wider_one():
    model = LanguageModel.__new__(LanguageModel)
    model._room = batches.Room(parallel.make_mesh(jax.devices()[:1]), 0, 0, batch_size=2)
    narrow = shapes.Shape(prompt=16, options=0, answer=8, sampled=False)
    wide, far = (dataclasses.replace(narrow, prompt=prompt) for prompt in (32, 128))
    other = dataclasses.replace(wide, sampled=True)
    found = model._filled({far: ["f"], other: ["o"], wide: ["v", "w"], narrow: list("abcde")})
    assert list(found) == [(narrow, list("abcd")), (wide, list("evw")), (other, ["o"]), (far, ["f"])]
    assert list(model._filled({narrow: ["a"], wide: ["v"]})) == [(wide, ["a", "v"])]


def test_widths(monkeypatch):
    monkeypatch.setattr(shapes, "_SMALLEST_WIDTH", 16)
    assert [shapes.width(length) for length in (1, 16, 17, 64, 65, 96, 97, 128, 129, 500)] == [
        16, 16, 32, 64, 96, 96, 128, 128, 192, 512,
    ]  # fmt: skip


def test_all_devices_by_default(tiny_language_model):
    model = LanguageModel.from_pretrained(tiny_language_model)
    assert model.mesh.size == jax.device_count()
    assert all(len(array.sharding.device_set) == jax.device_count() for array in model._params)
    assert model.fingerprint() == load(tiny_language_model).fingerprint()
    assert model.fingerprint() != load(tiny_language_model, seed=1).fingerprint()


@pytest.mark.quick(1)
@pytest.mark.parametrize("request_", [Generation(CONVERSATIONS[0], max_tokens=4), SAMPLED[0]], ids=["best", "drawn"])
def test_texts_of_logits_that_are_not_finite_are_failed_calls(tiny_language_model, request_):
    loaded = language_models.load_decoder(tiny_language_model, mesh=parallel.make_mesh(jax.devices()[:2]))
    graph, state = loaded.network
    broken = jax.tree.map(lambda values: values.at[(0,) * values.ndim].set(jnp.nan), state)
    model = LanguageModel(dataclasses.replace(loaded, network=(graph, broken)), batch_size=2)
    (raw,) = in_order(model, [request_])
    assert (raw["error"]["kind"], raw["error"]["attempts"]) == ("not_finite", 1)
    assert "the logits of token 1 of the answer are not finite" in raw["error"]["message"]
