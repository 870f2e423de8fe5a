"""A model's name to its scorer: by the registry, by a folder's files, and what is refused."""

import dataclasses

import pytest

from tests.scorers import tiny_models
from winobench import registry
from winobench.errors import InputError
from winobench.scorers import loading
from winobench.scorers.contrastive import Contrastive
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.scorers.itm_head import ItmHead


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
    assert type(loading.load_scorer("clip-rn50x64")) is Contrastive


def test_options_of_diffusion_models(folders):
    diffusion = {"error": "l2", "target": None, "image_size": None}
    assert loading.load_scorer(str(folders[DiffusionITM]), diffusion=diffusion).error == "l2"
    loading.load_scorer(str(folders[Contrastive]), diffusion={"error": None})
    with pytest.raises(
        InputError, match=r"^error is an option of diffusion models, but .*clip' is none: leave it out$"
    ):
        loading.load_scorer(str(folders[Contrastive]), diffusion=diffusion)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="it has none of their files; name another model"):
        loading.load_scorer(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match=r"its config\.json is of a 'bert'; name another model"):
        loading.load_scorer(str(tmp_path))
    with pytest.raises(InputError, match=r"is neither a folder, nor a hub id .* clip-rn50x64"):
        loading.load_scorer("clip_rn50x64")
    with pytest.raises(InputError, match=r"model_index\.json of the hub repository no-such/model is not at hand"):
        loading.load_scorer("no-such/model")
