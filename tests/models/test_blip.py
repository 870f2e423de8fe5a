"""BLIP without torch: published configs and sizes, and what the network promises beside its values."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import raises
from tests.models.test_networks import filled
from tests.parity.torch_copy import call
from winobench import checkpoints
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.models.blip_config import BlipConfig, BlipTextConfig, BlipVisionConfig

# What transformers 4.26 wrote into each part, in whose form the hub's repositories still are.
_OF_ITS_TIME = {
    "_name_or_path": "",
    "add_cross_attention": False,
    "architectures": None,
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": None,
    "decoder_start_token_id": None,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "exponential_decay_length_penalty": None,
    "finetuning_task": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "hidden_act": "gelu",
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "initializer_factor": 1.0,
    "initializer_range": 0.02,
    "is_encoder_decoder": False,
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "length_penalty": 1.0,
    "max_length": 20,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "output_attentions": False,
    "output_hidden_states": False,
    "output_scores": False,
    "prefix": None,
    "problem_type": None,
    "pruned_heads": {},
    "remove_invalid_values": False,
    "repetition_penalty": 1.0,
    "return_dict": True,
    "return_dict_in_generate": False,
    "suppress_tokens": None,
    "task_specific_params": None,
    "temperature": 1.0,
    "tf_legacy_loss": False,
    "tie_encoder_decoder": False,
    "tie_word_embeddings": True,
    "tokenizer_class": None,
    "top_k": 50,
    "top_p": 1.0,
    "torch_dtype": None,
    "torchscript": False,
    "transformers_version": "4.26.0.dev0",
    "typical_p": 1.0,
    "use_bfloat16": False,
}
PUBLISHED_BASE = {
    "_commit_hash": None,
    "architectures": ["BlipForImageTextRetrieval"],
    "image_text_hidden_size": 256,
    "initializer_factor": 1.0,
    "logit_scale_init_value": 2.6592,
    "model_type": "blip",
    "projection_dim": 512,
    "text_config": {
        **_OF_ITS_TIME,
        "attention_probs_dropout_prob": 0.0,
        "bos_token_id": 30522,
        "eos_token_id": 2,
        "hidden_dropout_prob": 0.0,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "is_decoder": True,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "model_type": "blip_text_model",
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "pad_token_id": 0,
        "projection_dim": 768,
        "sep_token_id": 102,
        "use_cache": True,
        "vocab_size": 30524,
    },
    "torch_dtype": "float32",
    "transformers_version": None,
    "vision_config": {
        **_OF_ITS_TIME,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dropout": 0.0,
        "eos_token_id": None,
        "hidden_size": 768,
        "image_size": 384,
        "intermediate_size": 3072,
        "is_decoder": False,
        "layer_norm_eps": 1e-05,
        "model_type": "blip_vision_model",
        "num_attention_heads": 12,
        "num_channels": 3,
        "num_hidden_layers": 12,
        "pad_token_id": None,
        "patch_size": 16,
        "projection_dim": 512,
        "sep_token_id": None,
    },
}
# The form of transformers 4.27 to 4.x: only what differs from the defaults.
PUBLISHED_LARGE = {
    "architectures": ["BlipForImageTextRetrieval"],
    "image_text_hidden_size": 256,
    "initializer_factor": 1.0,
    "initializer_range": 0.02,
    "label_smoothing": 0.0,
    "logit_scale_init_value": 2.6592,
    "model_type": "blip",
    "projection_dim": 512,
    "text_config": {
        "encoder_hidden_size": 1024,
        "initializer_factor": 1.0,
        "model_type": "blip_text_model",
        "num_attention_heads": 12,
    },
    "torch_dtype": "float32",
    "transformers_version": "4.36.2",
    "vision_config": {
        "dropout": 0.0,
        "hidden_size": 1024,
        "initializer_factor": 1.0,
        "initializer_range": 0.02,
        "intermediate_size": 4096,
        "model_type": "blip_vision_model",
        "num_attention_heads": 16,
        "num_channels": 3,
        "num_hidden_layers": 24,
    },
}
TINY = BlipConfig(
    BlipTextConfig(
        vocab_size=20,
        hidden_size=12,
        encoder_hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=3,
        max_position_embeddings=8,
        bos_token_id=18,
    ),
    BlipVisionConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    ),
    image_text_hidden_size=4,
)


def tiny(**kwargs):
    return filled(BlipForImageTextRetrieval, TINY, **kwargs)


@pytest.mark.parametrize(
    ("published", "parameters", "file_size"),
    [(PUBLISHED_BASE, 223_744_258, 895e6), (PUBLISHED_LARGE, 446_128_642, 1.78e9)],
)
def test_published_sizes(published, parameters, file_size):
    """The number of parameters is that of the hub's float32 files, whose sizes it shows in three digits."""
    config = BlipConfig.from_dict(published)
    network = checkpoints.abstract_model(BlipForImageTextRetrieval, config)
    count = sum(math.prod(shape) for _, shape in checkpoints.torch_names(network).values())
    assert count == parameters
    assert 4 * count == pytest.approx(file_size, rel=0.005)
    assert config.text_config.num_attention_heads == 12
    assert config.text_config.encoder_hidden_size == config.vision_config.hidden_size
    assert config.vision_config.num_positions == 577


def test_config_round_trip():
    for config in (TINY, BlipConfig.from_dict(PUBLISHED_LARGE)):
        assert BlipConfig.from_dict(config.to_dict()) == config
        assert hash(config) == hash(BlipConfig.from_dict(config.to_dict()))


def test_defaults_are_those_of_transformers():
    """Files that transformers writes leave out what equals its defaults, the 8 heads among them."""
    config = BlipConfig.from_dict({"model_type": "blip"})
    assert config == BlipConfig()
    assert config.text_config.num_attention_heads == 8
    assert BlipConfig.from_dict({"text_config": None, "vision_config": {"hidden_size": 96}}).text_config == (
        dataclasses.replace(BlipTextConfig(), encoder_hidden_size=96)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nonsense": 1}, ("unknown-option", "nonsense=1")),
        ({"model_type": "clip"}, ("wrong-kind-of-model", "model_type='clip'", "'blip'")),
        ({"architectures": ["BlipForConditionalGeneration"]}, ("no-task-head", "BlipForConditionalGeneration")),
        ({"image_text_hidden_size": 0}, ("unsupported-option", "image_text_hidden_size=0")),
        ({"text_config": [1]}, ("not-an-object", "BlipTextConfig", "list")),
        ({"text_config": {"is_decoder": False}}, ("unsupported-option", "is_decoder=False", "True")),
        ({"text_config": {"hidden_act": "relu"}}, ("unsupported-option", "hidden_act='relu'", "'gelu'")),
        ({"text_config": {"model_type": "bert"}}, ("wrong-kind-of-model", "model_type='bert'", "'blip_text_model'")),
        (
            {"text_config": {"num_attention_heads": 7}},
            ("unsupported-option", "num_attention_heads=7", "hidden_size=768"),
        ),
        ({"text_config": {"bos_token_id": [1]}}, ("unsupported-option", "id")),
        ({"vision_config": {"image_size": 100}}, ("unsupported-option", "image_size=100", "patch_size=16")),
        ({"vision_config": {"num_channels": 4}}, ("unsupported-option", "num_channels=4", "3")),
        ({"vision_config": {"layer_norm_eps": 0}}, ("unsupported-option", "layer_norm_eps=0")),
    ],
)
def test_unsupported_configs(change, message):
    with raises(*message):
        BlipConfig.from_dict({"model_type": "blip", **change})


def test_encoders_of_two_widths():
    with raises("mismatched-parts", "768", "64"):
        BlipConfig(vision_config=BlipVisionConfig(hidden_size=64, num_attention_heads=2))


def test_padding_is_not_attended_to():
    network = tiny()
    ids = np.array([[1, 2, 3, 0, 0], [1, 2, 3, 17, 5], [1, 2, 3, 17, 5]], np.int32)
    lengths = np.array([3, 3, 5], np.int32)
    image = call(network, np.ones((3, 5, 8), np.float32), method="image_keys_values")
    for arguments in ((ids, lengths), (ids, lengths, image)):
        states = call(network, *arguments, method="text_states")
        np.testing.assert_array_equal(states[0, :3], states[1, :3])
        assert np.abs(states[1, :3] - states[2, :3]).max() > 1e-3
        first_image = [jax.tree.map(lambda array: array[:1], image) for image in arguments[2:]]
        short = call(network, ids[:1, :3], lengths[:1], *first_image, method="text_states")
        # Sums of more terms, of which the further ones are 0.
        np.testing.assert_allclose(short, states[:1, :3], rtol=1e-5, atol=1e-6)


def test_features_are_unit_vectors():
    network = tiny()
    states = call(network, np.ones((2, 16, 16, 3), np.float32), method="image_states")
    features = call(network, states, method="image_features")
    np.testing.assert_allclose(np.linalg.norm(features, axis=-1), 1, rtol=1e-6)


@pytest.mark.slow
def test_dtypes():
    """Half precision ends where the heads begin: they tell apart what bfloat16 holds for equal."""
    network = tiny(dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    ids, lengths = np.array([[1, 2, 3]], np.int32), np.array([3], np.int32)
    states = call(network, np.ones((1, 16, 16, 3), np.float32), method="image_states")
    image = call(network, states, method="image_keys_values")
    assert states.dtype == jnp.bfloat16
    assert all(array.dtype == jnp.bfloat16 for pair in image for array in pair)
    results = {
        "logits": call(network, ids, lengths, image, method="match_logits"),
        "image": call(network, states, method="image_features"),
        "text": call(network, ids, lengths, method="text_features"),
    }
    for name, array in results.items():
        assert array.dtype == jnp.float32, name
        assert np.any(np.asarray(array) != np.asarray(array.astype(jnp.bfloat16), np.float32)), name


def test_wrong_sizes():
    network = tiny()
    with pytest.raises(ValueError, match=r"\[8, 16, 3\]"):
        call(network, np.zeros((1, 8, 16, 3), np.float32), method="image_states")
    with pytest.raises(ValueError, match=r"\b9\b.*\b8\b"):
        call(network, np.zeros((1, 9), np.int32), np.ones(1, np.int32), method="text_states")
