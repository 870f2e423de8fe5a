"""The embedded model's recipe, in miniature: its parts, and (slow) the whole of it with a resume."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax import nnx

from configs import clevr_tiny as clevr_tiny_config
from winobench.checkpoints import tokenizer_files
from winobench.data import array_records, clevr_captions
from winobench.errors import InputError
from winobench.training import clevr_tiny, from_arrays, loop


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
        image = clevr_tiny.decode_png(record["image"])
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
    np.testing.assert_array_equal(clevr_tiny.decode_png(clevr_tiny.encode_png(image)), image)


@pytest.fixture
def arrays(config, scenes):
    """What a machine with only JAX, Flax and Optax is given; the latents are noise."""
    generator = np.random.default_rng(0)
    source = array_records.ShardSource(scenes / "scenes")
    records = [
        {"latents": generator.normal(size=(8, 8, 8)).astype(np.float16), "input_ids": source[index]["input_ids"]}
        for index in range(len(source))
    ]
    about = clevr_tiny._about(config, "data", "autoencoder")
    array_records.write_shards(scenes / "latents", records, num_shards=2, about=about)
    clevr_tiny.write_arrays(config, scenes, scenes / "arrays")
    return scenes / "arrays"


def test_batches_from_arrays_can_start_anywhere(arrays):
    def batches(first):
        return from_arrays.batches(arrays, batch_size=8, seed=0, empty_fraction=0.5, first_batch=first)

    from_start = [batch for batch, _ in zip(batches(0), range(4), strict=False)]
    resumed = next(batches(3))
    for name, array in resumed.items():
        np.testing.assert_array_equal(array, from_start[3][name])
    empty = np.load(arrays / "empty_ids.npy")
    share = np.mean([(batch["input_ids"] == empty).all(axis=1).mean() for batch in from_start])
    assert 0.2 < share < 0.8


@pytest.mark.slow  # compiles the denoiser's step twice
def test_training_from_arrays_goes_on_and_comes_back(config, scenes, arrays):
    from_arrays.train(arrays, num_steps=2)
    _, like = clevr_tiny.denoiser_step(config, clevr_tiny._vocab_size(scenes), clevr_tiny.schedule(config))
    early = loop.load_state(like, arrays / "state.npz")
    from_arrays.main([str(arrays), "--num_steps=4"])
    late = loop.load_state(like, arrays / "state.npz")
    assert (int(early.step), int(late.step)) == (2, 4)
    rows = [json.loads(line) for line in (arrays / "metrics.jsonl").read_text().splitlines()]
    # The network starts at zero output: the first losses are near the mean square of the target, 1 for such latents.
    assert rows[0]["loss"] == pytest.approx(1.0, abs=0.2)
    for name in ("unet", "text_encoder"):
        before, after = (jax.tree.leaves(state.params[name]) for state in (early, late))
        assert any(np.any(one != two) for one, two in zip(before, after, strict=True))

    clevr_tiny.read_state(config, scenes, arrays / "state.npz")
    assert loop.Checkpoints(scenes / "denoiser" / "checkpoints").latest_step() == 4
    with pytest.raises(InputError, match=r"has 4 steps, but .* has 4 already"):
        clevr_tiny.read_state(config, scenes, arrays / "state.npz")
    config.denoiser.block_out_channels = (64,)
    with pytest.raises(InputError, match="another network or optimizer"):
        clevr_tiny.read_state(config, scenes, arrays / "state.npz")


@pytest.mark.slow  # compiles the denoiser's step
def test_training_from_arrays_needs_no_more_than_it_says(arrays):
    code = """
import sys
for name in ("diffusers", "transformers", "grain", "array_record", "tensorflow_datasets", "PIL", "ml_collections",
             "safetensors", "huggingface_hub", "pyarrow", "torch"):
    sys.modules[name] = None  # importing it fails
from winobench.training import from_arrays
from_arrays.main([sys.argv[1], "--num_steps=1"])
"""
    subprocess.run([sys.executable, "-c", code, str(arrays)], check=True)
    assert (arrays / "state.npz").exists()


def test_a_folder_without_a_recipe_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        from_arrays.main([str(tmp_path)])
    assert stopped.value.code == 2
    assert "has no recipe.json: make it with launch.train --write_arrays" in capsys.readouterr().err


@pytest.mark.slow
def test_output_layers_start_at_zero(config):
    graphdef, params = clevr_tiny._split_model(
        clevr_tiny.unet_2d_condition.UNet2DConditionModel, clevr_tiny.unet_config(config), 0
    )
    unet = nnx.merge(graphdef, params)
    clevr_tiny.zero_output_layers(unet)
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
    image = clevr_tiny.decode_png(array_records.ShardSource(tmp_path / "scenes")[0]["image"])
    scores = scorer.score([image], ["A red cube.", "A blue sphere."], num_samples=2)
    assert np.isfinite(scores).all()
    assert scores.shape == (1, 2)


@pytest.mark.parametrize("stage", ["autoencoder", "denoiser"])
def test_a_decay_that_is_longer_than_training_is_refused_at_once(config, tmp_path, stage):
    config[stage].decay_steps = 10_000
    with pytest.raises(InputError, match=rf"config\.{stage}\.decay_steps is 10,000, but must be at most the 20 of"):
        clevr_tiny.run(config, tmp_path)
    assert not list(tmp_path.iterdir())
