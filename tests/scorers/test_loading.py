"""A model's name to its scorer: by the registry, by a folder's files, and what is refused."""

import dataclasses
import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.torch
import torch
from flax import nnx

from tests import tiny_encoders
from tests.expectations import names, raises
from tests.scorers import tiny_models
from winobench import checkpoints
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models import lora
from winobench.responders import loading as responder_loading
from winobench.scorers import loading
from winobench.scorers.contrastive import Contrastive
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.scorers.itm_head import ItmHead
from winobench.scorers.vqa_score import VQAScore


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_pipeline):
    folder = tmp_path_factory.mktemp("models")
    return {
        DiffusionITM: tiny_pipeline,
        Contrastive: tiny_models.write_clip(folder / "clip"),
        ItmHead: tiny_models.write_blip(folder / "blip"),
    }


@pytest.mark.parametrize("cls", [DiffusionITM, Contrastive, ItmHead])
def test_folders_are_told_apart_by_their_files(folders, cls):
    assert type(loading.load_scorer(str(folders[cls]), batch_size=3)) is cls


@pytest.mark.slow
@pytest.mark.parametrize("cls", [DiffusionITM, Contrastive, ItmHead])
def test_devices_may_share_the_parameters(folders, cls):
    images = [np.full((32, 32, 3), value, np.uint8) for value in (0, 200)]
    texts = ["a red cube", "a photo"]
    alone = loading.load_scorer(str(folders[cls]))
    shared = loading.load_scorer(str(folders[cls]), model_parallel=2)
    assert shared.mesh.shape["model"] == 2
    np.testing.assert_allclose(shared.score(images, texts), alone.score(images, texts), rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match=names("model_parallel", "3")):
        loading.load_scorer(str(folders[cls]), model_parallel=3)


def test_registered_names_bring_their_scorer_and_options(folders, monkeypatch):
    for name, model in registry.MODELS.items():
        assert model.scorer in loading.SCORERS, name
    copies = {
        name: dataclasses.replace(registry.MODELS[name], source=str(folders[ItmHead]))
        for name in ("blip-itm-base", "blip-itc-base")
    }
    copies["clip-rn50x64"] = dataclasses.replace(registry.MODELS["clip-rn50x64"], source=str(folders[Contrastive]))
    monkeypatch.setattr(registry, "MODELS", copies)
    assert loading.load_scorer("blip-itm-base").head == "itm"
    assert loading.load_scorer("blip-itc-base").head == "itc"
    assert ItmHead.from_pretrained("blip-itc-base", head="itm").head == "itm"
    assert type(loading.load_scorer("clip-rn50x64")) is Contrastive


def test_options_of_diffusion_models(folders):
    diffusion = {"error": "l2", "target": None, "image_size": None}
    assert loading.load_scorer(str(folders[DiffusionITM]), diffusion=diffusion).error == "l2"
    loading.load_scorer(str(folders[Contrastive]), diffusion={"error": None})
    with raises("option-of-others", "error"):
        loading.load_scorer(str(folders[Contrastive]), diffusion=diffusion)


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_pickles_of_language_models_are_read_where_they_may_be(kind, tiny_language_model, tmp_path):
    folder = tmp_path / kind
    if kind == "bert":
        tiny_encoders.write_bert(folder)
    else:
        shutil.copytree(tiny_language_model, folder)
    weights = folder / "model.safetensors"
    torch.save(safetensors.torch.load_file(weights), folder / "pytorch_model.bin")
    expected = responder_loading.load_responder(str(folder)).fingerprint()
    weights.unlink()
    with raises("weights-are-a-pickle", "allow_pickle"):
        responder_loading.load_responder(str(folder))
    assert responder_loading.load_responder(str(folder), allow_pickle=True).fingerprint() == expected


def test_what_is_no_model_is_refused(tmp_path):
    with raises("unknown-kind-of-model"):
        loading.load_scorer(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match=names("config.json", "'bert'")):
        loading.load_scorer(str(tmp_path))
    for words in (
        {"model_type": "gemma3", "vision_config": {}},
        {"model_type": "internvl_chat", "force_image_size": 1},
    ):
        (tmp_path / "config.json").write_text(json.dumps(words))
        with raises("unknown-kind-of-model", words["model_type"], "vLLM, SGLang or llama.cpp", "openai:MODEL@http://"):
            loading.load_scorer(str(tmp_path))
        with raises("wrong-kind-of-model", words["model_type"], "qwen2_5_vl", "openai:MODEL@http://"):
            VQAScore.from_pretrained(str(tmp_path))
    with raises("no-such-model", "clip-rn50x64"):
        loading.load_scorer("clip_rn50x64")
    with pytest.raises(InputError, match=names("model_index.json", "no-such/model")):
        loading.load_scorer("no-such/model")


@pytest.mark.slow
def test_a_lora(folders, tmp_path):
    pipeline = StableDiffusion.from_pretrained(folders[DiffusionITM])
    lora.add_lora(pipeline.unet, lora.LoRAConfig("cross", rank=2), rngs=nnx.Rngs(0))
    for adapter in lora.adapters(pipeline.unet).values():
        adapter.up.set_value(jnp.ones_like(adapter.up[...]))
    checkpoints.save_lora(tmp_path, unet=pipeline.unet)

    def judged(**diffusion):
        return loading.load_scorer(str(folders[DiffusionITM]), batch_size=4, diffusion=diffusion).fingerprint()

    plain = judged(lora=None)
    assert "lora" not in plain
    fused, apart = (judged(lora=str(tmp_path), fuse_lora=fuse) for fuse in (True, False))
    half = judged(lora=str(tmp_path), lora_scale=0.5)
    assert [fingerprint["lora"]["scale"] for fingerprint in (fused, apart, half)] == [1.0, 1.0, 0.5]
    assert len(fused["lora"]["sha256"]) == 64
    assert len({json.dumps(fingerprint) for fingerprint in (plain, fused, apart, half)}) == 4
    assert len({fingerprint["model"] for fingerprint in (plain, fused, apart, half)}) == 4
    with pytest.raises(InputError, match=names("lora_scale", "0.5", "LoRA")):
        judged(lora_scale=0.5)
    with raises("option-of-others", "lora"):
        loading.load_scorer(str(folders[Contrastive]), diffusion={"lora": str(tmp_path)})
    # Before weights are read: the file that names the family is enough.
    (tmp_path / "model").mkdir()
    shutil.copy(folders[DiffusionITM] / "model_index.json", tmp_path / "model")
    with pytest.raises(InputError, match=names("none.safetensors")):
        DiffusionITM.from_pretrained(tmp_path / "model", lora="none.safetensors")


@pytest.mark.parametrize("name", [5, None, b"t5", ["t5"]])
def test_a_model_that_answers_questions_has_a_name(name):
    with raises("wrong-type", "name"):
        responder_loading.load_responder(name)
