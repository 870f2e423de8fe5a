"""LLaVA 1.5 against torch transformers: from published folders, through the loader, to states and logits.

Float32, relative to the largest expected value.
"""

import json

import jax
import numpy as np
import pytest
import torch
import transformers
from flax import nnx
from PIL import Image

from tests.expectations import raises
from tests.parity.torch_copy import QUICK_COMPILATION, from_torch, relative_error, to_torch
from tests.tiny_vision_language import PATCHES, SIZE, write_vision_language
from winobench.checkpoints import models, vision_language, weights
from winobench.data.processors import ImageProcessor, OnSquare
from winobench.models.llava import LlavaConfig, LlavaForConditionalGeneration

TOLERANCE = 1e-5
BEFORE = (2, 17, 301)
ANSWERS = ((17, 1), (30, 31, 1))
# Of llava-hf/llava-1.5-7b-hf.
PREPROCESSOR = {
    "crop_size": {"height": 336, "width": 336},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_processor_type": "CLIPImageProcessor",
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "processor_class": "LlavaProcessor",
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": 336},
}


@pytest.fixture(scope="module", autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp("llava"), "llava")


@pytest.fixture(scope="module")
def network(folder):
    return transformers.LlavaForConditionalGeneration.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def loaded(folder):
    return vision_language.load_vision_language(folder)


def inputs():
    """Pixels, and ids and lengths of questions."""
    rng = np.random.default_rng(0)
    pixels = rng.standard_normal((3, SIZE, SIZE, 3)).astype(np.float32)
    return pixels, rng.integers(5, 390, (3, 12)).astype(np.int32), np.array([2, 12, 7], np.int32)


def torch_outputs(network, row, answer):
    """Of one picture and question, without any padding: chosen states, projected states, an answer's logits."""
    pixels, ids, lengths = inputs()
    text = [*BEFORE, *[network.config.image_token_index] * PATCHES, *ids[row, : lengths[row]].tolist(), *answer[:-1]]
    pixels = to_torch(pixels[row : row + 1])
    states = network.model.vision_tower(pixels, output_hidden_states=True).hidden_states[-2][:, 1:]
    result = network(pixel_values=pixels, input_ids=torch.tensor([text]))
    return states, result.image_hidden_states[None], result.logits[0, -len(answer) :]


def test_states_logits_and_answers(network, loaded):
    """The vision tower, the projector and the language model, with questions of unlike lengths about shared images."""
    graph, state = loaded.network
    pixels, ids, lengths = inputs()

    def run(state, pixels, ids, lengths):
        model = nnx.merge(graph, state)
        states = model.image_states(pixels)
        read = (model.ask(model.encode_image(pixels, BEFORE)), ids, lengths)
        logits = model.language_model.logits(model.continue_from(*read, 0)[0])
        return states, model.prefix(states), logits, model.answer_log_probabilities(*read, ANSWERS)

    with jax.default_matmul_precision("highest"):
        states, projected, logits, answers = jax.jit(run, compiler_options=QUICK_COMPILATION)(
            state, pixels, ids, lengths
        )
    assert states.shape[1] == PATCHES == loaded.config.image_states
    for row in range(3):
        for number, answer in enumerate(ANSWERS):
            expected = torch_outputs(network, row, list(answer))
            found = (states[row : row + 1], projected[row : row + 1], logits[row])
            assert max(map(relative_error, found, (expected[0], expected[1], expected[2][0]))) < TOLERANCE
            likelihoods = torch.log_softmax(expected[2], dim=-1)[range(len(answer)), list(answer)]
            assert relative_error(answers[number][row], likelihoods) < TOLERANCE
    # Otherwise nothing would show that image and question are looked at.
    assert np.ptp(np.asarray(logits), axis=0).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "strategy"), [(-1, "full"), ([0, -2], "default"), ([3, -3, 1], "full")])
def test_other_states_of_the_tower(network, layers, strategy):
    config = transformers.LlavaConfig.from_dict(
        network.config.to_dict() | {"vision_feature_layer": layers, "vision_feature_select_strategy": strategy}
    )
    torch.manual_seed(1)
    other = transformers.LlavaForConditionalGeneration(config).eval()
    ours = from_torch(LlavaForConditionalGeneration, LlavaConfig.from_dict(config.to_diff_dict()), other)
    pixels, _, _ = inputs()
    with jax.default_matmul_precision("highest"):
        found = ours.prefix(ours.image_states(pixels))
    expected = torch.stack(list(other.get_image_features(to_torch(pixels)).pooler_output))
    assert found.shape[1] == ours.config.image_states == PATCHES + (strategy == "full")
    assert relative_error(found, expected) < TOLERANCE


def old_name(name):
    """As llava-hf's repositories have it."""
    name = name.removeprefix("model.")
    if name.startswith("lm_head."):
        return f"language_model.{name}"
    name = name.replace("vision_tower.", "vision_tower.vision_model.", 1) if name.startswith("vision_tower.") else name
    return name.replace("language_model.", "language_model.model.", 1) if name.startswith("language_model.") else name


def test_layouts_of_the_weights(network, loaded, folder, tmp_path):
    """Names of transformers 5, of its version before 4.52, and of what the installed one writes: one network."""
    tensors = weights.read_weights([str(path) for path in sorted(folder.glob("*.safetensors"))])
    assert tensors.keys() == network.state_dict().keys()
    shapes = sorted(shape for _, shape in models.torch_names(loaded.module()).values())
    assert shapes == sorted(tuple(tensor.shape) for tensor in network.state_dict().values())
    old = {old_name(name): tensor for name, tensor in tensors.items()}
    assert "vision_tower.vision_model.encoder.layers.0.mlp.fc1.bias" in old
    assert "language_model.model.layers.1.mlp.up_proj.weight" in old
    network.save_pretrained(tmp_path)
    saved = weights.read_weights([str(tmp_path / "model.safetensors")])
    digests = {
        vision_language.build_vision_language(LlavaForConditionalGeneration, loaded.config, each)[2]
        for each in (tensors, old, saved)
    }
    assert len(digests) == 1


def images():
    """Of odd shapes, gray, and with an alpha channel that is opaque."""
    rng = np.random.default_rng(4)
    colours = [
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8))
        for size in ((351, 470), (20, 9), (1, 3), (337, 335))
    ]
    gray = Image.fromarray(rng.integers(0, 256, (33, 47), dtype=np.uint8))
    alpha = colours[0].copy()
    alpha.putalpha(255)
    return [*colours, gray, alpha]


def test_preprocessing():
    """As published, cropped; and as LLaVA's own code does, on squares of the mean colour."""
    cropping = transformers.CLIPImageProcessorPil(**PREPROCESSOR)
    filling = transformers.LlavaImageProcessorPil(**PREPROCESSOR, do_pad=True)
    ours = ImageProcessor.from_config("clip", PREPROCESSOR)
    on_square = OnSquare(**vars(ours))
    assert ours.size == on_square.size == (336, 336)
    for image in images():
        for official, processor in ((cropping, ours), (filling, on_square)):
            expected = official(image.convert("RGB"), return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
            np.testing.assert_array_equal(processor.normalize(processor(image)), expected)
    assert ours != on_square


def test_config():
    """Of llava-hf/llava-1.5-7b-hf, as of 2023, which leaves out defaults; there and back."""
    text = {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "vocab_size": 32064}
    vision = {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "model_type": "clip_vision_model"}
    vision |= {"num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "vocab_size": 32000}
    values = {"architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100, "image_token_index": 32000}
    values |= {"model_type": "llava", "pad_token_id": 32001, "projector_hidden_act": "gelu", "vocab_size": 32064}
    values |= {"text_config": text, "vision_config": vision, "vision_feature_layer": -2}
    config = LlavaConfig.from_dict(values)
    assert (config.image_states, config.vision_layers) == (576, (23,))
    assert LlavaConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    faults = [
        ({"vision_config": {"model_type": "siglip_vision_model"}}, ("wrong-kind-of-model", "siglip_vision_model")),
        ({"text_config": {"model_type": "mistral"}}, ("wrong-kind-of-model", "mistral")),
        ({"vision_feature_layer": -26}, ("unsupported-option", "vision_feature_layer", "-26")),
        ({"vision_feature_select_strategy": "cls"}, ("unsupported-option", "'cls'")),
        ({"image_token_index": 32064}, ("unsupported-option", "image_token_index", "32064")),
        ({"architectures": ["LlavaLlamaForCausalLM"]}, ("unsupported-checkpoint", "LlavaLlamaForCausalLM")),
        ({"architectures": 2}, ("unsupported-checkpoint", "2")),
    ]
    for fault, message in faults:
        with raises(*message):
            LlavaConfig.from_dict(values | fault)
