"""Programs and sizes of the core, as plans have them."""

import json
import pathlib

import jax
import numpy as np
import pytest
import torch
import transformers

from tests.contrib.planning import small
from winobench import parallel
from winobench.base import registry
from winobench.checkpoints import models
from winobench.contrib.planning import abstract, anchors, scoring, work
from winobench.diffusion import families, flux_2, z_image
from winobench.models.autoencoder_kl import AutoencoderKLConfig
from winobench.scorers import denoising
from winobench.tasks import TASKS, groups

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_a_plan_has_the_smaller_weights():
    pipeline = abstract.make_pipeline(small.flux_description(double=1, single=1), "bfloat16")
    mesh = parallel.make_mesh(jax.devices()[:1])
    pipelines = pipeline, denoising.in_8_bits(pipeline)
    found = [scoring.make_scoring(pipeline, mesh, batch=2) for pipeline in pipelines]
    assert found[1].weights["denoiser"] < 0.8 * found[0].weights["denoiser"]
    assert "f8E4M3FN" in found[1].step.lower().as_text()


def test_gdbench_is_that_of_the_paper():
    names = [part for name in work.GDBENCH for part in (groups.GDBENCH[3:6] if name == "svo" else (name,))]
    assert sorted(names) == sorted(groups.members("@gdbench", TASKS))


def test_what_others_have_is_said_alike_by_plans_and_the_page():
    rows = json.loads((ROOT / "benchmarks" / "results" / "faster.json").read_text())["rows"]
    peers = {each["peer"] for each in rows}
    assert {anchor.rate for anchor in anchors.ANCHORS.values()} <= peers


@pytest.mark.slow
@pytest.mark.parametrize(("name", "billions"), [("flux2-klein-base-4b", 4.022), ("flux2-klein-9b", 8.191)])
def test_released_sizes_of_flux_2(name, billions):
    """The encoder's names and shapes are transformers' own; the parts fit each other."""
    description = families.released(name)
    config = description.configs["text_encoder"]
    with torch.device("meta"):
        network = transformers.Qwen3ForCausalLM(transformers.Qwen3Config.from_dict(config.to_dict()))
    expected = {key: tuple(tensor.shape) for key, tensor in network.named_parameters()}
    pipeline = abstract.make_pipeline(description, "bfloat16")
    assert {key: shape for key, (_, shape) in models.torch_names(pipeline.text_encoder).items()} == expected
    assert sum(np.prod(shape) for shape in expected.values()) / 1e9 == pytest.approx(billions, abs=1e-3)
    function, params = pipeline.text_function()
    states = jax.eval_shape(function, params, pipeline.tokenize(["a photo"]))
    assert (states.shape, states.dtype) == ((1, 512, pipeline.transformer.config.joint_attention_dim), "bfloat16")
    assert pipeline.is_distilled == ("base" not in name)
    assert pipeline.image_size == 1024
    assert pipeline.schedule_at(1024).positions == 4096
    assert {name for name in registry.MODELS if name.startswith("flux2-klein")} == flux_2.Flux2Klein.RELEASED.keys()


@pytest.mark.slow
def test_released_sizes_of_z_image():
    """The encoder's names and shapes are transformers' own; the parts fit each other."""
    description = families.released("z-image")
    assert (description.schedule.shift, families.released("z-image-turbo").schedule.shift) == (6.0, 3.0)
    assert description.configs == families.released("z-image-turbo").configs
    assert description.configs["vae"] == AutoencoderKLConfig.flux()
    config = description.configs["text_encoder"]
    with torch.device("meta"):
        network = transformers.Qwen3Model(transformers.Qwen3Config.from_dict(config.to_dict()))
    expected = {f"model.{key}": tuple(tensor.shape) for key, tensor in network.named_parameters()}
    pipeline = abstract.make_pipeline(description, "bfloat16")
    assert {key: shape for key, (_, shape) in models.torch_names(pipeline.text_encoder).items()} == expected
    function, params = pipeline.text_function()
    states = jax.eval_shape(function, params, pipeline.tokenize(["a photo"]))["states"]
    assert (states.shape, states.dtype) == ((1, 512, 2560), "bfloat16")
    assert pipeline.text_encoder.config.out_layers == (35,)
    assert (pipeline.image_size, pipeline.check_image_size(2048)) == (1024, 2048)
    assert {name for name in registry.MODELS if name.startswith("z-image")} == z_image.ZImage.RELEASED.keys()
