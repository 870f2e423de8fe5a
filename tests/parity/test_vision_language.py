"""BLIP-2, InstructBLIP and LLaVA against torch transformers: from published folders, through the loader, to logits.

Float32, relative to the largest expected value. Measured: images 3e-7, queries 1.4e-6, logits 2.1e-6; preprocessing 0.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from flax import nnx

from tests.parity.harness import QUICK_COMPILATION, check_close, to_torch
from tests.tiny_vision_language import PATCHES, QUERIES, SIZE, VOCABULARY, write_vision_language
from winobench.checkpoints import vision_language

pytestmark = pytest.mark.usefixtures("no_gradients")
TOLERANCE = 1e-5
FAMILIES = {
    "instructblip": transformers.InstructBlipForConditionalGeneration,
    "llava": transformers.LlavaForConditionalGeneration,
    "vicuna": transformers.InstructBlipForConditionalGeneration,
    "blip-2": transformers.Blip2ForConditionalGeneration,
    "opt": transformers.Blip2ForConditionalGeneration,
}
DECODERS = ("llava", "vicuna", "opt")
BEFORE = (2, 17, 301)  # LLaVA reads tokens before an image
ANSWERS = ((17, 1), (30, 31, 1))


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
    """Pixels; ids and lengths of questions in tokens of both tokenizers."""
    rng = np.random.default_rng(0)
    pixels = rng.standard_normal((3, SIZE, SIZE, 3)).astype(np.float32)
    of_qformer = rng.integers(5, len(VOCABULARY), (3, 9)).astype(np.int32)
    of_language = rng.integers(5, 390, (3, 12)).astype(np.int32)
    return pixels, (of_qformer, np.array([9, 1, 4], np.int32)), of_language, np.array([2, 12, 7], np.int32)


def torch_outputs(network, family, row, answer):
    """Of one image and question, without padding: image states, what is made of them, the logits of an answer."""
    pixels, (of_qformer, qformer_lengths), of_language, lengths = inputs()
    pixels, question = to_torch(pixels[row : row + 1]), of_language[row, : lengths[row]].tolist()
    token = network.config.image_token_index
    if family == "llava":
        ids = torch.tensor([[*BEFORE, *[token] * PATCHES, *question, *answer[:-1]]])
        states = network.model.vision_tower(pixels, output_hidden_states=True).hidden_states[-2][:, 1:]
        result = network(pixel_values=pixels, input_ids=ids)
        return states, result.image_hidden_states[None], result.logits[0, -len(answer) :]
    ids, options = [token] * QUERIES + question, {}
    if family not in ("blip-2", "opt"):
        options["qformer_input_ids"] = torch.from_numpy(of_qformer[row : row + 1, : qformer_lengths[row]]).long()
    if family in DECODERS:
        ids += answer[:-1]
    else:
        options["decoder_input_ids"] = torch.tensor([[0, *answer[:-1]]])
    result = network(pixels, input_ids=torch.tensor([ids]), **options)
    queries = result.qformer_outputs.last_hidden_state[:, :QUERIES]
    return result.vision_outputs.last_hidden_state, queries, result.logits[0, -len(answer) :]


def our_outputs(loaded, family):
    """The same of all images and questions at once; the logits of the first token alone, and log-probabilities."""
    pixels, question, ids, lengths = inputs()
    graph, state = loaded.network

    def run(state, pixels, question, ids, lengths):
        model = nnx.merge(graph, state)
        states = model.image_states(pixels)
        if family == "llava":
            made, read = model.prefix(states), model.ask(model.encode_image(pixels, BEFORE))
        else:
            image = model.image_keys_values(states)
            question = question if model.reads_text else ()
            made, read = model.query_states(image, *question), model.prefix(image, *question)
        read = (read, ids, lengths)
        if family in DECODERS:
            logits = model.language_model.logits(model.continue_from(*read, 0)[0])
        else:
            logits = model.language_model.decode(jnp.zeros((3, 1), jnp.int32), *model.encode(*read))[:, 0]
        return states, made, logits, model.answer_log_probabilities(*read, ANSWERS)

    with jax.default_matmul_precision("highest"):
        return jax.jit(run, compiler_options=QUICK_COMPILATION)(state, pixels, question, ids, lengths)


@pytest.mark.quick(1)
def test_states_logits_and_answers(network, loaded, family):
    """The vision tower, what is between, and the language model, with texts of unlike lengths."""
    states, made, logits, answers = our_outputs(loaded, family)
    assert states.shape[1] == (PATCHES if family == "llava" else PATCHES + 1)
    for row in range(3):
        for number, answer in enumerate(ANSWERS):
            expected = torch_outputs(network, family, row, list(answer))
            likelihoods = torch.log_softmax(expected[2], dim=-1)[range(len(answer)), list(answer)]
            ours = [states[row : row + 1], made[row : row + 1], logits[row], answers[number][row]]
            check_close(ours, [*expected[:2], expected[2][0], likelihoods], TOLERANCE)
    # Otherwise nothing would show that image and question are looked at.
    assert np.ptp(np.asarray(logits), axis=0).max() > 0.1
