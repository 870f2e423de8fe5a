"""LLaVA 1.5 against torch transformers: what others do not have (see `test_vision_language`)."""

import json

import jax
import numpy as np
import pytest
import torch
import transformers

from tests.expectations import raises
from tests.parity import published_configs
from tests.parity.harness import from_torch, odd_images, relative_error, to_torch
from tests.tiny_vision_language import PATCHES, SIZE, write_vision_language
from winobench.checkpoints import vision_language, weights
from winobench.data.processors import ImageProcessor, OnSquare
from winobench.models.llava import LlavaConfig, LlavaForConditionalGeneration

pytestmark = pytest.mark.usefixtures("no_gradients")
TOLERANCE = 1e-5
PREPROCESSOR = published_configs.ALL["llava images"]  # of llava-hf/llava-1.5-7b-hf


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp("llava"), "llava")


@pytest.fixture(scope="module")
def network(folder):
    return transformers.LlavaForConditionalGeneration.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def loaded(folder):
    return vision_language.load_vision_language(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "strategy"), [(-1, "full"), ([3, -3, 1], "default")])
def test_other_states_of_the_tower(network, layers, strategy):
    config = transformers.LlavaConfig.from_dict(
        network.config.to_dict() | {"vision_feature_layer": layers, "vision_feature_select_strategy": strategy}
    )
    torch.manual_seed(1)
    other = transformers.LlavaForConditionalGeneration(config).eval()
    ours = from_torch(LlavaForConditionalGeneration, LlavaConfig.from_dict(config.to_diff_dict()), other)
    pixels = np.random.default_rng(0).standard_normal((3, SIZE, SIZE, 3)).astype(np.float32)
    with jax.default_matmul_precision("highest"):
        result = ours.prefix(ours.image_states(pixels))
    expected = torch.stack(list(other.get_image_features(to_torch(pixels)).pooler_output))
    assert result.shape[1] == ours.config.image_states == PATCHES + (strategy == "full")
    assert relative_error(result, expected) < TOLERANCE


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
    old = {old_name(name): tensor for name, tensor in tensors.items()}
    assert "vision_tower.vision_model.encoder.layers.0.mlp.fc1.bias" in old
    assert "language_model.model.layers.1.mlp.up_proj.weight" in old
    network.save_pretrained(tmp_path)
    saved = weights.read_weights([str(tmp_path / "model.safetensors")])
    digests = {
        vision_language.build_vision_language(LlavaForConditionalGeneration, loaded.config, layout)[2]
        for layout in (tensors, old, saved)
    }
    assert len(digests) == 1


def test_preprocessing():
    """As published, cropped; and as LLaVA's own code does, on squares of the mean colour."""
    cropping = transformers.CLIPImageProcessorPil(**PREPROCESSOR)
    filling = transformers.LlavaImageProcessorPil(**PREPROCESSOR, do_pad=True)
    ours = ImageProcessor.from_config("clip", PREPROCESSOR)
    on_square = OnSquare(**vars(ours))
    assert ours.size == on_square.size == (336, 336)
    for image in odd_images(((351, 470), (20, 9), (1, 3), (337, 335))):
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
