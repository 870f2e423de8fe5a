"""Parts of diffusers' own that change under a wrapped pipeline: scores, fingerprints and images follow them."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import peft
import pytest
import tokenizers
import torch

from tests.contrib.torch_pipelines.tiny.pipelines import (
    flux2_klein_pipeline,
    qwen_image_pipeline,
    sana_pipeline,
    stable_diffusion_pipeline,
)
from tests.expectations import raises
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red ball to the left of a cube", "", "two birds"]
IMAGES = list(np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3)).astype(np.uint8))


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@dataclasses.dataclass
class Kind:
    """``change`` takes a pipeline of diffusers, and returns a function that changes it back."""

    change: Callable[[Any], Callable[[], Any]]
    maker: Any = sana_pipeline
    # Whether files would hold the change. A pipeline that is wrapped after it then has the same fingerprint.
    is_known: bool = True


def _in_place(change):
    """A change of the text encoder's weights."""

    def apply(pipe):
        before = {name: tensor.clone() for name, tensor in pipe.text_encoder.state_dict().items()}
        change(pipe)
        return lambda: pipe.text_encoder.load_state_dict(before)

    return apply


def _doubled(pipe):
    return {name: 2 * one for name, one in pipe.text_encoder.state_dict().items()}


def _assigned(pipe):
    before = pipe.text_encoder.state_dict()
    pipe.text_encoder.load_state_dict(_doubled(pipe), assign=True)
    return lambda: pipe.text_encoder.load_state_dict(before, assign=True)


def _first(pipe):
    return next(iter(pipe.text_encoder.parameters()))


@_in_place
@torch.no_grad()
def _written(pipe):
    _first(pipe).mul_(2)


@_in_place
def _one_row_by_data(pipe):
    words = pipe.tokenizer("red", add_special_tokens=False)["input_ids"]
    pipe.text_encoder.get_input_embeddings().weight.data[words] *= 2


@_in_place
def _by_numpy(pipe):
    _first(pipe).detach().numpy()[...] *= 2


@_in_place
def _trained(pipe):
    optimizer = torch.optim.SGD(pipe.text_encoder.requires_grad_(True).parameters(), lr=0.1)
    sum(one.square().sum() for one in pipe.text_encoder.parameters()).backward()
    optimizer.step()
    pipe.text_encoder.requires_grad_(False)


def _other_data(pipe):
    parameter = _first(pipe)
    before = parameter.data
    parameter.data = 2 * before
    return lambda: setattr(parameter, "data", before)


def _kept(name, change):
    """A change of a part, which is undone by its copy."""

    def apply(pipe):
        before = copy.deepcopy(getattr(pipe, name))
        change(getattr(pipe, name))
        return lambda: setattr(pipe, name, before)

    return apply


def _normalized(tokenizer):
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.Replace("red", "two")


def _added_tokens(tokenizer):
    tokenizer.add_tokens([tokenizers.AddedToken("d", rstrip=True)])  # within the embeddings, and in the texts


def _put(name, make):
    """Another object in the place of a part."""

    def change(pipe):
        before = getattr(pipe, name)
        setattr(pipe, name, make(before))
        return lambda: setattr(pipe, name, before)

    return change


def _other_encoder(encoder):
    encoder = copy.deepcopy(encoder)
    with torch.no_grad():
        next(iter(encoder.parameters())).mul_(2)
    return encoder


def _with_new_word(tokenizer):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.backend_tokenizer.add_tokens([tokenizers.AddedToken("e", lstrip=True)])
    return tokenizer


def _set(find, name, value):
    """Another value of an attribute."""

    def change(pipe):
        owner = find(pipe)
        before = getattr(owner, name)
        setattr(owner, name, value(before) if callable(value) else value)
        return lambda: setattr(owner, name, before)

    return change


def _buffer(pipe):
    table = pipe.text_encoder.rotary_emb.inv_freq
    before = table.clone()
    table.mul_(3)
    return lambda: table.copy_(before)


def _hook(pipe):
    handle = pipe.text_encoder.norm.register_forward_hook(lambda module, inputs, output: 2 * output)
    return handle.remove


def _registered(part, **values):
    def change(pipe):
        owner = getattr(pipe, part)
        before = {name: owner.config[name] for name in values}
        owner.register_to_config(**values)
        return lambda: owner.register_to_config(**before)

    return change


def _adapter(pipe, scale=1.0):
    """A LoRA for the text encoder, kept apart from its weights."""
    encoder = pipe.text_encoder
    encoder.add_adapter(peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"]), "one")
    generator = torch.Generator().manual_seed(0)
    for name, parameter in encoder.named_parameters():
        if ".one." in name:
            parameter.data = torch.randn(parameter.shape, generator=generator)
    for part in encoder.modules():
        if isinstance(part, peft.tuners.lora.LoraLayer):
            part.set_scale("one", scale)
    return pipe.unload_lora_weights


def _fused(pipe):
    plain = pipe.text_encoder
    pipe.text_encoder = copy.deepcopy(plain)
    _adapter(pipe)
    pipe.fuse_lora(components=["text_encoder"])
    return lambda: setattr(pipe, "text_encoder", plain)


def _disabled(pipe):
    back = _adapter(pipe)
    pipe.text_encoder.disable_adapters()
    return back


TEMPLATE = tokenizers.processors.TemplateProcessing(single="<s> <s> $A", pair="$A $B", special_tokens=[("<s>", 2)])
SD, QWEN, KLEIN = stable_diffusion_pipeline, qwen_image_pipeline, flux2_klein_pipeline
KINDS = {
    "load_state_dict": Kind(_in_place(lambda pipe: pipe.text_encoder.load_state_dict(_doubled(pipe)))),
    "load_state_dict that assigns": Kind(_assigned),
    "an operation in place": Kind(_written),
    "a write by data": Kind(_in_place(lambda pipe: _first(pipe).data.mul_(2))),
    "one row by data": Kind(_one_row_by_data),
    "a write by NumPy": Kind(_by_numpy),
    "other data": Kind(_other_data),
    "another dtype": Kind(
        _kept("text_encoder", lambda one: one.to(torch.bfloat16)), is_known=False
    ),  # it rounds a table that no file holds
    "a step of training": Kind(_trained),
    "another encoder": Kind(_put("text_encoder", _other_encoder)),
    "a table that no file holds": Kind(_buffer, is_known=False),
    "an option of a module": Kind(_set(lambda pipe: pipe.text_encoder.norm, "eps", 1.0), is_known=False),
    "a hook": Kind(_hook, is_known=False),
    "added tokens": Kind(_kept("tokenizer", _added_tokens)),
    "another tokenizer": Kind(_put("tokenizer", _with_new_word)),
    "a post-processor": Kind(_set(lambda pipe: pipe.tokenizer.backend_tokenizer, "post_processor", TEMPLATE)),
    "a normalizer": Kind(_kept("tokenizer", _normalized)),
    "the padding side": Kind(_set(lambda pipe: pipe.tokenizer, "padding_side", "left"), SD, False),
    "a chat template": Kind(_set(lambda pipe: pipe.tokenizer, "chat_template", lambda text: "Draw. " + text), KLEIN),
    "a template of the pipeline": Kind(
        _set(lambda pipe: pipe, "prompt_template_encode", lambda text: text.replace("{}", "{} in red")), QWEN, False
    ),
    "the scheduler's config": Kind(_registered("scheduler", flow_shift=1.0)),
    "another scheduler": Kind(_put("scheduler", lambda one: type(one).from_config(one.config, flow_shift=7.0))),
    "the autoencoder's config": Kind(_registered("vae", scaling_factor=2.0)),
    "an option of the denoiser": Kind(
        _set(lambda pipe: pipe.transformer.transformer_blocks[0].norm1, "eps", 1.0), is_known=False
    ),
    "an adapter": Kind(_adapter, SD),
    "a scaled adapter": Kind(lambda pipe: _adapter(pipe, 0.5), SD),
    "a fused adapter": Kind(_fused, SD),
}


def _score(scorer):
    return scorer.errors(IMAGES, TEXTS, num_samples=1), scorer.fingerprint()["model"]


def _scorer(maker, change=lambda pipe: None):
    pipe = maker.make()
    change(pipe)
    return pipe, DiffusionITM(TorchPipeline.from_diffusers(pipe), image_size=maker.IMAGE_SIZE, batch_size=3)


@pytest.fixture(scope="module")
def scored():
    """A maker's pipeline and scorer, which each test leaves as they were, and a scorer that no test changes.

    With the first scores and fingerprint.
    """

    kept = {}

    def make(maker):
        if id(maker) not in kept:
            pipe, scorer = _scorer(maker)
            kept[id(maker)] = pipe, scorer, _scorer(maker)[1], *_score(scorer)
        return kept[id(maker)]

    return make


@pytest.mark.slow
@pytest.mark.usefixtures("single_device")
@pytest.mark.parametrize("name", KINDS)
def test_scores_and_fingerprints_follow(name, scored, tmp_path, monkeypatch):
    kind = KINDS[name]
    pipe, scorer, other, before, identity = scored(kind.maker)
    back = kind.change(pipe)
    after, changed = _score(scorer)
    unchanged = _score(other)
    np.testing.assert_array_equal(unchanged[0], before)  # texts on the disk are those of their model
    assert unchanged[1] == identity
    with monkeypatch.context() as patch:
        if not kind.is_known:
            patch.setenv("WINOBENCH_CACHE", str(tmp_path))
        wanted, fresh = _score(_scorer(kind.maker, kind.change)[1])
    np.testing.assert_array_equal(after, wanted)
    assert not np.array_equal(after, before)
    assert changed != identity
    assert (changed == fresh) == kind.is_known
    back()
    again, identity_again = _score(scorer)
    np.testing.assert_array_equal(again, before)
    assert identity_again == identity


def _scored(scorer):
    return scorer.score(IMAGES, TEXTS[:1], num_samples=1)


@pytest.mark.usefixtures("single_device")
def test_lost_weights_are_refused():
    pipe, scorer = _scorer(sana_pipeline)
    with torch.no_grad():
        next(iter(pipe.transformer.parameters())).copy_(torch.zeros(()))
    for call in (lambda: _scored(scorer), scorer.fingerprint, lambda: scorer.pipeline.fingerprint):
        with raises("deleted-weights", "transformer", "SanaPipeline"):
            call()
    pipe, scorer = _scorer(sana_pipeline)
    pipe.vae = sana_pipeline.make().vae
    with raises("deleted-weights", "vae", "SanaPipeline"):
        _scored(scorer)


@pytest.mark.usefixtures("single_device")
def test_a_snapshot_refuses_a_change():
    pipe, scorer = _scorer(sana_pipeline)
    snapshot = scorer.snapshot()
    before, new = scorer.fingerprint(), ["a text that is not on the disk"]
    back = _written(pipe)
    calls = (
        lambda: snapshot.score(IMAGES, new, num_samples=1),
        lambda: snapshot.pipeline.encode_texts(new),
        snapshot.pipeline.snapshot,
    )
    for call in calls:
        with raises("scorer-changed", "SanaPipeline"):
            call()
    back()
    assert scorer.fingerprint() == before


@pytest.mark.slow
@pytest.mark.usefixtures("single_device")
def test_images_follow():
    pipe = sana_pipeline.make()
    pipeline = TorchPipeline.from_diffusers(pipe)
    how = {"num_steps": 2, "image_size": 32, "guidance_scale": 3.0}

    def drawn(pipeline):
        return pipeline.generate(TEXTS[:1], **how)

    before, identity = drawn(pipeline), pipeline.generation_identity(3.0, None, 32)
    for change in (_written, _registered("scheduler", flow_shift=1.0)):
        back = change(pipe)
        fresh = sana_pipeline.make()
        change(fresh)
        after = drawn(pipeline)
        assert not np.array_equal(after, before)
        np.testing.assert_array_equal(after, drawn(TorchPipeline.from_diffusers(fresh)))
        back()
        np.testing.assert_array_equal(drawn(pipeline), before)
        assert pipeline.generation_identity(3.0, None, 32) == identity


@pytest.mark.slow
def test_encoders_on_devices_follow():
    """Traces depend on adapters' scales."""
    pipe = stable_diffusion_pipeline.make()
    pipeline = TorchPipeline.from_diffusers(pipe)
    pipeline.texts.on_host = False
    before = pipeline.encode_texts(TEXTS)
    for scale in (1.0, 0.5):
        back = _adapter(pipe, scale)
        got = pipeline.encode_texts(TEXTS)
        fresh = stable_diffusion_pipeline.make()
        _adapter(fresh, scale)
        wanted = TorchPipeline.from_diffusers(fresh).encode_texts(TEXTS)
        for place, array in wanted.items():
            np.testing.assert_allclose(got[place], array, rtol=0, atol=1e-3)
            assert not np.allclose(got[place], before[place], rtol=0, atol=1e-2)
        back()
    for place, array in pipeline.encode_texts(TEXTS).items():
        np.testing.assert_array_equal(array, before[place])
