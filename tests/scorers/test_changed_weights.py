"""Weights that change under what scores, answers or draws with them: each call uses those of its beginning."""

import dataclasses
import gc
import json
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from flax import nnx
from tokenizers import AddedToken, normalizers, processors

from tests import tiny_encoders
from tests.evaluation import fakes as tasks
from tests.evaluation import text_fakes
from tests.expectations import raises
from tests.models.test_networks import filled
from tests.scorers import tiny_models
from tests.tiny_vision_language import write_vision_language
from winobench import checkpoints, evaluate, evaluate_questions, parallel
from winobench.checkpoints import language_models, models, vision_language
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models import lora, snapshots
from winobench.responders.language_model import LanguageModel
from winobench.responders.text_encoders import ClipText, NliEncoder
from winobench.responders.vision_language import VisionLanguageModel
from winobench.runs import error_parts
from winobench.runs.requests import Entailment, Options, Similarity, Turn
from winobench.scorers.contrastive import Contrastive
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.scorers.itm_head import ItmHead
from winobench.scorers.vqa_score import VQAScore
from winobench.tasks.base import Example

IMAGES = [np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8) for seed in range(2)]
TEXTS = ["a red cube", "a blue ball"]
ENTAILMENT = Entailment("the ball is red", ("a red ball", "a blue ball"))
OPTIONS = Options((Turn("user", "Is the banana yellow?"),), ("yes", "no"))


def one_device():
    return parallel.make_mesh(jax.devices()[:1])


def change(network, factor=0.5):
    """Gives all parameters new values, as a step of training does; returns the state before."""
    before = jax.tree.map(lambda leaf: leaf, nnx.state(network))

    def new(leaf):
        values = (np.asarray(leaf) * factor).astype(leaf.dtype)
        return values if isinstance(leaf, np.ndarray) else jax.device_put(values)

    nnx.update(network, jax.tree.map(new, before))
    return before


@dataclasses.dataclass
class Kind:
    make: object
    network: object
    again: object
    ask: object


def _score(scorer):
    return scorer.score(IMAGES, TEXTS)


def _answers(request, *names):
    def ask(responder):
        ((_, raw),) = responder.ask([request])
        return np.asarray([raw[name] for name in names])

    return ask


def _of_parts(cls, name, parts, ask):
    """A kind of a model and what it needs besides."""
    return Kind(
        lambda at: cls.from_pretrained(at(name), batch_size=2, mesh=one_device()),
        lambda s: s.model,
        lambda s: cls(*(getattr(s, part) for part in ("model", *parts)), batch_size=2, mesh=one_device()),
        ask,
    )


def _of_loaded(cls, load, name, ask):
    """A kind of a model in one piece."""
    return Kind(
        lambda at: cls(load(at(name), mesh=one_device()), batch_size=2),
        lambda s: s._loaded.module(),
        lambda s: cls(s._loaded, batch_size=2),
        ask,
    )


def _options_about_images(model):
    return [scores for _, scores in model.iter_option_scores(IMAGES, ["a", "a"], [TEXTS, TEXTS])]


LOAD, DECODER = vision_language.load_vision_language, language_models.load_decoder
KINDS = {
    "diffusion": Kind(
        lambda at: DiffusionITM(StableDiffusion.from_pretrained(at("sd")), batch_size=4, mesh=one_device()),
        lambda s: s.pipeline.unet,
        lambda s: DiffusionITM(s.pipeline, batch_size=4, mesh=one_device()),
        lambda s: s.score(IMAGES, TEXTS, num_samples=2),
    ),
    "staged": Kind(
        lambda at: DiffusionITM.from_pretrained(at("sd"), encoders="staged", batch_size=4, mesh=one_device()),
        lambda s: s.pipeline.text_encoder,
        lambda s: DiffusionITM(s.pipeline, encoders="staged", batch_size=4, mesh=one_device()),
        lambda s: s.score(IMAGES, TEXTS, num_samples=2),
    ),
    "contrastive": _of_parts(Contrastive, "clip", ("tokenizer", "processor"), _score),
    "matching": _of_parts(ItmHead, "blip", ("tokenizer", "processor"), _score),
    "nli": _of_parts(NliEncoder, "bert", ("tokenizer",), _answers(ENTAILMENT, "logits")),
    "vision_language": _of_loaded(VQAScore, LOAD, "vision_language", _score),
    "options_about_images": _of_loaded(VisionLanguageModel, LOAD, "vision_language", _options_about_images),
    "language_model": _of_loaded(LanguageModel, DECODER, "language", _answers(OPTIONS, "scores")),
    "clip_text": Kind(
        lambda at: ClipText.from_pretrained(at("clip"), batch_size=2, mesh=one_device()),
        lambda s: s.scorer.model,
        lambda s: ClipText(Contrastive(s.scorer.model, s.scorer.tokenizer, s.scorer.processor, mesh=one_device())),
        _answers(Similarity("a red cube", ("a blue ball", "a cube")), "cosines"),
    ),
}


@pytest.fixture(scope="module")
def at(tmp_path_factory, tiny_pipeline, tiny_language_model):
    folder, written = tmp_path_factory.mktemp("models"), {"sd": tiny_pipeline, "language": tiny_language_model}
    write = {
        "clip": tiny_models.write_clip,
        "blip": tiny_models.write_blip,
        "bert": tiny_encoders.write_bert,
        "vision_language": write_vision_language,
    }

    def find(name):
        if name not in written:
            written[name] = write[name](folder / name)
        return written[name]

    return find


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_call_uses_the_weights_of_its_beginning(name, at, compilations):
    kind = KINDS[name]
    asked = kind.make(at)
    first, before = kind.ask(asked), asked.fingerprint()
    snapshot, network = asked.snapshot(), kind.network(asked)
    gone = [weakref.ref(leaf) for leaf in jax.tree.leaves(nnx.state(network))]
    earlier = change(network)
    with compilations() as count:
        second, after = kind.ask(asked), asked.fingerprint()
    assert count.total == 0
    assert not np.array_equal(first, second)
    assert {key for key in before if before[key] != after[key]} - {"match"} == {"model"}
    if "match" in before:
        assert after["match"] == before["match"] | {"model": after["model"]}
    # A snapshot has its own weights, and their fingerprint.
    np.testing.assert_array_equal(kind.ask(snapshot), first)
    assert snapshot.fingerprint() == before
    # Another one of the same model is the same.
    again = kind.again(asked)
    np.testing.assert_array_equal(kind.ask(again), second)
    assert again.fingerprint() == after
    # Weights that come back are known again.
    nnx.update(network, earlier)
    np.testing.assert_array_equal(kind.ask(asked), first)
    assert asked.fingerprint() == before
    change(network)
    kind.ask(asked), kind.ask(again)
    del snapshot, earlier
    gc.collect()
    assert not any(reference() is not None for reference in gone)


@pytest.fixture(scope="module")
def make(at):
    def make(**options):
        return DiffusionITM(StableDiffusion.from_pretrained(at("sd"), **options), batch_size=4, mesh=one_device())

    return make


def scores(scorer):
    return scorer.score(IMAGES, TEXTS, num_samples=2)


def run(scorer, task, folder, **options):
    return evaluate(scorer, [task], folder, num_samples=2, progress=False, **options)


def recorded(folder):
    return {
        (row["image"], row["text"], row["first_sample"] + number): error
        for path in (folder / "errors").iterdir()
        for row in pq.read_table(path).to_pylist()
        for number, error in enumerate(row["errors"])
    }


def task_with(load_first=lambda: None):
    def load(data_dir, limit):
        load_first()
        return [Example(str(number), (image,), tuple(TEXTS), 0) for number, image in enumerate(IMAGES)]

    return dataclasses.replace(tasks.text_task(), load=load)


def test_all_networks_of_a_pipeline_are_seen(make):
    scorer = make()
    before = scores(scorer)
    for network in (scorer.pipeline.vae, scorer.pipeline.text_encoder, scorer.pipeline.unet):
        change(network)
        now = scores(scorer)
        assert not np.array_equal(before, now)
        np.testing.assert_array_equal(now, scores(DiffusionITM(scorer.pipeline, batch_size=4, mesh=one_device())))
        before = now


def test_errors_of_other_weights_are_not_taken(make, tmp_path):
    scorer, task = make(), task_with()
    first = run(scorer, task, tmp_path / "a")
    earlier = change(scorer.pipeline.unet, 0)
    second = run(scorer, task, tmp_path / "b")
    assert first["computed_passes"] == second["computed_passes"] == 2 * 2 * 2
    assert second["tasks"]["words"]["accuracy"] | {"low": 0, "high": 0} != first["tasks"]["words"]["accuracy"]
    # All the same without a network: no text is better.
    assert second["tasks"]["words"]["accuracy"]["ties"] == second["tasks"]["words"]["accuracy"]["n"]
    nnx.update(scorer.pipeline.unet, earlier)
    assert run(scorer, task, tmp_path / "c")["computed_passes"] == 0
    assert recorded(tmp_path / "c") == recorded(tmp_path / "a")
    with raises("another-run"):
        change(scorer.pipeline.unet)
        run(scorer, task, tmp_path / "a")


def test_an_evaluation_keeps_the_weights_that_it_began_with(make, tmp_path):
    scorer = make()
    run(scorer, task_with(), tmp_path / "a")
    run(scorer, task_with(lambda: change(scorer.pipeline.unet)), tmp_path / "b", reuse=False)
    identities = [json.loads((tmp_path / name / "config.json").read_text())["identity"]["scorer"] for name in "ab"]
    assert identities[0] == identities[1] != scorer.fingerprint()
    assert recorded(tmp_path / "a") == recorded(tmp_path / "b")


def test_questions_are_answered_by_the_weights_of_the_beginning(at, tmp_path):
    model, task = KINDS["language_model"].make(at), text_fakes.text_task(pairs=1)

    def load(data_dir, limit):
        change(model._loaded.module())
        return task.load(data_dir, limit)

    how = {"protocol": "scored", "progress": False, "reuse": False}
    before = model.fingerprint()
    first = evaluate_questions(model, [task], tmp_path / "a", **how)
    second = evaluate_questions(model, [dataclasses.replace(task, load=load)], tmp_path / "b", **how)
    assert first["versions"]["scorer"] == second["versions"]["scorer"] == before != model.fingerprint()
    assert answers(tmp_path / "a") == answers(tmp_path / "b") != {}


def _tokenizer(asked):
    """The tokenizer that a user would change."""
    owner = getattr(asked, "scorer", asked)
    owner = getattr(owner, "pipeline", getattr(owner, "_loaded", owner))
    return owner.tokenizer


def _normalizer(tokenizer):
    backend = tokenizer.backend_tokenizer
    before = backend.normalizer
    backend.normalizer = normalizers.Replace("a", "e")
    return lambda: setattr(backend, "normalizer", before)


def _post_processor(tokenizer):
    backend = tokenizer.backend_tokenizer
    before = backend.post_processor
    token = tokenizer.eos_token or tokenizer.sep_token
    twice = [(token, tokenizer.convert_tokens_to_ids(token))]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{token} {token} $A {token}", pair=f"{token} $A {token} $B {token} {token}", special_tokens=twice
    )
    return lambda: setattr(backend, "post_processor", before)


def _side(tokenizer):
    tokenizer.padding_side = "left"
    return lambda: setattr(tokenizer, "padding_side", "right")


def _added(tokenizer):
    """A piece that is a token by itself from now on. Tokens cannot be taken out."""
    tokenizer.add_tokens([AddedToken("e", rstrip=True)])


def _template(tokenizer):
    before = tokenizer.chat_template
    tokenizer.chat_template = "Answer. {{ messages[0]['content'] }}"
    return lambda: setattr(tokenizer, "chat_template", before)


CHANGES = {
    **{(name, "normalizer"): _normalizer for name in KINDS},
    **{
        (name, "post_processor"): _post_processor for name in ("diffusion", "staged", "contrastive", "clip_text", "nli")
    },
    **{(name, "added"): _added for name in KINDS if name != "nli"},
    ("diffusion", "padding side"): _side,
    ("contrastive", "padding side"): _side,
    ("language_model", "chat template"): _template,
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_a_call_uses_the_tokenizer_of_its_beginning(name, change, at):
    kind = KINDS[name]
    asked = kind.make(at)
    first, before = kind.ask(asked), asked.fingerprint()
    snapshot = asked.snapshot()
    back = CHANGES[name, change](_tokenizer(asked))
    second, after = kind.ask(asked), asked.fingerprint()
    again = kind.again(asked)
    np.testing.assert_array_equal(kind.ask(again), second)
    assert again.fingerprint() == after
    assert not np.array_equal(first, second)
    assert after["model"] != before["model"]
    np.testing.assert_array_equal(kind.ask(snapshot), first)
    assert snapshot.fingerprint() == before
    if back is not None:
        back()
        np.testing.assert_array_equal(kind.ask(asked), first)
        assert asked.fingerprint() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_tokens_without_an_embedding_are_refused(name, at):
    asked = KINDS[name].make(at)
    tokenizer = _tokenizer(asked)
    tokenizer.add_tokens([f"new{number}" for number in range(2000)])
    for _ in range(2):
        with raises("mismatched-parts"):
            KINDS[name].ask(asked)
    if name == "diffusion":
        with raises("mismatched-parts"):
            asked.pipeline.encode_texts(TEXTS)


def answers(folder):
    lines = [line for path in (folder / "responses").glob("*.jsonl") for line in path.read_text().splitlines()]
    return {line["key"]: line["raw"] for line in map(json.loads, lines)}


def test_a_session_keeps_the_weights_that_it_began_with(make):
    scorer = make()
    triples = np.indices((2, 2, 2), dtype=np.int32).reshape(3, -1).T
    before = scorer.errors(IMAGES, TEXTS, num_samples=2).reshape(-1)
    session = scorer.session(IMAGES, TEXTS, num_samples=2)
    change(scorer.pipeline.vae), change(scorer.pipeline.unet)
    scores(scorer)
    for rows, errors in session.iter_errors(triples):
        np.testing.assert_array_equal(errors, before[rows])


class Wrapped:
    def __init__(self, scorer, change_at):
        self.scorer, self.calls, self.change_at = scorer, 0, change_at

    def fingerprint(self):
        return {"scorer": "wrapped", "model": self.scorer.fingerprint()["model"]}

    def score(self, images, texts):
        self.calls += 1
        if self.calls == self.change_at:
            change(self.scorer.model)
        return self.scorer.score(images, texts)


def test_a_scorer_that_changes_while_it_scores_is_refused(at, tmp_path, monkeypatch):
    # Otherwise a slow first batch is recorded before the scorer changes.
    monkeypatch.setattr(error_parts, "_SECONDS_BETWEEN_PARTS", 1e9)
    scorer = Wrapped(KINDS["contrastive"].make(at), change_at=2)
    with raises("scorer-changed", "Wrapped", "model"):
        evaluate(scorer, [task_with()], tmp_path / "run", progress=False)
    assert not list((tmp_path / "run").rglob("*.parquet"))


@pytest.mark.slow
def test_loras_are_seen(make, at, tmp_path):
    adapted = make()
    lora.add_lora(adapted.pipeline.unet, lora.LoRAConfig(rank=2, targets="all"), rngs=nnx.Rngs(0))
    for adapter in lora.adapters(adapted.pipeline.unet).values():
        adapter.up.set_value(jnp.full_like(adapter.up.get_value(), 0.1))
    checkpoints.save_lora(tmp_path, unet=adapted.pipeline.unet)
    scorer, options = make(), {"batch_size": 4, "mesh": one_device()}
    before, name = scores(scorer), scorer.fingerprint()["model"]
    checkpoints.load_lora(scorer.pipeline, tmp_path, fuse=False)
    apart, fingerprint = scores(scorer), scorer.fingerprint()
    np.testing.assert_array_equal(apart, scores(DiffusionITM(scorer.pipeline, **options)))
    assert not np.allclose(before, apart)
    assert fingerprint["model"] != name
    lora.adapters(scorer.pipeline.unet)["mid_block.attentions.0.transformer_blocks.0.attn1.to_q"].scale = 3.0
    assert scorer.fingerprint()["model"] != fingerprint["model"]
    assert not np.array_equal(scores(scorer), apart)
    lora.fuse(scorer.pipeline.unet)
    np.testing.assert_array_equal(scores(scorer), scores(DiffusionITM(scorer.pipeline, **options)))
    # What is said of a LoRA is said for as long as it is there.
    scorer = DiffusionITM.from_pretrained(at("sd"), lora=tmp_path, **options)
    assert scorer.fingerprint()["lora"] == scorer.lora != None  # noqa: E711
    change(scorer.pipeline.unet)
    assert scorer.lora is None
    assert "lora" not in scorer.fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize("on_host", [False, True])
def test_numpy_arrays_cannot_be_changed_in_place(make, on_host):
    scorer = make(on_host=on_host)
    if on_host:
        with pytest.raises(ValueError, match="read-only"):
            scorer.pipeline.unet.conv_in.kernel.get_value()[...] = 0
    # A view of something that can be written into is no better than that.
    whole = np.ones((2, 3, 3, 4, 16), np.float32)
    view = whole[0]
    view.flags.writeable = False
    scorer.pipeline.unet.conv_in.kernel.set_value(view)
    before, fingerprint = scores(scorer), scorer.fingerprint()
    whole[:] = 2
    np.testing.assert_array_equal(scores(scorer), before)
    assert scorer.fingerprint() == fingerprint == DiffusionITM(scorer.pipeline, mesh=one_device()).fingerprint()
    with pytest.raises(ValueError, match="read-only"):
        scorer.pipeline.unet.conv_in.kernel.get_value()[...] = 0
    scorer.pipeline.unet.conv_in.kernel.set_value(whole[0])
    assert scorer.fingerprint() != fingerprint
    assert not np.array_equal(scores(scorer), before)


@pytest.mark.slow
def test_other_networks_and_dtypes_are_seen(make, at):
    scorer, other = make(), make(dtype="bfloat16")
    before = scorer.fingerprint()
    object.__setattr__(scorer.pipeline, "unet", other.pipeline.unet)
    assert scorer.fingerprint()["dtype"] == "bfloat16"
    assert scorer.fingerprint() == DiffusionITM(scorer.pipeline, mesh=one_device()).fingerprint() != before
    matching = KINDS["matching"].make(at)
    vision = dataclasses.replace(tiny_models.BLIP.vision_config, image_size=2 * tiny_models.SIZE)
    matching.model = filled(type(matching.model), dataclasses.replace(tiny_models.BLIP, vision_config=vision))
    with raises("mismatched-parts", "32"):
        matching.score(IMAGES, TEXTS)


def test_donated_weights_are_refused_until_there_are_new_ones(make):
    scorer = make()
    kernel = scorer.pipeline.unet.conv_in.kernel
    new = jax.jit(lambda array: 2 * array, donate_argnums=0)(kernel.get_value())
    with raises("deleted-weights", "UNet2DConditionModel"):
        scores(scorer)
    kernel.set_value(new)
    assert np.isfinite(scores(scorer)).all()


def test_weights_are_identified_once(make, monkeypatch):
    pipeline, computed = make().pipeline, []
    original = models._sha256
    monkeypatch.setattr(models, "_sha256", lambda named: computed.append(1) or original(named))
    fingerprint = pipeline.fingerprint
    for _ in range(2):
        scorer = DiffusionITM(pipeline, mesh=one_device())
        assert (
            scorer.fingerprint()["model"]
            == scorer.snapshot().fingerprint()["model"]
            == pipeline.fingerprint
            == fingerprint
        )
    assert len(computed) == 1
    kernel = id(pipeline.unet.conv_in.kernel.get_value())
    (key,) = (key for key in snapshots._computed if kernel in key[1])
    change(pipeline.unet)
    assert scorer.fingerprint()["model"] == pipeline.fingerprint != fingerprint
    assert len(computed) == 2
    gc.collect()
    assert key not in snapshots._computed  # nobody keeps the earlier weights in memory


@pytest.mark.slow
def test_what_is_drawn_follows_the_weights(make):
    pipeline = make().pipeline
    how = {"num_steps": 1, "guidance_scale": 3.0, "batch_size": 1, "mesh": one_device()}
    before, snapshot = pipeline.generate(TEXTS[:1], **how), pipeline.snapshot()
    for network in pipeline.networks.values():
        change(network, 0.8)
    after = pipeline.generate(TEXTS[:1], **how)
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(after, pipeline.replace().generate(TEXTS[:1], **how))
    np.testing.assert_array_equal(snapshot.generate(TEXTS[:1], **how), before)
    assert snapshot.fingerprint != pipeline.fingerprint


@pytest.mark.slow
def test_another_network_in_a_loaded_model_is_another_identity(at):
    loaded = LOAD(at("vision_language"), mesh=one_device())
    assert loaded.identity() == loaded.fingerprint == loaded.snapshot().identity()
    state = jax.tree.map(lambda leaf: leaf + 1, loaded.network[1])
    other = dataclasses.replace(loaded, network=(loaded.network[0], state))
    assert other.identity() != loaded.fingerprint
    assert VisionLanguageModel(other).fingerprint()["match"]["model"] == other.identity()
    spread = VisionLanguageModel.from_pretrained(at("vision_language"))
    assert spread.fingerprint()["model"] == loaded.fingerprint
