"""Learned words in all forms of files: token ids and text states are those of diffusers with the same file."""

import diffusers
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.torch
import torch

from tests.expectations import raises
from tests.parity import harness
from winobench.checkpoints import convert_pickle
from winobench.contrib.model_files import textual_inversions
from winobench.diffusion import families
from winobench.scorers.diffusion_itm import DiffusionITM

pytestmark = pytest.mark.usefixtures("no_gradients")
TEXTS = ["a <toy> left of the blue ball", "a photo", "<toy> and <toy>", ""]
WIDTH = 24


def vectors(count=3, width=WIDTH):
    return torch.randn(count, width, generator=torch.Generator().manual_seed(5))


def write(folder, form):
    """A file of the word ``<toy>``, and what diffusers is given to load it."""
    values = vectors(1 if form == "one vector" else 3)
    if form == "web UI, pickle":
        path = folder / "any.pt"
        content = {"string_to_token": {"*": 265}, "string_to_param": {"*": values}, "name": "<toy>", "step": 9}
        torch.save(content, path)
        return path, [(content, "")]
    path = folder / "<toy>.safetensors"
    tensors = {"web UI": {"emb_params": values}, "sdxl": {"clip_l": values, "clip_g": vectors(3, 40)}}
    tensors = tensors.get(form, {"<toy>": values[0] if form == "flat" else values})
    safetensors.torch.save_file(tensors, path)
    if form == "sdxl":
        of = {"clip_l": "", "clip_g": "_2"}
        # What diffusers takes for one word of several vectors is a dictionary with that word.
        return path, [({"<toy>": values}, of[name]) for name, values in tensors.items()]
    return path, [({"<toy>": next(iter(tensors.values()))}, "")]


@pytest.mark.quick(3)
@pytest.mark.parametrize("form", ["several vectors", "web UI, pickle", "sdxl", "one vector", "flat", "web UI"])
def test_texts_are_those_of_diffusers(form, tiny_pipeline, folder_of, tmp_path):
    folder = folder_of("sdxl") if form == "sdxl" else tiny_pipeline
    path, given = write(tmp_path, form)
    ours, theirs = families.load_pipeline(folder), diffusers.DiffusionPipeline.from_pretrained(folder)
    before = ours.fingerprint
    for content, number in given:
        parts = {name: getattr(theirs, f"{name}{number}") for name in ("tokenizer", "text_encoder")}
        theirs.load_textual_inversion(content, **parts)
    textual_inversions.add_word(ours, textual_inversions.read_word(path, allow_pickle=True))
    assert ours.fingerprint != before
    ids = ours.tokenize(TEXTS)
    for _, number in given:
        tokenizer, encoder = (getattr(theirs, f"{name}{number}") for name in ("tokenizer", "text_encoder"))
        texts = theirs.maybe_convert_prompt(TEXTS, tokenizer)
        expected = tokenizer(texts, padding="max_length", max_length=77, truncation=True, return_tensors="pt").input_ids
        result = ids if form != "sdxl" else ids[f"ids{number}"]
        np.testing.assert_array_equal(result, expected.numpy())
        assert result.max() >= len(tokenizer) - 3
        states = encoder(expected, output_hidden_states=True)
        got = harness.call(ours.networks[f"text_encoder{number}"], jnp.asarray(result))
        assert harness.relative_error(got.penultimate, states.hidden_states[-2].numpy()) < 1e-5
        if number:
            assert harness.relative_error(got.text_embeds, states.text_embeds.numpy()) < 1e-5


@pytest.mark.slow
def test_scorers_know_the_words(tiny_pipeline, tmp_path):
    path, _ = write(tmp_path, "several vectors")
    scorer = DiffusionITM.from_pretrained(tiny_pipeline, embeddings=[path])
    plain = DiffusionITM.from_pretrained(tiny_pipeline)
    assert scorer.fingerprint != plain.fingerprint
    image = np.zeros((64, 64, 3), np.uint8)
    scores, without = (either.score([image], ["a <toy>", "a photo"], num_samples=1) for either in (scorer, plain))
    assert scores[0, 1] == pytest.approx(without[0, 1], rel=1e-5)
    assert abs(scores[0, 0] - without[0, 0]) > 1e-3 * abs(without[0, 0])
    with raises("cannot-be-saved", "'<toy>'"):
        scorer.pipeline.save_pretrained(tmp_path / "saved")


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"<toy>": vectors(width=25)}, ("embeddings-misfit", "25", "24")),
        ({"clip_l": vectors(), "clip_g": vectors(3, 40)}, ("embeddings-misfit", "text_encoder_2")),
        ({"clip_l": vectors(), "clip_g": vectors(2, 40)}, ("wrong-shape", "clip_g", "[2, 40]")),
        ({"<toy>": vectors(), "<other>": vectors()}, ("not-embeddings", "<other>")),
        ({"<toy>": vectors() * torch.nan}, ("not-finite", "'<toy>'")),
        ({"<toy>": vectors(1).to(torch.int32)}, ("wrong-dtype", "int32")),
        ({"<|endoftext|>": vectors(1)}, ("repeated-token", "'<|endoftext|>'")),
        ({"": vectors(1)}, ("repeated-token", "''")),
    ],
)
def test_what_does_not_fit_changes_nothing(tensors, words, tiny_pipeline, tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.torch.save_file(tensors, path)
    pipeline = families.load_pipeline(tiny_pipeline)
    before = pipeline.fingerprint
    with raises(*words, path.name):
        textual_inversions.add_word(pipeline, textual_inversions.read_word(path))
    assert pipeline.fingerprint == before


def test_where_files_are_looked_for(tmp_path):
    path, _ = write(tmp_path, "several vectors")
    (tmp_path / "a").mkdir()
    path = path.rename(tmp_path / "a" / "learned_embeds.safetensors")
    assert textual_inversions.read_word(tmp_path / "a").word == "<toy>"
    path.rename(tmp_path / "a" / "other.safetensors")
    with raises("no-such-file", "learned_embeds.safetensors"):
        textual_inversions.read_word(tmp_path / "a")
    with raises("no-such-file", "none.pt"):
        textual_inversions.read_word(tmp_path / "none.pt")
    pickled, _ = write(tmp_path, "web UI, pickle")
    with raises("weights-are-a-pickle", "any.pt"):
        textual_inversions.read_word(pickled)
    convert_pickle._main(["", str(pickled)])
    assert textual_inversions.read_word(pickled.with_suffix(".safetensors")).word == "<toy>"
