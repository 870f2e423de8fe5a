"""How pipelines of diffusers are loaded: what is refused, what identifies them, what is fetched, and their LoRA."""

import functools
import importlib.metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys

import diffusers
import huggingface_hub
import numpy as np
import peft
import pytest
import safetensors.torch
import torch
import transformers
from huggingface_hub import constants, errors

from tests import tiny_sd3
from tests.changed_files import edit, edited
from tests.contrib.torch_pipelines.tiny import parts
from tests.contrib.torch_pipelines.tiny.pipelines import qwen_image_pipeline, sana_pipeline
from tests.expectations import raises
from winobench import DiffusionITM
from winobench.base import hub, memory
from winobench.contrib.torch_pipelines import adapters, loading
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline
from winobench.diffusion import families
from winobench.generation import loading as generation
from winobench.models import snapshots
from winobench.scorers import loading as scorers

DENOISER = "transformer/diffusion_pytorch_model.safetensors"
ENCODER = "text_encoder/model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sana")
    sana_pipeline.make().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return pathlib.Path(shutil.copytree(saved, tmp_path / "sana"))


def change(path, function):
    """Replaces the tensors of a safetensors file."""
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file(function(tensors), path, metadata={"format": "pt"})


# Bad input --------------------------------------------------------------------------------------------------------


def _code(folder, *places):
    """Writes code that leaves a mark."""
    for place in places:
        path = folder / place
        path.write_text(
            f"import pathlib\npathlib.Path({str(folder / 'mark')!r}).touch()\n"
            "class Mine:\n    @classmethod\n    def from_pretrained(cls, *_, **__):\n        return cls()\n"
        )


def _custom_pipeline(folder):
    _code(folder, "mine.py")
    edit(folder / "model_index.json", _class_name=["mine", "Mine"])


def _custom_part(folder):
    _code(folder, "mine.py", "transformer/mine.py", "tokenizer/mine.py")
    edit(folder / "model_index.json", tokenizer=["mine", "Mine"])


def _auto_tokenizer(folder):
    _code(folder, "tokenizer/mine.py")
    edit(folder / "model_index.json", tokenizer=["transformers", "AutoTokenizer"])
    edit(folder / "tokenizer/tokenizer_config.json", auto_map={"AutoTokenizer": ["mine.Mine", "mine.Mine"]})


def _pickle(folder):
    tensors = safetensors.torch.load_file(folder / DENOISER)
    torch.save(tensors, folder / "transformer/diffusion_pytorch_model.bin")
    (folder / DENOISER).unlink()


_index = functools.partial(edited, "model_index.json")


def _without(name):
    def spoil(folder):
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()

    return spoil


def _changed(name, function):
    return lambda folder: change(folder / name, function)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
VAE = "vae/diffusion_pytorch_model.safetensors"
REFUSED = {
    "a pipeline's code": (_custom_pipeline, "foreign-code", "model_index.json", "mine"),
    "a part's code": (_custom_part, "foreign-code", "model_index.json", "tokenizer", "mine"),
    "code of a tokenizer's config": (_auto_tokenizer, "foreign-code", "tokenizer_config.json", "mine.Mine"),
    "a pickle": (_pickle, "weights-are-a-pickle", "transformer/diffusion_pytorch_model.bin", "convert"),
    "a pointer": (lambda folder: (folder / ENCODER).write_bytes(POINTER), "git-lfs-pointer", "model.safetensors"),
    "a file that was cut off": (
        lambda folder: (folder / DENOISER).write_bytes((folder / DENOISER).read_bytes()[:-9]),
        *("incomplete-file", "diffusion_pytorch_model.safetensors"),
    ),
    "no weights": (_without(ENCODER), "no-weights", "text_encoder/model.safetensors"),
    "no folder": (_without("vae"), "no-weights", VAE),
    "no part": (_index(text_encoder=...), "missing-part", "text_encoder", "SanaPipeline"),
    "an empty part": (_index(vae=[None, None]), "missing-part", "vae", "SanaPipeline"),
    "no config": (_without("transformer/config.json"), "no-such-file", "transformer/config.json"),
    "no tokenizer": (_without("tokenizer/tokenizer.json"), "no-such-file", "tokenizer/tokenizer.json"),
    "no scheduler": (_without("scheduler/scheduler_config.json"), "cannot-read", "scheduler"),
    "another class": (
        _index(transformer=["diffusers", "UNet2DConditionModel"]),
        *("wrong-kind-of-model", "UNet2DConditionModel", "SanaTransformer2DModel"),
    ),
    "a network for a tokenizer": (
        _index(tokenizer=["transformers", "CLIPTextModel"]),
        *("wrong-kind-of-model", "CLIPTextModel"),
    ),
    "an unknown class": (_index(vae=["diffusers", "FutureAutoencoder"]), *("unknown-class", "FutureAutoencoder")),
    "a tensor too few": (
        _changed(ENCODER, lambda tensors: dict(list(tensors.items())[1:])),
        *("mismatched-parts", "text_encoder"),
    ),
    "a tensor too many": (
        _changed(DENOISER, lambda tensors: {**tensors, "extra": torch.ones(1)}),
        *("mismatched-parts", "extra"),
    ),
    "a config of another size": (
        lambda folder: edit(folder / "transformer/config.json", caption_channels=16),
        *("cannot-read", "transformer"),
    ),
    "an image pipeline": (
        _index(_class_name="SanaControlNetPipeline"),
        *("wrong-kind-of-model", "SanaControlNetPipeline"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_loaded_is_one_sentence(folder, case):
    spoil, code, *words = REFUSED[case]
    spoil(folder)
    with raises(code, *words) as caught:
        TorchPipeline.from_pretrained(folder)
    assert not (folder / "mark").exists()
    # By name as well, and with the same words.
    with pytest.raises(type(caught.value)):
        families.load_pipeline(folder, backend="torch" if code == "wrong-kind-of-model" else "auto")
    assert not (folder / "mark").exists()


@pytest.mark.parametrize("library", ["diffusers", "transformers"])
def test_code_under_a_librarys_name_is_not_run(folder, library):
    _code(folder, *(f"{part}/{library}.py" for part in ("tokenizer", "text_encoder", "transformer", "scheduler")))
    edit(folder / "transformer/config.json", auto_map={"AutoModel": "diffusers.Mine"})
    edit(folder / "text_encoder/config.json", auto_map={"AutoModel": "transformers.Mine"})
    assert type(loading.load(folder, "float32")).__name__ == "SanaPipeline"
    assert not (folder / "mark").exists()


@pytest.mark.parametrize("name", ["custom_pipeline", "trust_remote_code"])
def test_no_option_allows_code(folder, name):
    with raises("unknown-name", name):
        DiffusionITM.from_pretrained(folder, pipeline_options={name: True})


def test_a_pickle_is_not_read_where_pickles_are_allowed(folder):
    _pickle(folder)
    with raises("weights-are-a-pickle") as caught:
        TorchPipeline.from_pretrained(folder, allow_pickle=True)
    assert "allow" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "layer"), [("transformer", "transformer_blocks.0.attn1.to_q"), ("text_encoder", "layers.0.mlp.up_proj")]
)
def test_weights_of_8_bits_are_multiplied_by_their_factors(folder, part, layer):
    path = folder / (DENOISER if part == "transformer" else ENCODER)
    eights = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in safetensors.torch.load_file(path).items()}
    change(path, lambda _: eights)
    plain = getattr(loading.load(folder, "float32"), part).state_dict()
    change(path, lambda tensors: {**tensors, f"{layer}.scale_weight": torch.tensor(2.0)})
    for dtype in ("float32", "bfloat16"):
        network = getattr(loading.load(folder, dtype), part)
        assert str(network.dtype) == f"torch.{dtype}"
        for name, tensor in network.state_dict().items():
            wanted = eights[name].float() * (2 if name == f"{layer}.weight" else 1)
            torch.testing.assert_close(tensor.float(), wanted, rtol=0, atol=0)
            torch.testing.assert_close(plain[name], eights[name].float(), rtol=0, atol=0)
    change(path, lambda tensors: {**tensors, "nowhere.scale_weight": torch.tensor(2.0)})
    with raises("unsupported-checkpoint", "nowhere.scale_weight"):
        loading.load(folder, "float32")


def _in_4_bits(weight):
    """A matrix in bitsandbytes' form nf4, with blocks of 64."""
    values = torch.tensor([*np.linspace(-1, 1, 16)], dtype=torch.float32)
    flat = weight.reshape(-1, 64)
    largest = flat.abs().amax(1)
    codes = (flat / largest[:, None]).unsqueeze(-1).sub(values).abs().argmin(-1).reshape(-1, 2).to(torch.uint8)
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": list(weight.shape)})
    parts = {
        "": (codes[:, 0] * 16 + codes[:, 1])[:, None],
        ".absmax": largest,
        ".quant_map": values,
        ".quant_state.bitsandbytes__nf4": torch.tensor([*state.encode()], dtype=torch.uint8),
    }
    floats = values[codes.reshape(-1).long()].reshape(-1, 64) * largest[:, None]
    return parts, floats.reshape(weight.shape)


@pytest.mark.parametrize(
    ("part", "layer"),
    [("transformer", "transformer_blocks.0.attn1.to_q.weight"), ("text_encoder", "layers.0.mlp.up_proj.weight")],
)
def test_weights_of_4_bits_need_no_bitsandbytes(folder, part, layer):
    path = folder / (DENOISER if part == "transformer" else ENCODER)
    tensors = safetensors.torch.load_file(path)
    packed, wanted = _in_4_bits(tensors.pop(layer))
    change(path, lambda _: {**tensors, **{f"{layer}{name}": one for name, one in packed.items()}})
    edit(folder / part / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    pipe = loading.load(folder, "float32")
    torch.testing.assert_close(getattr(pipe, part).state_dict()[layer], wanted, rtol=1e-6, atol=0)
    identity = TorchPipeline.from_diffusers(pipe)
    assert "quantization_config" not in {*identity.network.config.to_dict(), *identity.texts.identity["configs"]}


@pytest.mark.parametrize(
    ("method", "code", "word"), [("torchao", "missing-package", '"torchao"'), ("awq", "unsupported-checkpoint", "awq")]
)
def test_a_quantised_part_names_its_package(folder, monkeypatch, method, code, word):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    edit(folder / "transformer/config.json", quantization_config={"quant_method": method})
    with raises(code, "transformer", word):
        loading.load(folder, "float32")


def test_a_denoiser_in_a_single_file(folder, usual, tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine.safetensors").write_bytes((folder / DENOISER).read_bytes())
    assert fingerprint(f"{folder}+{tmp_path / 'mine.safetensors'}") == usual
    _nudge(tmp_path / "mine.safetensors")
    (folder / DENOISER).unlink()
    assert fingerprint(f"{folder}+{tmp_path / 'mine.safetensors'}") != usual


def test_memory_is_asked_before_weights_are_read(folder, monkeypatch):
    pipe = loading.load(folder, "float32")
    parts_of = {
        name: sum(t.numel() for t in safetensors.torch.load_file(folder / name).values())
        for name in (DENOISER, ENCODER, "vae/diffusion_pytorch_model.safetensors")
    }
    shutil.copy(folder / DENOISER, folder / "transformer/diffusion_pytorch_model.fp16.safetensors")
    pipe.transformer.save_pretrained(folder / "transformer", max_shard_size="3KB")
    (folder / DENOISER).unlink(missing_ok=True)
    assert len(list(folder.glob("transformer/*-of-*.safetensors"))) > 2
    asked = []
    monkeypatch.setattr(memory, "host_bytes", lambda: asked.append(1) or 1)
    monkeypatch.setattr(diffusers.SanaTransformer2DModel, "from_pretrained", None)
    wanted = 2 * parts_of[DENOISER] + 2 * parts_of[ENCODER] + 4 * parts_of["vae/diffusion_pytorch_model.safetensors"]
    for variant in (None, "fp16"):
        with raises("out-of-memory", memory.gigabytes(wanted)):
            loading.load(folder, "bfloat16", variant=variant)
    monkeypatch.setattr(memory, "host_bytes", lambda: wanted)
    with raises("cannot-read", "transformer"):  # it would fit
        loading.load(folder, "bfloat16")


def test_weights_are_not_copied(saved):
    pipe = loading.load(saved, "float32")
    before = {name: tensor.data_ptr() for name, tensor in pipe.transformer.state_dict().items()}
    network = TorchPipeline.from_diffusers(pipe).network
    snapshots.split(network)
    after = {name: parameter.get_value().__array_interface__["data"][0] for name, parameter in network.arrays.items()}
    assert {name: after[name] for name in before} == before


def test_a_package_that_cleans_texts_is_needed(monkeypatch):
    pipe = type("Pipe", (), {"__call__": lambda self, clean_caption=True: None})()
    family = loading.family_of("SanaPipeline")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises("missing-package", "ftfy"):
        loading._check_cleaning(pipe, family)


# Identity ---------------------------------------------------------------------------------------------------------


def fingerprint(folder, dtype="float32", **settings):
    return TorchPipeline.from_diffusers(loading.load(folder, dtype), **settings).fingerprint


@pytest.fixture(scope="module")
def usual(saved):
    return fingerprint(saved)


def _nudge(path, name=None):
    def nudged(tensors):
        key = name or sorted(tensors)[-1]
        tensors[key] = tensors[key] + 1e-3
        return tensors

    change(path, nudged)


def _other_word(folder):
    path = folder / "tokenizer/tokenizer.json"
    path.write_text(path.read_text().replace('"add_prefix_space"', '"add_prefix_space" ').replace("dog", "dqg"))


CHANGES = {
    "the denoiser": lambda folder: _nudge(folder / DENOISER),
    "the text encoder": lambda folder: _nudge(folder / ENCODER),
    "the autoencoder": lambda folder: _nudge(folder / "vae/diffusion_pytorch_model.safetensors"),
    "an option of the denoiser": lambda folder: edit(folder / "transformer/config.json", norm_eps=1e-5),
    "an option of the text encoder": lambda folder: edit(folder / "text_encoder/config.json", rms_norm_eps=1e-3),
    "the tokenizer": lambda folder: edit(folder / "tokenizer/tokenizer_config.json", padding_side="left"),
    "the chat template": lambda folder: (folder / "tokenizer/chat_template.jinja").write_text("{{ messages }}"),
    "the scheduler": lambda folder: edit(folder / "scheduler/scheduler_config.json", flow_shift=1.0),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_fingerprint_follows(folder, usual, what):
    CHANGES[what](folder)
    assert fingerprint(folder) != usual


def _sharded(folder):
    pipe = loading.load(folder, "float32")
    for part, path in (("transformer", DENOISER), ("text_encoder", ENCODER)):
        (folder / path).unlink()
        getattr(pipe, part).save_pretrained(folder / part, max_shard_size="3KB")
        assert len(list((folder / part).glob("*.safetensors"))) > 1


SAME = {
    "another place": lambda folder: None,
    "several files": _sharded,
    "how it samples": lambda folder: edit(folder / "scheduler/scheduler_config.json", solver_order=1),
    "who wrote it": lambda folder: edit(folder / "model_index.json", _diffusers_version="0.30.0"),
    "parts that are not used": lambda folder: edit(folder / "model_index.json", safety_checker=[None, None]),
    "where it was": lambda folder: edit(folder / "transformer/config.json", _name_or_path="/elsewhere"),
}


@pytest.mark.parametrize("what", SAME)
def test_the_fingerprint_stays(folder, usual, what):
    SAME[what](folder)
    assert fingerprint(folder) == usual


def test_the_fingerprint_follows_the_dtype_and_settings(saved, usual):
    found = {usual, fingerprint(saved, "bfloat16"), fingerprint(saved, text_tokens=20)}
    assert len(found) == 3


@pytest.mark.parametrize("package", ["diffusers", "transformers", "torch", "torchax"])
def test_the_fingerprint_follows_versions(saved, usual, monkeypatch, package):
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9" * (name == package) + version(name))
    assert fingerprint(saved) != usual


def test_the_fingerprint_follows_options_of_the_pipeline(saved, usual):
    pipe = loading.load(saved, "float32")
    pipeline = TorchPipeline.from_diffusers(pipe)
    pipeline.texts.encode_all(["a dog", "a " * 400])  # tokenizers keep what their last call has set
    assert pipeline.fingerprint == usual


# Hubs -------------------------------------------------------------------------------------------------------------

COMMIT = "b" * 40


class _Response:
    request, text, headers = None, "", {}

    def __init__(self, status_code):
        self.status_code = status_code


@pytest.fixture
def hub_of(saved, tmp_path, monkeypatch):
    """A hub whose repository ``owner/name`` holds a pipeline. What is fetched of it is listed."""
    fetched = []
    snapshot = tmp_path / "cache/models--owner--name/snapshots" / COMMIT
    files = {str(path.relative_to(saved)): path for path in saved.rglob("*") if path.is_file()}
    files["transformer/diffusion_pytorch_model.fp16.safetensors"] = files[DENOISER]
    files["transformer/mine.py"] = files["README.md"] = files["model_index.json"]

    def bring(name, revision):
        assert revision in (None, "main", COMMIT)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(files[name], snapshot / name)
        fetched.append((name, revision))
        return str(snapshot / name)

    def download(repo_id, name, *, revision=None, local_files_only=False):
        if (snapshot / name).exists() and revision == COMMIT:
            return str(snapshot / name)
        if local_files_only:
            raise errors.LocalEntryNotFoundError("not in the cache")
        if name not in files:
            raise errors.RemoteEntryNotFoundError("no", response=_Response(404))
        return bring(name, revision)

    def snapshot_download(repo_id, *, revision, allow_patterns, local_files_only=False):
        for name in huggingface_hub.utils.filter_repo_objects(files, allow_patterns=allow_patterns):
            bring(name, revision)
        return str(snapshot)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "is_reachable", lambda: True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: None)
    return fetched


def test_only_what_is_needed_is_fetched_of_one_commit(hub_of, usual):
    assert fingerprint("owner/name") == usual
    names = {name for name, _ in hub_of}
    assert {DENOISER, ENCODER, "tokenizer/tokenizer.json"} <= names
    assert not {name for name in names if name.endswith((".py", ".md", ".fp16.safetensors"))}
    assert {revision for _, revision in hub_of[1:]} == {COMMIT}
    hub_of.clear()
    assert loading.load("owner/name", "float32", variant="fp16") is not None
    assert "transformer/diffusion_pytorch_model.fp16.safetensors" in {name for name, _ in hub_of}


def test_a_gated_repository_is_named(monkeypatch, hub_of):
    def refuse(*_, **__):
        raise errors.GatedRepoError("no", response=_Response(403))

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    with raises("gated-repository", "owner/name"):
        families.load_pipeline("owner/name")
    assert hub_of == []


def test_nothing_is_asked_offline(saved, tmp_path, monkeypatch):
    import socket

    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was asked"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    place = tmp_path / "models--owner--name"
    shutil.copytree(saved, place / "snapshots" / COMMIT)
    (place / "refs").mkdir()
    (place / "refs/main").write_text(COMMIT)
    assert loading.load("owner/name", "float32") is not None
    (place / "snapshots" / COMMIT / ENCODER).unlink()
    with raises("hub-not-reached", "model.safetensors", "HF_HUB_OFFLINE"):
        loading.load("owner/name", "float32")


# LoRA -------------------------------------------------------------------------------------------------------------


def adapted(network, targets, seed=0):
    """The tensors of a random LoRA for a network, in peft's names."""
    network.add_adapter(peft.LoraConfig(r=2, lora_alpha=4, target_modules=targets))
    for name, parameter in network.named_parameters():
        if "lora_" in name:
            seed += 1
            torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(seed))
    return peft.get_peft_model_state_dict(network)


@pytest.fixture(scope="module")
def loras(tmp_path_factory):
    """LoRA files of diffusers for SANA and Qwen-Image."""
    place = tmp_path_factory.mktemp("lora")
    found = {}
    for name, pipe in (("sana", sana_pipeline.make()), ("qwen", qwen_image_pipeline.make())):
        layers = adapted(pipe.transformer, ["to_q", "to_k", "to_v", "to_out.0"])
        pipe.save_lora_weights(place / name, transformer_lora_layers=layers)
        found[name] = place / name / "pytorch_lora_weights.safetensors"
    return found


@pytest.fixture
def unchecked(monkeypatch):
    """Without the comparison with torch, which compiles."""
    monkeypatch.setattr(loading, "check_against_torch", lambda pipeline: None)


def prediction(pipe, pipeline):
    """What the denoiser predicts of fixed inputs, in torch."""
    noisy = np.random.default_rng(0).standard_normal((2, 4, 8, 8), np.float32)
    conditions = pipeline.texts.encode_all(["a dog", "two birds"])
    return pipeline.network.run_in_torch(noisy, np.full(2, 500, np.float32), conditions)


@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.slow), 0.5])
def test_a_lora_is_that_of_diffusers(saved, loras, unchecked, scale):
    pipe = loading.load(saved, "float32")
    plain = prediction(pipe, TorchPipeline.from_diffusers(pipe))
    pipe = diffusers.SanaPipeline.from_pretrained(saved)
    pipe.load_lora_weights(loras["sana"], adapter_name="one")
    pipe.set_adapters("one", scale)
    pipe.transformer.eval()
    scorer = DiffusionITM.from_pretrained(saved, lora=loras["sana"].parent, lora_scale=scale, image_size=32)
    got = prediction(None, scorer.pipeline)
    noisy = torch.tensor(np.random.default_rng(0).standard_normal((2, 4, 8, 8), np.float32))
    conditions = scorer.pipeline.texts.encode_all(["a dog", "two birds"])
    states, mask = (torch.tensor(np.asarray(conditions[place])) for place in ("0", "1"))
    with torch.no_grad():
        wanted = pipe.transformer(
            noisy, encoder_hidden_states=states, encoder_attention_mask=mask, timestep=torch.full((2,), 500.0)
        )[0]
    size = float(wanted.square().mean().sqrt())
    assert np.abs(got - wanted.numpy()).max() < 1e-5 * size
    assert np.abs(got - plain).max() > 1e-2 * size
    sha256 = adapters.read(loras["sana"]).sha256
    assert scorer.lora == {"sha256": sha256, "scale": scale, "fused": True}
    assert scorer.fingerprint()["lora"] == scorer.lora


def test_generation_has_the_same_lora(saved, loras, unchecked):
    ref = scorers.resolve(str(saved))
    pipeline = generation.load_pipeline(ref, "float32", adapters=adapters.read(loras["sana"]), lora_scale=0.5)
    scorer = DiffusionITM.from_pretrained(saved, lora=loras["sana"], lora_scale=0.5, image_size=32)
    assert pipeline.fingerprint == scorer.pipeline.fingerprint


@pytest.mark.slow
def test_text_encoders_are_adapted_as_well(tmp_path):
    def make():
        words = parts.clip_tokenizer()
        config = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        return parts.filled(
            diffusers.StableDiffusionPipeline,
            {
                "unet": tiny_sd3.unet(
                    block_out_channels=(8, 8), norm_num_groups=4, attention_head_dim=2, cross_attention_dim=16
                ),
                "text_encoder": transformers.CLIPTextModel(
                    transformers.CLIPTextConfig(vocab_size=len(words), max_position_embeddings=77, **config)
                ),
                "tokenizer": words,
                "vae": parts.vae_of_8(),
                "scheduler": diffusers.DDIMScheduler(),
            },
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )

    pipe = make()
    diffusers.StableDiffusionPipeline.save_lora_weights(
        tmp_path,
        unet_lora_layers=adapted(pipe.unet, ["to_q", "to_v"]),
        text_encoder_lora_layers=adapted(pipe.text_encoder, ["q_proj", "v_proj"]),
    )
    plain, fused, eager = make(), make(), make()
    adapters.fuse(fused, adapters.read(tmp_path), 0.5)
    eager.load_lora_weights(tmp_path, adapter_name="one")
    eager.set_adapters("one", 0.5)
    ids = torch.arange(77)[None] % 8
    with torch.no_grad():
        outputs = [one.text_encoder(ids)[0] for one in (plain, fused, eager)]
        latents = torch.randn((1, 4, 8, 8), generator=torch.Generator().manual_seed(0))
        noises = [one.unet(latents, 5, states)[0] for one, states in zip((plain, fused, eager), outputs, strict=True)]
    for before, got, wanted in (outputs, noises):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
        assert (got - before).abs().max() > 1e-2


def _other_network(path):
    change(path, lambda tensors: {key.replace("transformer.", "text_encoder_2."): one for key, one in tensors.items()})


def _one_layer_of_another(path):
    def renamed(tensors):
        return {
            name.replace("transformer_blocks.1.attn2.to_q", "single_blocks.7.to_q"): one
            for name, one in tensors.items()
        }

    change(path, renamed)


def _half_a_pair(path):
    change(path, lambda tensors: {name: one for name, one in tensors.items() if "1.attn2.to_q.lora_A" not in name})


def _infinite(path):
    change(path, lambda tensors: {name: one * float("inf") for name, one in tensors.items()})


def _of_peft(path):
    (path.parent / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 3, "lora_alpha": 6}')


LORAS = {
    "for another model": (None, "lora-misfit"),
    "for another network": (_other_network, "lora-misfit"),
    "with a layer of another model": (_one_layer_of_another, "lora-misfit"),
    "with half a pair": (_half_a_pair, "incomplete-file"),
    "that is not finite": (_infinite, "not-finite"),
    "with peft's config of another rank": (_of_peft, "mismatched-parts"),
    "that is empty": (lambda path: change(path, lambda _: {}), "empty-file"),
    "that was cut off": (lambda path: path.write_bytes(path.read_bytes()[:-5]), "incomplete-file"),
}


@pytest.mark.parametrize("case", LORAS)
def test_a_lora_is_refused(saved, loras, tmp_path, case):
    spoil, code = LORAS[case]
    path = tmp_path / "lora.safetensors"
    shutil.copy(loras["sana" if spoil else "qwen"], path)
    if spoil:
        spoil(path)
    with raises(code, "lora.safetensors"):
        TorchPipeline.load_with_lora(saved, "float32", TorchPipeline.read_lora(path))


def test_what_no_lora_can_be(saved, loras, tmp_path):
    with raises("unsupported-option", "fuse_lora"):
        DiffusionITM.from_pretrained(saved, lora=loras["sana"], fuse_lora=False)
    torch.save({}, tmp_path / "lora.bin")
    with raises("weights-are-a-pickle", "lora.bin"):
        DiffusionITM.from_pretrained(saved, lora=tmp_path / "lora.bin", allow_pickle=True)
    with raises("unsupported-option", "PixArtSigmaPipeline"):
        adapters.fuse(object.__new__(diffusers.PixArtSigmaPipeline), None, 1.0)


# Without the extra ------------------------------------------------------------------------------------------------

BLOCKED = """
import sys
sys.modules.update(dict.fromkeys(("torch", "diffusers", "torchax", "peft", "accelerate")))
import winobench
from winobench.base.errors import InputError
from winobench.diffusion import families
"""


def run(code, *arguments):
    done = subprocess.run([sys.executable, "-c", BLOCKED + code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_native_families_need_none_of_it(tiny_pipeline):
    code = """
import pathlib
for name in set(winobench.__all__) - {"ImageLikelihood", "TokenGeneration"}:  # torch runs these
    getattr(winobench, name)
from winobench.contrib.torch_pipelines import adapters, families as torch_families, loading, parts, pipeline
from launch import listing
print(families.read_description(sys.argv[1]).family.__name__)
print(type(families.load_pipeline(sys.argv[1])).__name__)
"""
    assert run(code, tiny_pipeline).split() == ["StableDiffusion", "StableDiffusion"]


def test_a_model_that_torch_runs_names_the_extra(saved):
    code = """
for use in (families.read_description, families.load_pipeline):
    try:
        use(sys.argv[1])
    except InputError as error:
        print(error)
"""
    for line in run(code, saved).strip().splitlines():
        assert re.fullmatch(r'.+pip install "winobench\[torch\]"', line)
