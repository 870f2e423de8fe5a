"""Sizes of the published CLIP models, and what the networks promise beside their values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.expectations import names
from tests.parity import published_configs
from tests.parity.harness import QUICK_COMPILATION, abstract
from winobench import checkpoints
from winobench.checkpoints import clip_layouts
from winobench.models.clip import CLIPTextConfig
from winobench.models.clip_model import CLIPConfig, CLIPModel
from winobench.models.clip_resnet import CLIPResNetConfig
from winobench.models.clip_vision import CLIPVisionConfig

# What OpenAI's minimal files leave out is what the defaults say.
VIT_B_32, VIT_L_14, VIT_H_14 = published_configs.of("clip").values()


def open_clip(embed_dim, vision, width, heads, layers=12, **more):
    text = {"context_length": 77, "vocab_size": 49408, "width": width, "heads": heads, "layers": layers}
    return {"embed_dim": embed_dim, "vision_cfg": vision, "text_cfg": text, **more}


def resnet(layers, width, image_size):
    return {"image_size": image_size, "layers": layers, "width": width, "patch_size": None}


# model_cfg of open_clip_config.json as published.
OPEN_CLIP = {
    "RN50": open_clip(1024, resnet([3, 4, 6, 3], 64, 224), 512, 8, quick_gelu=True),
    "RN50x64": open_clip(1024, resnet([3, 15, 36, 10], 128, 448), 1024, 16, quick_gelu=True),
    "ViT-B-32": open_clip(512, {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32}, 512, 8),
    "ViT-L-14": open_clip(768, {"image_size": 224, "layers": 24, "width": 1024, "patch_size": 14}, 768, 12),
    "ViT-H-14": open_clip(
        1024, {"image_size": 224, "layers": 32, "width": 1280, "head_width": 80, "patch_size": 14}, 1024, 16, 24
    ),
}
# Parameters of the whole, of the vision tower and of the text tower in millions, as OpenCLIP's model_profile.csv has
# them; running statistics are no parameters there, and the temperature belongs to neither tower.
MILLIONS = {
    "RN50": (102.01, 38.32, 63.69),
    "RN50x64": (623.26, 420.38, 202.88),
    "ViT-B-32": (151.28, 87.85, 63.43),
    "ViT-L-14": (427.62, 303.97, 123.65),
    "ViT-H-14": (986.11, 632.08, 354.03),
}


def count(config):
    names = checkpoints.torch_names(checkpoints.abstract_model(CLIPModel, config))
    sizes = {name: int(np.prod(shape)) for name, (_, shape) in names.items() if not name.endswith(("_mean", "_var"))}
    vision = sum(size for name, size in sizes.items() if name.startswith("vis"))
    text = sum(size for name, size in sizes.items() if name.startswith("text"))
    return sum(sizes.values()), vision, text


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", OPEN_CLIP)
def test_published_sizes_open_clip(name):
    counts = count(clip_layouts.open_clip_config(OPEN_CLIP[name]))
    assert tuple(round(number / 1e6, 2) for number in counts) == MILLIONS[name]
    assert counts[0] == {"RN50": 102007137, "RN50x64": 623258305}.get(name, counts[0])


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("content", "name", "total"),
    [(VIT_B_32, "ViT-B-32", 151277313), (VIT_L_14, "ViT-L-14", 427616513), (VIT_H_14, "ViT-H-14", 986109441)],
)
def test_published_sizes_transformers(content, name, total):
    config = CLIPConfig.from_dict(content)
    assert count(config)[0] == total
    # The same network by OpenCLIP's description, but for what only one of the files tells.
    other = clip_layouts.open_clip_config(OPEN_CLIP[name], quick_gelu=name != "ViT-H-14")
    for tower in ("text_config", "vision_config"):
        for field in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act"):
            assert getattr(getattr(config, tower), field) == getattr(getattr(other, tower), field), (tower, field)
    assert config.projection_dim == other.projection_dim


@pytest.mark.slow
def test_published_shapes():
    """Images and texts of the published sizes go through, with nothing computed."""
    name = "RN50"
    config = clip_layouts.open_clip_config(OPEN_CLIP[name])
    graph, state = nnx.split(checkpoints.abstract_model(CLIPModel, config, dtype=jnp.bfloat16))
    size = config.vision_config.image_size
    pixels, ids = jax.ShapeDtypeStruct((2, size, size, 3), jnp.float32), jax.ShapeDtypeStruct((3, 77), jnp.int32)
    features = jax.eval_shape(lambda state, pixels: nnx.merge(graph, state).encode_images(pixels), state, pixels)
    assert (features.shape, features.dtype) == ((2, OPEN_CLIP[name]["embed_dim"]), jnp.bfloat16)
    logits = jax.eval_shape(lambda state, *inputs: nnx.merge(graph, state)(*inputs), state, pixels, ids)
    assert (logits.shape, logits.dtype) == ((2, 3), jnp.float32)


def test_duplicated_parts_win():
    """As in transformers, with the defaults for what they leave out."""
    content = {"model_type": "clip", "text_config": {"hidden_size": 64, "num_hidden_layers": 3}}
    assert CLIPConfig.from_dict(content).text_config.num_hidden_layers == 3
    config = CLIPConfig.from_dict({**content, "text_config_dict": {"hidden_size": 128}}).text_config
    assert (config.hidden_size, config.num_hidden_layers) == (128, 12)
    assert CLIPConfig.from_dict({**content, "text_config_dict": None}).text_config.hidden_size == 64


SIZES = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
SMALL_TEXT = CLIPTextConfig(vocab_size=20, max_position_embeddings=7, eos_token_id=19, **SIZES)


SMALL = {
    "vit": CLIPConfig(
        SMALL_TEXT,
        CLIPVisionConfig(
            hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4
        ),
        projection_dim=6,
    ),
    "resnet": CLIPConfig(SMALL_TEXT, CLIPResNetConfig((1, 1, 1, 1), 4, 4, 32), projection_dim=6),
}


def build(name, dtype=jnp.float32):
    """A network of random parameters; drawing its own starting values would take longer than the tests."""
    rng = np.random.default_rng(0)
    graph, state = nnx.split(abstract(lambda rngs: CLIPModel(SMALL[name], dtype=dtype, rngs=rngs)))

    def draw(leaf):
        noise = rng.normal(size=leaf.shape) / max(1, np.prod(leaf.shape[:-1])) ** 0.5
        return jnp.asarray(np.abs(noise) + 0.5 if len(leaf.shape) == 1 else noise, leaf.dtype)

    return nnx.merge(graph, jax.tree.map(draw, state))


@pytest.mark.slow
def test_statistics_get_no_gradient():
    """The running statistics of batch norms are loaded, not trained; every other parameter has a gradient."""
    graph, state = nnx.split(build("resnet"))
    pixels = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype(np.float32)
    ids = np.array([[1, 2, 19, 0, 0, 0, 0], [1, 5, 6, 19, 0, 0, 0]], np.int32)

    @functools.partial(jax.jit, compiler_options=QUICK_COMPILATION)
    @jax.grad
    def gradient(state):
        logits = nnx.merge(graph, state)(pixels, ids)
        return logits[0, 0] - logits[0, 1]

    for path, leaf in nnx.to_flat_state(gradient(state)):
        still = path[-1] in ("running_mean", "running_var")
        # A key's bias shifts all scores of a query alike.
        if path[-2:] not in (("k_proj", "bias"),):
            assert np.any(leaf[...]) != still, path


def test_other_image_sizes_are_refused():
    model = build("vit")
    with pytest.raises(ValueError, match=names("[9, 8, 3]", "[8, 8, 3]")):
        model.encode_images(np.zeros((1, 9, 8, 3), np.float32))
    with pytest.raises(ValueError, match=names("8", "7")):
        model.encode_texts(np.zeros((1, 8), np.int32))
