import functools
import json
import re
import shutil

import jax
import numpy as np
import pytest
from flax import nnx

from configs import clevr_flow as clevr_flow_config
from configs import clevr_tiny as clevr_tiny_config
from tests import launching
from tests.expectations import names
from tests.launch.test_ranges import refuse
from tests.models.test_networks import filled
from tests.parity.harness import QUICK_COMPILATION
from tests.training import toy_run
from tests.training.test_writers import events
from winobench.base import options
from winobench.base.errors import InputError
from winobench.checkpoints import tokenizer_files
from winobench.clevr import captions, questions, renderer
from winobench.contrib.studies import embedded, images
from winobench.data import array_records
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.training import optimizers, recipes


@pytest.fixture(scope="module", autouse=True)
def few_rays():
    """A call of the renderer makes as many images as these are for, however few are needed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "_RAYS_PER_CHUNK", 1 << 14)
        yield


@pytest.fixture(scope="module", params=["clevr_tiny", "clevr_flow"])
def recipe(request):
    return recipes.load(request.param)


@pytest.fixture
def config(recipe):
    return make_config(recipe)


def make_config(recipe):
    """The recipe with 16-pixel scenes, 8 x 8 latents, the smallest networks, and AdamW, as Muon compiles for long."""
    module = {"clevr_tiny": clevr_tiny_config, "clevr_flow": clevr_flow_config}[recipe.NAME]
    values = {"data.num_scenes": 12, "data.image_size": 16, "data.captions_per_scene": 4, "data.num_shards": 2}
    values |= {"autoencoder.block_out_channels": (8, 16), "autoencoder.optimizer": "adamw"}
    values |= {"text_encoder.num_hidden_layers": 1, "text_encoder.hidden_size": 32, "denoiser.optimizer": "adamw"}
    if recipe.NAME == "clevr_tiny":
        values |= {"denoiser.block_out_channels": (32,), "denoiser.down_block_types": ("CrossAttnDownBlock2D",)}
    else:
        values |= {"data.num_scenes": 4, "data.num_hard_scenes": 8, "denoiser.num_layers": 2, "denoiser.num_heads": 1}
        values |= {"text_encoder_2.num_hidden_layers": 1, "text_encoder_2.hidden_size": 32}
    return options.replaced(module.Settings(), {**module.FORMS["debug"], **values})


@pytest.fixture(scope="module")
def scenes(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    recipe.make_scenes(make_config(recipe), folder)
    return folder


@pytest.mark.quick(1)
def test_scenes_are_pictures_with_captions_that_the_tokenizer_knows(recipe, config, scenes):
    source = array_records.ShardSource(scenes / "scenes")
    tokenizer = tokenizer_files.read_clip_tokenizer(scenes / "tokenizer")
    assert len(source) == 12
    for record in (source[index] for index in range(12)):
        image = images.decode_png(record["image"])
        assert image.shape == (16, 16, 3)
        assert image.std() > 5
        assert record["input_ids"].shape == (4, 24)
        for ids in record["input_ids"]:
            words = re.findall(r"\w+|[.,]", tokenizer.decode(ids, skip_special_tokens=True))
            assert words[-1] == "."
            assert set(words) <= set(recipe.VOCABULARY)
            assert tokenizer.unk_token_id not in ids[: len(words) + 1]


@pytest.mark.quick(1)
def test_finished_scenes_are_kept_and_others_made_again(recipe, config, scenes, tmp_path):
    folder = shutil.copytree(scenes, tmp_path / "copy")
    index = folder / "scenes" / "index.json"
    first = index.stat().st_mtime_ns
    recipe.make_scenes(config, folder)
    assert index.stat().st_mtime_ns == first
    recipe.make_scenes(options.replaced(config, {"data.num_scenes": config.data.num_scenes + 1}), folder)
    assert json.loads(index.read_text())["num_records"] == 13


@pytest.mark.quick(1)
def test_hard_scenes_come_with_their_own_caption_and_simple_ones(config, scenes):
    source = array_records.ShardSource(scenes / "scenes")
    tokenizer = tokenizer_files.read_clip_tokenizer(scenes / "tokenizer")
    hard = getattr(config.data, "num_hard_scenes", 0)
    own = {}
    for record in (source[index] for index in range(12)):
        texts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in record["input_ids"]]
        if not all(re.match(r"(a|on the (left|right) is a) ", text) for text in texts):
            own[texts[0]] = texts
    assert len(own) == hard
    assert all(texts[0] == texts[1] and len(texts) == 4 for texts in own.values())


def test_every_caption_fits(config):
    longest = max(captions.FORMS, key=lambda form: len(_longest(form).split()))
    # "Rubber" and the like are one token each; the full stop and the two marks are three more.
    assert len(_longest(longest).replace(".", " .").split()) + 2 <= config.data.max_length
    hard = [text for group in questions.GROUPS for text in questions.question(group, 0).texts]
    assert max(len(re.findall(r"\w+|[.,]", text)) for text in hard) + 2 <= config.data.max_length


def _longest(form):
    thing = captions.Thing("cylinder", "purple", "small", "rubber", -1)
    return captions.caption([thing, thing._replace(side=1, shape="cube")], form)


def test_captions_are_drawn_and_some_are_empty():
    record = {"latents": np.zeros((2, 2, 1), np.float16), "input_ids": np.asarray([[1, 9], [2, 9], [3, 9]], np.uint16)}
    choose = embedded.ChooseCaption(np.asarray([8, 9], np.uint16), 0.25)
    generator = np.random.default_rng(0)
    first = [int(choose(record, generator)["input_ids"][0]) for _ in range(4000)]
    shares = [first.count(value) / 4000 for value in (1, 2, 3, 8)]
    np.testing.assert_allclose(shares, 0.25, atol=0.03)


def test_scaling_factor_gives_unit_variance():
    latents = 5.0 * np.random.default_rng(0).normal(size=(100, 4, 4, 2))
    assert np.std(latents * embedded.fit_scaling_factor(latents)) == pytest.approx(1.0)


@pytest.mark.slow
def test_the_denoiser_starts_at_zero(recipe, config, scenes):
    tokenizer = tokenizer_files.read_clip_tokenizer(scenes / "tokenizer")
    graphdefs, params = recipe.fresh(config, len(tokenizer))  # of the size that the whole recipe has, too
    noisy = np.ones((2, 8, 8, config.autoencoder.latent_channels), np.float32)

    def predict(params):
        networks = {name: nnx.merge(graphdef, params[name]) for name, graphdef in graphdefs.items()}
        return recipe.predict(networks, noisy, np.asarray([3, 900]), np.ones((2, 24), np.int32))

    compiled = jax.jit(predict, compiler_options=QUICK_COMPILATION)
    np.testing.assert_array_equal(compiled(params), np.zeros_like(noisy))
    # Muon, the recipes' optimizer, takes all of these parameters.
    muon = optimizers.make_optimizer("muon", 0.1)
    updates, _ = jax.eval_shape(lambda params: muon.update(params, muon.init(params), params), params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)


@pytest.mark.slow
def test_whole_recipe_resumes_and_exports_a_folder_that_loads(recipe, config, scenes, tmp_path, monkeypatch):
    """One of them resumes, and one trains on two devices: the stages are the same.

    No checkpoint but the last, as each makes pictures. The first values are drawn by NumPy, as JAX compiles for long.
    """
    folder = shutil.copytree(scenes, tmp_path / "run")
    devices = jax.devices()[: 2 if recipe.NAME == "clevr_tiny" else 1]
    monkeypatch.setattr(jax, "devices", lambda *_: devices)
    monkeypatch.setattr(embedded, "split_model", _split_model)
    changes = {"autoencoder.num_steps": 2, "autoencoder.decay_steps": 1, "autoencoder.batch_size": 4}
    changes |= {"denoiser.num_steps": 1, "denoiser.decay_steps": 1, "denoiser.batch_size": 4}
    config = options.replaced(config, changes)
    recipe.run(config, folder, log=["tensorboard"])
    for stage in ("autoencoder", "denoiser"):
        assert {tag for _, _, tag, _ in events(folder / stage / "tensorboard")[0]} >= {"loss"}
    lengths = [1]
    if recipe.NAME == "clevr_flow":
        lengths.append(2)
        recipe.run(options.replaced(config, {"denoiser.num_steps": 2}), folder)
    assert [row["step"] for row in toy_run.rows_of(folder / "denoiser")] == lengths  # checkpoints have lines, too
    scorer = DiffusionITM.from_pretrained(folder / recipe.NAME)
    image = images.decode_png(array_records.ShardSource(folder / "scenes")[0]["image"])
    scores = scorer.score([image], ["A red cube.", "A blue sphere."], num_samples=2)
    assert np.isfinite(scores).all()
    assert scores.shape == (1, 2)


@functools.cache
def _split_model(network, config, seed):
    graph, state = nnx.split(filled(network, config))
    return graph, nnx.to_pure_dict(state)


@pytest.mark.parametrize("stage", ["autoencoder", "denoiser"])
def test_a_decay_that_is_longer_than_training_is_refused_at_once(recipe, config, tmp_path, stage):
    config = options.replaced(config, {f"{stage}.decay_steps": 10_000})
    with pytest.raises(InputError, match=names(f"--{stage}.decay_steps", "10,000", "20")):
        recipe.run(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_refused(tmp_path):
    refuse("clevr_tiny denoiser.timestep_range=900,100", *["timestep_range", "two"])
    refuse("clevr_tiny denoiser.down_block_types=DownBlock2D,UpBlock", *["down_block_types", "DownBlock2D"])
    named = ["--processes is not for --config=clevr_tiny"]
    launching.refuse("launch.train", "--config=clevr_tiny", "--processes=auto", named=named, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
