"""Names of layers that a network decides about: in one word, in the original code, of several layers at once."""

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from flax import nnx

from tests.expectations import raises
from winobench import checkpoints
from winobench.checkpoints import lora_keys, lora_layers
from winobench.models import layers, lora
from winobench.models.base import linear

WIDTH = 4


class Attention(nnx.Module):
    def __init__(self, **kwargs):
        self.to_q, self.to_k, self.to_v = (linear(WIDTH, outputs, **kwargs) for outputs in (WIDTH, 2, 2))
        self.to_out = nnx.List([linear(WIDTH, WIDTH, **kwargs)])


class Block(nnx.Module):
    def __init__(self, **kwargs):
        self.attention = Attention(**kwargs)
        self.adaLN_modulation = nnx.List([layers.Identity(), linear(WIDTH, 2 * WIDTH, **kwargs)])


class Network(nnx.Module):
    """Layers that have the names of Z-Image's; keys and values are narrower than queries."""

    def __init__(self):
        kwargs = {"dtype": jnp.float32, "param_dtype": jnp.float32, "rngs": nnx.Rngs(0)}
        self.layers, self.noise_refiner = (nnx.List([Block(**kwargs)]) for _ in range(2))
        self.all_x_embedder = nnx.Dict({"2-1": linear(WIDTH, WIDTH, **kwargs)})
        self.norm_out = nnx.Dict({"linear": linear(WIDTH, 2 * WIDTH, **kwargs)})


def adapter(outputs, inputs=WIDTH, seed=0):
    generator = np.random.default_rng(seed)
    down, up = (generator.standard_normal(shape, np.float32) for shape in ((1, inputs), (outputs, 1)))
    return lora_layers.Adapter(down, up, 0.5)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("layers.0.attention.to_q", "layers.0.attention.to_q"),
        ("layers_0_attention_to_q", "layers.0.attention.to_q"),
        ("layers.0.attention.to.q", "layers.0.attention.to_q"),
        ("layers.0.attention.out", "layers.0.attention.to_out.0"),
        ("layers_0_adaLN_modulation_1", "layers.0.adaLN_modulation.1"),
        ("all_x_embedder_2-1", "all_x_embedder.2-1"),
        ("x_embedder", "all_x_embedder.2-1"),
        ("norm_out_linear", "norm_out.linear"),
        ("double_blocks_0_img_attn_proj", "double_blocks_0_img_attn_proj"),
    ],
)
def test_one_layer(name, layer):
    given = adapter(WIDTH)
    assert lora_layers.fitted(Network(), {name: given}) == {layer: given}


def test_layers_that_are_one_in_the_original_code():
    given = adapter(WIDTH + 2 + 2)
    result = lora_layers.fitted(Network(), {"layers_0_attention_qkv": given})
    rows = {"q": given.up[:4], "k": given.up[4:6], "v": given.up[6:]}
    assert result.keys() == {f"layers.0.attention.to_{letter}" for letter in rows}
    for letter, up in rows.items():
        part = result[f"layers.0.attention.to_{letter}"]
        np.testing.assert_array_equal(part.up, up)
        np.testing.assert_array_equal(part.down, given.down)
        assert part.alpha == given.alpha
    lora.check_fit(Network(), {name: part.factors for name, part in result.items()})


def test_the_last_norm_gives_its_shift_first_in_the_original_code():
    given = adapter(2 * WIDTH)
    found = lora_layers.fitted(Network(), {"final_layer.adaLN_modulation.1": given})
    np.testing.assert_array_equal(found["norm_out.linear"].up, np.roll(given.up, WIDTH, axis=0))


def test_what_does_not_go_together_is_one_sentence():
    with raises("lora-misfit", "layers.0.attention.qkv", "12", "layers.0.attention.to_k", "8"):
        lora_layers.fitted(Network(), {"layers.0.attention.qkv": adapter(12)})
    two = {"layers.0.attention.qkv": adapter(8), "layers_0_attention_to_v": adapter(2)}
    with raises("repeated-tensor", "layers_0_attention_to_v", "layers.0.attention.qkv"):
        lora_layers.fitted(Network(), two)


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        ("lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight", ("unet", "double_blocks_0_img_attn_qkv", "down")),
        ("lora_unet_joint_blocks_3_x_block_mlp_fc1.alpha", ("unet", "joint_blocks_3_x_block_mlp_fc1", "alpha")),
        ("lora_unet_all_x_embedder_2-1.lora_up.weight", ("unet", "all_x_embedder_2-1", "up")),
        ("base_model.model.layers.1.attention.to_q.lora_B.weight", ("unet", "layers.1.attention.to_q", "up")),
        ("transformer.layers.1.attention.q.lora_A.default.weight", ("transformer", "layers.1.attention.q", "down")),
        (
            "lora_te2_text_model_encoder_layers_0_mlp_fc1.alpha",
            ("text_encoder_2", "text_model.encoder.layers.0.mlp.fc1", "alpha"),
        ),
        ("lora_unet_time_embed_0.lora_down.weight", ("unet", "time_embedding.linear_1", "down")),
        ("lora_unet_double_blocks_0_img_attn_qkv.oft_diag", None),
        ("lora_te4_text_model_encoder_layers_0_mlp_fc1.alpha", None),
    ],
)
def test_names_of_tensors(key, parsed):
    assert lora_keys.parse(key) == parsed


class Pipeline:
    DENOISER, LARGE_ENCODERS, NETWORKS = "transformer", (), ("transformer",)

    def __init__(self):
        self.networks = {"transformer": Network()}
        self.networks["transformer"].lora_targets = {"all": ...}


def test_a_file_in_two_ways_of_naming_is_refused_only_for_the_same_layer(tmp_path):
    """Of ``unet`` and of ``transformer``, which mean the same network here."""
    values = {side: np.ones(shape, np.float32) for side, shape in (("down", (1, WIDTH)), ("up", (WIDTH, 1)))}
    first = {f"lora_unet_layers_0_attention_to_q.lora_{side}.weight": array for side, array in values.items()}
    other = {f"lora_transformer_layers_0_attention_to_out_0.lora_{side}.weight": a for side, a in values.items()}
    same = {f"transformer.layers.0.attention.to_q.lora.{side}.weight": array for side, array in values.items()}
    path = tmp_path / "a.safetensors"
    safetensors.numpy.save_file(first | other, path)
    pipeline = Pipeline()
    read = checkpoints.load_lora(pipeline, path, fuse=False)
    assert set(read.parts["transformer"]) == {"layers.0.attention.to_q", "layers.0.attention.to_out.0"}
    assert set(lora.adapters(pipeline.networks["transformer"])) == set(read.parts["transformer"])
    safetensors.numpy.save_file(first | same, path)
    with raises("repeated-tensor", path.name, "layers.0.attention.to_q", "transformer"):
        checkpoints.load_lora(Pipeline(), path)
