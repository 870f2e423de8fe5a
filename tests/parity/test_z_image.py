"""Z-Image against torch diffusers: what other pipelines do not have (see `test_whole_pipelines`)."""

import json
import shutil

import diffusers
import numpy as np
import pytest
import torch
import transformers

from tests import tiny_z_image
from tests.expectations import names
from tests.parity.harness import relative_error
from tests.parity.whole_pipelines import TEXTS
from winobench.base.errors import InputError
from winobench.diffusion import families, z_image


def test_text_states(whole):
    ours, theirs = whole("z_image").ours, whole("z_image").theirs
    for pipeline, length in ((ours, 512), (ours.replace(text_tokens=24), 24)):
        with torch.inference_mode():
            expected, _ = theirs.encode_prompt(list(TEXTS), max_sequence_length=length)
        result = pipeline.encode_texts(TEXTS)
        assert result["states"].shape == (3, length, 24)
        assert result["lengths"].tolist() == [len(theirs_of_text) for theirs_of_text in expected]
        for states, theirs_of_text in zip(result["states"], expected, strict=True):
            assert relative_error(states[: len(theirs_of_text)], theirs_of_text.numpy()) < 1e-5
    assert (ours.tokenize(TEXTS)["lengths"] > 32).tolist() == [True, False, False]


@pytest.mark.parametrize("shift", [3.0, 6.0])
def test_levels(shift):
    schedule = z_image.ZImage.read_schedule({"shift": shift, "use_dynamic_shifting": False})
    for steps in (4, 9, 50):
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=shift)
        sigmas = torch.linspace(1.0, 1 / steps, steps).tolist()
        scheduler.set_timesteps(sigmas=sigmas, mu=0.7, device="cpu")
        np.testing.assert_allclose(schedule.sampling_levels(steps, evenly=True), scheduler.sigmas.numpy(), rtol=1e-5)
    left_out = z_image.ZImage.PUBLISHED_LEFT_OUT
    u = 1 - np.arange(left_out, 1000 - left_out, 33)[::-1] / 1000
    np.testing.assert_allclose(schedule.published_levels(30, left_out), shift * u / (1 + (shift - 1) * u), rtol=1e-6)


def test_shards_and_files_with_an_output_matrix(whole, tmp_path):
    """As the released folders are: the encoder's names have a prefix, and files are in parts."""
    tiny_z_image.write(tmp_path / "parts", max_shard_size="60KB")
    encoder = transformers.Qwen3ForCausalLM.from_pretrained(whole("z_image").folder / "text_encoder")
    shutil.rmtree(tmp_path / "parts" / "text_encoder")
    encoder.save_pretrained(tmp_path / "parts" / "text_encoder", max_shard_size="20KB")
    indices = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.rglob("*.index.json")}
    assert indices.keys() >= {"transformer", "text_encoder"}
    assert {"lm_head.weight", "model.norm.weight"} <= indices["text_encoder"]["weight_map"].keys()
    assert families.load_pipeline(tmp_path / "parts").fingerprint == whole("z_image").ours.fingerprint


def test_images_that_are_too_large(whole):
    with pytest.raises(InputError, match=names("image_size", "520", "512 pixels")):
        whole("z_image").ours.generate(["a photo"], image_size=520)
