"""The embedded model's recipe, in miniature: its parts, and (slow) the whole of it with a resume."""

import json

import jax
import numpy as np
import pytest
from flax import nnx

from configs import clevr_tiny as clevr_tiny_config
from winobench.checkpoints import tokenizer_files
from winobench.data import array_records, clevr_captions
from winobench.errors import InputError
from winobench.training import clevr_tiny, clevr_tiny_networks, pictures


@pytest.fixture
def config():
    """The recipe with 32-pixel scenes, 8 x 8 latents and the smallest networks."""
    config = clevr_tiny_config.get_config("debug")
    config.data.num_scenes = 12
    config.data.image_size = 32
    config.data.captions_per_scene = 4
    config.data.num_shards = 2
    config.autoencoder.block_out_channels = (8, 8, 16)
    config.denoiser.block_out_channels = (32,)
    config.denoiser.down_block_types = ("CrossAttnDownBlock2D",)
    config.text_encoder.num_hidden_layers = 1
    return config


@pytest.fixture
def scenes(config, tmp_path):
    clevr_tiny.make_scenes(config, tmp_path)
    return tmp_path


def test_scenes_are_pictures_with_captions_that_the_tokenizer_knows(config, scenes):
    source = array_records.ShardSource(scenes / "scenes")
    tokenizer = tokenizer_files.read_clip_tokenizer(scenes / "tokenizer")
    assert len(source) == 12
    for record in (source[index] for index in range(12)):
        image = pictures.decode_png(record["image"])
        assert image.shape == (32, 32, 3)
        assert image.std() > 5
        assert record["input_ids"].shape == (4, 24)
        for ids in record["input_ids"]:
            words = tokenizer.decode(ids, skip_special_tokens=True).replace(".", " .").split()
            assert words[-1] == "."
            assert set(words) <= set(clevr_captions.VOCABULARY)
            assert tokenizer.unk_token_id not in ids[: len(words) + 1]


def test_finished_scenes_are_kept_and_others_made_anew(config, scenes):
    index = scenes / "scenes" / "index.json"
    first = index.stat().st_mtime_ns
    clevr_tiny.make_scenes(config, scenes)
    assert index.stat().st_mtime_ns == first
    config.data.num_scenes = 13
    clevr_tiny.make_scenes(config, scenes)
    assert json.loads(index.read_text())["num_records"] == 13


def test_every_caption_fits(config):
    longest = max(clevr_captions.FORMS, key=lambda form: len(_longest(form).split()))
    # "Rubber" and the like are one token each; the full stop and the two marks are three more.
    assert len(_longest(longest).replace(".", " .").split()) + 2 <= config.data.max_length


def _longest(form):
    thing = clevr_captions.Thing("cylinder", "purple", "small", "rubber", -1)
    return clevr_captions.caption([thing, thing._replace(side=1, shape="cube")], form)


def test_captions_are_drawn_and_some_are_empty():
    record = {"latents": np.zeros((2, 2, 1), np.float16), "input_ids": np.asarray([[1, 9], [2, 9], [3, 9]], np.uint16)}
    choose = clevr_tiny.ChooseCaption(np.asarray([8, 9], np.uint16), 0.25)
    generator = np.random.default_rng(0)
    first = [int(choose(record, generator)["input_ids"][0]) for _ in range(4000)]
    shares = [first.count(value) / 4000 for value in (1, 2, 3, 8)]
    np.testing.assert_allclose(shares, 0.25, atol=0.03)


def test_scaling_factor_gives_unit_variance():
    latents = 5.0 * np.random.default_rng(0).normal(size=(100, 4, 4, 2))
    assert np.std(latents * clevr_tiny.fit_scaling_factor(latents)) == pytest.approx(1.0)


def test_pictures_survive_png():
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    np.testing.assert_array_equal(pictures.decode_png(pictures.encode_png(image)), image)


@pytest.mark.slow
def test_output_layers_start_at_zero(config):
    graphdef, params = clevr_tiny._split_model(
        clevr_tiny.unet_2d_condition.UNet2DConditionModel, clevr_tiny_networks.unet_config(config), 0
    )
    unet = nnx.merge(graphdef, params)
    clevr_tiny_networks.zero_output_layers(unet)
    zeros = np.zeros((2, 8, 8, 8), np.float32)
    output = jax.jit(lambda unet: unet(zeros + 1, np.asarray([3, 900]), np.ones((2, 24, 128), np.float32)))(unet)
    np.testing.assert_array_equal(output, zeros)


@pytest.mark.slow
def test_whole_recipe_resumes_and_exports_a_folder_that_loads(config, tmp_path):
    import winobench

    config.denoiser.num_steps = 6
    config.denoiser.checkpoint_every = 4
    clevr_tiny.run(config, tmp_path)
    config.denoiser.num_steps = 10
    clevr_tiny.run(config, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "denoiser" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 6, 8, 10]  # checkpoints have lines, too
    scorer = winobench.DiffusionITM.from_pretrained(tmp_path / "clevr_tiny")
    image = pictures.decode_png(array_records.ShardSource(tmp_path / "scenes")[0]["image"])
    scores = scorer.score([image], ["A red cube.", "A blue sphere."], num_samples=2)
    assert np.isfinite(scores).all()
    assert scores.shape == (1, 2)


@pytest.mark.parametrize("stage", ["autoencoder", "denoiser"])
def test_a_decay_that_is_longer_than_training_is_refused_at_once(config, tmp_path, stage):
    config[stage].decay_steps = 10_000
    with pytest.raises(InputError, match=rf"config\.{stage}\.decay_steps is 10,000, but must be at most the 20 of"):
        clevr_tiny.run(config, tmp_path)
    assert not list(tmp_path.iterdir())
