"""BLIP-2 and InstructBLIP against torch transformers: from published folders, through the loader, to states and logits.

Float32, relative to the largest expected value. Measured: images 3e-7, queries 1.4e-6, logits 2.1e-6; preprocessing 0.
"""

import jax
import numpy as np
import pytest
import torch
import transformers
from flax import nnx
from PIL import Image

from tests.parity.torch_copy import QUICK_COMPILATION, relative_error, to_torch
from tests.tiny_vision_language import QUERIES, SIZE, VOCABULARY, write_vision_language
from winobench.checkpoints import models, vision_language

TOLERANCE = 1e-5
FAMILIES = {
    "instructblip": transformers.InstructBlipForConditionalGeneration,
    "blip-2": transformers.Blip2ForConditionalGeneration,
}


@pytest.fixture(scope="module", autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp(family), family)


@pytest.fixture(scope="module")
def network(family, folder):
    return FAMILIES[family].from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def loaded(folder):
    return vision_language.load_vision_language(folder)


def inputs():
    """Pixels; ids and lengths of questions in tokens of both tokenizers; ids of answers."""
    rng = np.random.default_rng(0)
    pixels = rng.standard_normal((3, SIZE, SIZE, 3)).astype(np.float32)
    of_qformer = rng.integers(5, len(VOCABULARY), (3, 9)).astype(np.int32)
    of_t5 = rng.integers(5, 390, (3, 12)).astype(np.int32)
    answers = rng.integers(5, 390, (3, 4)).astype(np.int32)
    return pixels, of_qformer, np.array([9, 1, 4], np.int32), of_t5, np.array([2, 12, 7], np.int32), answers


def torch_outputs(network, family):
    pixels, of_qformer, qformer_lengths, of_t5, lengths, answers = inputs()
    image = np.full((3, QUERIES), network.config.image_token_index)
    options = {}
    if family == "instructblip":
        options = {
            "qformer_input_ids": torch.from_numpy(of_qformer).long(),
            "qformer_attention_mask": torch.from_numpy(np.arange(9) < qformer_lengths[:, None]).long(),
        }
    start = np.zeros((3, 1), np.int32)
    return network(
        to_torch(pixels),
        input_ids=torch.from_numpy(np.concatenate([image, of_t5], axis=1)).long(),
        attention_mask=torch.from_numpy(np.arange(QUERIES + 12) < QUERIES + lengths[:, None]).long(),
        decoder_input_ids=torch.from_numpy(np.concatenate([start, answers[:, :-1]], axis=1)).long(),
        **options,
    )


def test_states_and_logits(network, loaded, family):
    """The vision tower, the Q-Former and the language model's logits, with texts of unlike lengths."""
    pixels, of_qformer, qformer_lengths, of_t5, lengths, answers = inputs()
    question = (of_qformer, qformer_lengths) if family == "instructblip" else ()
    graph, state = loaded.network

    def run(state, pixels, question, ids, lengths, before):
        model = nnx.merge(graph, state)
        states = model.image_states(pixels)
        image = model.image_keys_values(states)
        encoded, there = model.read(model.prefix(image, *question), ids, lengths)
        logits = model.language_model.decode(before, encoded, there)
        fixed = model.answer_log_probabilities(encoded, there, ((17, 1), (30, 31, 1)))
        return states, model.query_states(image, *question), logits, fixed

    before = np.concatenate([np.zeros((3, 1), np.int32), answers[:, :-1]], axis=1)
    with jax.default_matmul_precision("highest"):
        states, queries, logits, fixed = jax.jit(run, compiler_options=QUICK_COMPILATION)(
            state, pixels, question, of_t5, lengths, before
        )
    expected = torch_outputs(network, family)
    errors = {
        "image": relative_error(states, expected.vision_outputs.last_hidden_state),
        "queries": relative_error(queries, expected.qformer_outputs.last_hidden_state[:, :QUERIES]),
        "logits": relative_error(logits, expected.logits),
    }
    assert max(errors.values()) < TOLERANCE
    # The answers are told apart by image and question, and each is as likely as its tokens.
    assert np.ptp(np.asarray(logits)[:, 0], axis=0).max() > 0.1
    first = torch.log_softmax(expected.logits[:, 0], dim=-1)
    for one, token in zip(fixed, (17, 30), strict=True):
        assert relative_error(one[:, 0], first[:, token]) < TOLERANCE
    assert [one.shape for one in fixed] == [(3, 2), (3, 3)]


def test_every_tensor_of_torchs_file_is_a_parameter(network, loaded):
    names = {name: shape for name, (_, shape) in models.torch_names(loaded.module()).items()}
    copies = [f"language_model.{stack}.embed_tokens.weight" for stack in ("encoder", "decoder")]
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items() if name not in copies}
    assert names == expected


def test_preprocessing(folder, loaded):
    """Pixel values of odd shapes, of gray, and of an alpha channel that is opaque."""
    official = transformers.AutoProcessor.from_pretrained(folder).image_processor
    rng = np.random.default_rng(4)
    colours = [
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in ((51, 70), (20, 9), (1, 3))
    ]
    gray = Image.fromarray(rng.integers(0, 256, (33, 47), dtype=np.uint8))
    alpha = colours[0].copy()
    alpha.putalpha(255)
    for image in [*colours, gray, alpha]:
        expected = official(image, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
        np.testing.assert_array_equal(loaded.processor.normalize(loaded.processor(image)), expected)
