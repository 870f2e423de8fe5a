"""Sizes of published language models: by their published numbers of parameters."""

import jax
import pytest
from flax import nnx

from winobench.base import registry
from winobench.checkpoints import encoder_layouts, language_models
from winobench.models import released
from winobench.models.decoder_config import DecoderConfig

# Millions, from the models' cards and index files; a tied embedding counts once, LLaVA without its eyes.
MILLIONS = {
    "flan-t5-small": 77.0,
    "flan-t5-base": 247.6,
    "flan-t5-large": 783.2,
    "flan-t5-xl": 2849.8,
    "flan-t5-xxl": 11135.3,
    "llama2-7b-chat": 6738.4,
    "llama2-13b": 13015.9,
    "llama3.1-8b": 8030.3,
    "llama3.2-1b": 1235.8,
    "qwen3-0.6b": 596.0,
    "qwen3-1.7b": 1720.6,
    "qwen3-4b": 4022.5,
    "qwen3-8b": 8190.7,
    "qwen3-14b": 14768.3,
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", sorted(MILLIONS, key=MILLIONS.get))
def test_numbers_of_parameters(name):
    config = released.language_model(name)
    make = language_models.abstract_decoder if isinstance(config, DecoderConfig) else encoder_layouts.abstract_t5
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(make(config))))
    assert count / 1e6 == pytest.approx(MILLIONS[name], abs=0.1)


def test_every_name_has_its_size():
    assert all(released.language_model(name) for name in registry.LANGUAGE_MODELS)
    assert released.language_model("sd15") is None
