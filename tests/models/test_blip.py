"""BLIP without torch: published configs and sizes, and what the network promises beside its values."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import raises
from tests.models.test_networks import filled
from tests.parity import published_configs
from tests.parity.harness import call
from winobench import checkpoints
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.models.blip_config import BlipConfig, BlipTextConfig, BlipVisionConfig

# The first is in the form of transformers 4.26, which wrote all options, and the second in that of 4.27 to 4.x, with
# what differs from the defaults.
PUBLISHED_BASE, PUBLISHED_LARGE = published_configs.of("blip").values()
TEXT_SIZES = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 3}
VISION_SIZES = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TINY = BlipConfig(
    BlipTextConfig(vocab_size=20, encoder_hidden_size=8, max_position_embeddings=8, bos_token_id=18, **TEXT_SIZES),
    BlipVisionConfig(image_size=16, patch_size=8, **VISION_SIZES),
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


def test_encoders_of_two_widths():
    with raises("mismatched-parts", "768", "64"):
        BlipConfig(vision_config=BlipVisionConfig(hidden_size=64, num_attention_heads=2))


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
