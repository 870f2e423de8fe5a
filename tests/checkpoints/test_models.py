"""Loading and saving of networks: fits, misfits, and their messages."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.expectations import raises
from winobench import checkpoints
from winobench.checkpoints import models, weights
from winobench.models import functional
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.clip import CLIPTextConfig, CLIPTextModel

SIZES = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG = CLIPTextConfig(vocab_size=20, max_position_embeddings=7, eos_token_id=19, **SIZES)
QUERY = "text_model.encoder.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def network():
    return CLIPTextModel(CONFIG, rngs=nnx.Rngs(0))


@pytest.fixture
def folder(network, tmp_path):
    checkpoints.save_model(network, tmp_path)
    return tmp_path


def tensors_of(folder):
    return {name: tensor.read() for name, tensor in weights.read_weights([str(folder / "model.safetensors")]).items()}


def rewrite(folder, change):
    tensors = tensors_of(folder)
    change(tensors)
    weights.write_weights(folder / "model.safetensors", tensors)


def expect(folder, *words, **options):
    with raises(*words):
        CLIPTextModel.from_pretrained(folder, **options)


def same_values(first, second):
    first, second = (nnx.to_flat_state(nnx.state(module)) for module in (first, second))
    return first.paths == second.paths and all(
        np.array_equal(a[...], b[...]) for a, b in zip(first.leaves, second.leaves, strict=True)
    )


def test_another_dtype_is_that_of_a_network_loaded_in_it(network, folder):
    rounded, loaded = models.in_dtype(network, "bfloat16"), CLIPTextModel.from_pretrained(folder, dtype="bfloat16")
    assert same_values(rounded, loaded)
    assert functional.split(rounded)[0] == functional.split(loaded)[0]
    shapes = models.in_dtype(models.abstract_model(CLIPTextModel, CONFIG), "bfloat16")
    assert functional.split(shapes)[0] == functional.split(loaded)[0]
    with raises("unsupported-option", "Linear"):
        models.in_dtype(nnx.Linear(1, 1, rngs=nnx.Rngs(0)), "bfloat16")


def test_names_and_shapes_are_torchs(network):
    names = checkpoints.torch_names(network)
    assert names[QUERY] == (("text_model", "encoder", "layers", 0, "self_attn", "q_proj", "kernel"), (8, 8))
    assert names["text_model.encoder.layers.0.mlp.fc1.weight"][1] == (12, 8)
    assert names["text_model.embeddings.token_embedding.weight"][1] == (20, 8)
    assert names["text_model.final_layer_norm.weight"][0][-1] == "scale"
    vae = models.abstract_model(AutoencoderKL, AutoencoderKLConfig(block_out_channels=(32,)))
    assert checkpoints.torch_names(vae)["encoder.conv_in.weight"][1] == (32, 3, 3, 3)


def test_abstract_model_holds_no_values():
    abstract = models.abstract_model(CLIPTextModel, CONFIG, dtype=jnp.bfloat16)
    leaves = jax.tree.leaves(nnx.state(abstract))
    assert leaves
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) and leaf.dtype == jnp.bfloat16 for leaf in leaves)


def test_round_trip_is_exact(network, folder):
    again = CLIPTextModel.from_pretrained(folder)
    assert same_values(network, again)
    assert again.config == CONFIG
    assert checkpoints.weights_sha256(again) == checkpoints.weights_sha256(network)


@pytest.mark.parametrize(
    ("stored", "loaded"),
    [("float32", "bfloat16"), ("float16", "float32"), ("bfloat16", "float16"), ("float16", "float16")],
)
def test_dtypes_of_file_and_network_are_independent(network, tmp_path, stored, loaded):
    checkpoints.save_model(network, tmp_path, dtype=stored)
    assert tensors_of(tmp_path)[QUERY].dtype == stored
    again = CLIPTextModel.from_pretrained(tmp_path, dtype=loaded)
    assert again.dtype == loaded
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(again))} == {jnp.dtype(loaded)}
    expected = np.asarray(network.text_model.embeddings.token_embedding.embedding[...]).astype(stored).astype(loaded)
    np.testing.assert_array_equal(again.text_model.embeddings.token_embedding.embedding[...], expected)


def test_hash_changes_with_any_value_and_with_the_dtype(network, folder):
    reference = checkpoints.weights_sha256(network)
    assert checkpoints.weights_sha256(CLIPTextModel.from_pretrained(folder, dtype="bfloat16")) != reference

    def nudge(tensors):
        tensors["text_model.final_layer_norm.bias"][3] += 1e-7

    rewrite(folder, nudge)
    assert checkpoints.weights_sha256(CLIPTextModel.from_pretrained(folder)) != reference


def test_every_difference_is_listed_in_one_sentence(folder):
    def change(tensors):
        del tensors[QUERY]
        tensors["surplus.weight"] = np.zeros(3, np.float32)
        tensors["text_model.final_layer_norm.bias"] = np.zeros(9, np.float32)

    rewrite(folder, change)
    with raises(
        "mismatched-parts",
        f"{folder}/model.safetensors",
        "CLIPTextModel",
        f"1 missing ({QUERY})",
        "1 unexpected (surplus.weight)",
        "1 of another shape (text_model.final_layer_norm.bias is [9] instead of [8])",
    ):
        CLIPTextModel.from_pretrained(folder)


def test_known_buffers_and_unused_towers_are_left_out(network, folder):
    def add(tensors):
        tensors["text_model.embeddings.position_ids"] = np.arange(7)[None]
        tensors["vision_model.encoder.layers.0.mlp.fc1.weight"] = np.zeros((3, 3), np.float32)
        tensors["logit_scale"] = np.float32(4.6)
        tensors["text_projection.weight"] = np.zeros((8, 8), np.float32)

    rewrite(folder, add)
    assert same_values(CLIPTextModel.from_pretrained(folder), network)


def test_the_text_tower_of_a_whole_clip(network, folder):
    config = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "clip", "projection_dim": 8, "text_config": config, "vision_config": {"hidden_size": 3}}
    (folder / "config.json").write_text(json.dumps(whole))
    again = CLIPTextModel.from_pretrained(folder)
    assert again.config == CONFIG
    assert same_values(again, network)


def test_names_without_the_prefix(network, folder):
    rewrite(folder, lambda t: [t.update({name.removeprefix("text_model."): t.pop(name)}) for name in list(t)])
    assert same_values(CLIPTextModel.from_pretrained(folder), network)


def test_two_names_of_one_parameter_are_an_error(folder):
    name = "text_model.final_layer_norm.bias"
    rewrite(folder, lambda tensors: tensors.update({"final_layer_norm.bias": tensors[name]}))
    expect(folder, "repeated-tensor")


def test_a_dense_layer_may_be_stored_as_a_1x1_convolution_but_not_in_integers(network, folder):
    rewrite(folder, lambda tensors: tensors.update({QUERY: tensors[QUERY][:, :, None, None]}))
    assert same_values(CLIPTextModel.from_pretrained(folder), network)
    rewrite(folder, lambda tensors: tensors.update({QUERY: tensors[QUERY].astype(np.int32)}))
    expect(folder, "wrong-dtype", "int32")
    rewrite(folder, lambda tensors: tensors.update({QUERY: np.repeat(tensors[QUERY], 2, axis=-1)}))
    expect(folder, "mismatched-parts", "q_proj.weight", "8", "1", "2")


def test_config_problems_name_the_file(folder):
    config = json.loads((folder / "config.json").read_text())
    for changes, words in (
        ({"hidden_act": "relu"}, ("unsupported-option", "hidden_act='relu'")),
        ({"quantization_config": {"quant_method": "torchao"}}, ("unsupported-checkpoint", "'torchao'")),
    ):
        (folder / "config.json").write_text(json.dumps(config | changes))
        expect(folder, *words, "config.json")
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": None}))
    assert CLIPTextModel.from_pretrained(folder).config == CONFIG
    (folder / "config.json").unlink()
    expect(folder, "no-such-file", "config.json", "CLIPTextModel")


@pytest.mark.parametrize("dtype", ["float99", "float64", None])
def test_unknown_dtypes(folder, dtype):
    expect(folder, "unsupported-dtype", "float32", "bfloat16", dtype=dtype)


@pytest.mark.parametrize(("value", "dtype"), [(1e5, "float16"), (np.nan, "float32"), (np.inf, "bfloat16")])
def test_what_does_not_fit_the_dtype_is_not_saved(network, tmp_path, value, dtype):
    changed = nnx.clone(network)
    bias = changed.text_model.final_layer_norm.bias
    bias[...] = bias[...].at[0].set(value)
    with raises("not-finite", "final_layer_norm.bias", dtype):
        checkpoints.save_model(changed, tmp_path / "new", dtype=dtype)
    assert not (tmp_path / "new").exists()
