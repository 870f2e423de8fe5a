"""The decoder against torch transformers, for every option; errors and tolerances as in test_unet."""

import jax
import numpy as np
import pytest
import torch
import transformers
from flax import nnx

from tests.parity.harness import NETWORK_TOLERANCE, QUICK_COMPILATION, check_close, file_tensors, randomize
from tests.parity.test_llava import old_name
from winobench import parallel
from winobench.checkpoints import language_models, models, sources, weights
from winobench.models.decoder_config import DecoderConfig, inverse_wavelengths

SMALL = {"vocab_size": 52, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
# The head's four pairs have wavelengths of 6, 63, 628 and 6283 tokens: fast, between, and slow twice.
LLAMA3_SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3_SCALING |= {"original_max_position_embeddings": 100}
CONFIGS = {
    "llama": {**SMALL, "num_key_value_heads": 4},
    "one head of keys": {**SMALL, "num_key_value_heads": 1},
    "llama 3": {
        **SMALL,
        "max_position_embeddings": 256,
        "rope_parameters": {**LLAMA3_SCALING, "rope_theta": 10000.0},
        "rms_norm_eps": 1e-5,
    },
    "linear scaling": {**SMALL, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}},
    "dynamic scaling": {**SMALL, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}},
    "other options": {**SMALL, "attention_bias": True, "mlp_bias": True, "head_dim": 12, "rms_norm_eps": 1e-1},
    "qwen2": {**SMALL, "tie_word_embeddings": True, "rope_theta": 1e6, "sliding_window": 4},
    "qwen3": {**SMALL, "head_dim": 12, "tie_word_embeddings": True},
    "qwen3 biases": {**SMALL, "head_dim": 8, "attention_bias": True, "sliding_window": 4, "max_window_layers": 1},
}
IDS = np.random.default_rng(0).integers(0, 52, (2, 11)).astype(np.int32)
ONE_DEVICE = parallel.make_mesh([jax.devices()[0]])


def torch_network(name):
    family = name.split()[0].capitalize() if name.startswith("qwen") else "Llama"
    config = getattr(transformers, f"{family}Config")(**CONFIGS[name])
    return with_norms_about_one(getattr(transformers, f"{family}ForCausalLM")(config))


def with_norms_about_one(network):
    randomize(network)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "norm" in name and "bias" not in name:
                parameter.add_(1.0)
    return network


def logits(network, ids, positions):
    graph, state = network

    def run(state, ids, positions):
        model = nnx.merge(graph, state)
        return model.logits(model(ids, positions)[0])

    return jax.jit(run, compiler_options=QUICK_COMPILATION)(state, ids, positions)


def positions_of(ids):
    return np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)


@torch.inference_mode()
def torch_logits(network, ids):
    return network(torch.from_numpy(ids).long()).logits


@pytest.mark.parametrize("name", CONFIGS)
def test_network(name):
    network = torch_network(name)
    config = DecoderConfig.from_dict(network.config.to_dict())
    assert DecoderConfig.from_dict(config.to_dict()) == config
    ours, _ = language_models.build_decoder(config, file_tensors(network), mesh=ONE_DEVICE)
    np.testing.assert_allclose(inverse_wavelengths(config), network.model.rotary_emb.inv_freq, rtol=3e-7)
    result = logits(ours, IDS, positions_of(IDS))
    assert result.dtype == np.float32
    check_close(result, torch_logits(network, IDS), NETWORK_TOLERANCE)


@pytest.fixture(scope="module")
def llava():
    vision = {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 8, "patch_size": 4, "projection_dim": 8}
    config = transformers.LlavaConfig(
        vision_config=vision, text_config={"model_type": "llama", **CONFIGS["llama"]}, image_token_id=51
    )
    return with_norms_about_one(transformers.LlavaForConditionalGeneration(config))


@pytest.mark.parametrize("layout", ["saved", "old"])
def test_language_side_of_llava(llava, layout, tmp_path):
    """``saved`` is what the installed version of transformers writes."""
    llava.save_pretrained(tmp_path)
    config = models.read_config(language_models.Decoder, sources.resolve(tmp_path))
    tensors = weights.read_weights([str(tmp_path / "model.safetensors")])
    if layout == "old":
        tensors = {old_name(name): tensor for name, tensor in file_tensors(llava).items()}
        assert "language_model.model.layers.1.mlp.up_proj.weight" in tensors
    ours, _ = language_models.build_decoder(config, tensors, mesh=ONE_DEVICE)
    check_close(logits(ours, IDS % 51, positions_of(IDS)), torch_logits(llava, IDS % 51), NETWORK_TOLERANCE)
