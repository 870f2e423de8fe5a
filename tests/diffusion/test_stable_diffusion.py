import dataclasses
import logging
import pathlib
import shutil
import subprocess
import sys

import huggingface_hub
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from huggingface_hub import constants

from tests.changed_files import edit, edited
from tests.expectations import names, raises
from winobench import parallel
from winobench.base.errors import InputError
from winobench.checkpoints import weights
from winobench.diffusion.schedules import NoiseSchedule
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.scorers.diffusion_itm import DiffusionITM


@pytest.fixture(scope="module")
def bundle(tiny_pipeline):
    return StableDiffusion.from_pretrained(tiny_pipeline)


@pytest.fixture
def copy(tiny_pipeline, tmp_path):
    return pathlib.Path(shutil.copytree(tiny_pipeline, tmp_path / "copy"))


def pad_with_exclamation_mark(folder):
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        edit(folder / "tokenizer" / name, pad_token="!")
    (folder / "tokenizer" / "tokenizer.json").unlink()


def test_sizes_come_from_the_files(bundle):
    assert bundle.image_size == 32
    assert bundle.max_text_tokens == 77
    assert bundle.schedule.training == NoiseSchedule().training
    assert bundle.schedule.scheduler_class == "PNDMScheduler"


def test_image_size_without_a_latent_size(bundle):
    def with_size(sample_size):
        unet = nnx.clone(bundle.unet)
        unet.config = dataclasses.replace(unet.config, sample_size=sample_size)
        return dataclasses.replace(bundle, unet=unet)

    assert with_size(None).image_size == 32
    assert with_size((16, 16)).image_size == 64
    with raises("not-square", "16", "8"):
        assert with_size((16, 8)).image_size


def test_tokenize(bundle):
    ids = bundle.tokenize(["a red cube", ""])
    assert ids.dtype == np.int32
    assert ids.shape == (2, 77)
    start, end = bundle.tokenizer.bos_token_id, bundle.tokenizer.eos_token_id
    assert ids[0, 0] == start
    assert (ids[0, 4:] == end).all()
    assert ids[1].tolist() == [start] + [end] * 76
    with raises("empty-list"):
        bundle.tokenize([])


def test_truncated_texts_are_counted_once(bundle, caplog):
    # 75 words and the two marks fit exactly.
    texts = ["red " * 75, "red " * 76, "a", "blue " * 500]
    with caplog.at_level(logging.WARNING):
        ids = bundle.tokenize(texts)
    assert caplog.messages == ["2 of 4 texts are longer than 77 tokens and were truncated."]
    np.testing.assert_array_equal(ids[0], ids[1])
    assert (ids[:, -1] == bundle.tokenizer.eos_token_id).all()


def test_padding_token_is_the_files(copy):
    """SD 2.1 pads with "!", SD 1.5 with the end token."""
    pad_with_exclamation_mark(copy)
    bundle = StableDiffusion.from_pretrained(copy)
    ids = bundle.tokenize(["a red cube"])
    assert ids[0, 4] == bundle.tokenizer.eos_token_id
    assert (ids[0, 5:] == 0).all()
    bundle.save_pretrained(copy / "saved")
    again = StableDiffusion.from_pretrained(copy / "saved")
    np.testing.assert_array_equal(again.tokenize(["a red cube"]), ids)


def test_texts_are_bounded_by_the_positions(copy):
    edit(copy / "tokenizer" / "tokenizer_config.json", model_max_length=int(1e30))
    assert StableDiffusion.from_pretrained(copy).max_text_tokens == 77


def test_encoding_in_batches_is_encoding_one_by_one(bundle):
    texts = ["a red cube", "", "a blue ball", "the left", "of"]
    together = bundle.encode_texts(texts, batch_size=2)
    assert together.shape == (5, 77, 24)
    single = np.concatenate([bundle.encode_texts([text], batch_size=2) for text in texts])
    np.testing.assert_array_equal(together, single)
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    together = bundle.encode_images(images, batch_size=2)
    assert together.shape == (3, 8, 8, 4)
    assert together.dtype == np.float32
    single = np.concatenate([bundle.encode_images(image[None], batch_size=2) for image in images])
    # A convolution may round differently at another place of the batch.
    np.testing.assert_allclose(together, single, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_images_as_floats_and_draws_from_the_posterior(bundle):
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    mean = bundle.encode_images(images)
    np.testing.assert_allclose(bundle.encode_images(images / np.float32(127.5) - 1), mean, atol=1e-6)
    _, logvar = bundle.vae.encode(images / np.float32(127.5) - 1)
    noise = np.random.default_rng(1).normal(size=mean.shape).astype(np.float32)
    drawn = bundle.encode_images(images, noise=noise)
    expected = mean + bundle.vae.config.scaling_factor * np.exp(0.5 * logvar) * noise
    np.testing.assert_allclose(drawn, expected, atol=1e-5)


@pytest.mark.slow
def test_loading_needs_neither_torch_nor_diffusers(tiny_pipeline):
    code = (
        "import sys; from winobench.diffusion.stable_diffusion import StableDiffusion;"
        f"StableDiffusion.from_pretrained({str(tiny_pipeline)!r}).tokenize(['a']);"
        "sys.exit(str([name for name in ('torch', 'diffusers', 'tensorflow') if name in sys.modules] or ''))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == ""


def test_round_trip(bundle, tmp_path):
    bundle.save_pretrained(tmp_path / "saved", dtype="float32")
    again = StableDiffusion.from_pretrained(tmp_path / "saved")
    assert again.fingerprint == bundle.fingerprint
    assert again.schedule == bundle.schedule
    texts = ["a red cube", "Unseen: ünïcode 123"]
    np.testing.assert_array_equal(again.tokenize(texts), bundle.tokenize(texts))
    # Saving over an older save replaces it.
    bundle.save_pretrained(tmp_path / "saved", dtype="float16")
    assert StableDiffusion.from_pretrained(tmp_path / "saved").fingerprint != bundle.fingerprint


def test_an_interrupted_save_is_no_pipeline(bundle, tmp_path, monkeypatch):
    bundle.save_pretrained(tmp_path)

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(weights, "write_weights", fail)
    with raises("cannot-write", "disk full"):
        bundle.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=names("model_index.json")):
        StableDiffusion.from_pretrained(tmp_path)


def test_everything_that_can_change_an_error_changes_the_fingerprint(bundle, copy, tiny_pipeline):
    def with_schedule(**changes):
        return dataclasses.replace(bundle, schedule=dataclasses.replace(bundle.schedule, **changes))

    def with_network(name, leaf=lambda network: (), **changes):
        network = nnx.clone(getattr(bundle, name))
        network.config = dataclasses.replace(network.config, **changes)
        for parameter in leaf(network):
            parameter[...] = parameter[...].at[0].add(1e-6)
        return dataclasses.replace(bundle, **{name: network})

    pad_with_exclamation_mark(copy)
    others = [
        StableDiffusion.from_pretrained(tiny_pipeline, dtype="bfloat16"),
        StableDiffusion.from_pretrained(copy),
        with_schedule(prediction_type="v_prediction"),
        with_schedule(beta_end=0.013),
        with_network("unet", lambda unet: [unet.conv_out.bias]),
        with_network("vae", lambda vae: [vae.encoder.conv_in.bias]),
        with_network("text_encoder", lambda text: [text.text_model.final_layer_norm.bias]),
        with_network("unet", attention_head_dim=2),  # which leaves the weights alone
        with_network("vae", scaling_factor=0.5),
    ]
    assert len({bundle.fingerprint, *(other.fingerprint for other in others)}) == 1 + len(others)
    # The sampler cannot change an error.
    assert with_schedule(sampler_options=(), scheduler_class="DDIMScheduler").fingerprint == bundle.fingerprint


def test_float16_keeps_an_autoencoder_that_would_overflow_in_float32(copy):
    bundle = StableDiffusion.from_pretrained(copy, dtype="float16")
    assert bundle.unet.dtype == bundle.text_encoder.dtype == np.float16
    assert bundle.vae.dtype == np.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(bundle.vae))} == {np.dtype(np.float32)}
    edit(copy / "vae" / "config.json", force_upcast=False)
    assert StableDiffusion.from_pretrained(copy, dtype="float16").vae.dtype == np.float16


def remove(name):
    return lambda folder: (folder / name).unlink()


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-1000])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("model_index.json"), ("no-such-file", "model_index.json")),
        (remove("scheduler/scheduler_config.json"), ("no-such-file", "scheduler/scheduler_config.json")),
        (remove("vae/diffusion_pytorch_model.safetensors"), ("no-weights", "vae/diffusion_pytorch_model.safetensors")),
        (cut("tokenizer/tokenizer.json"), ("unreadable-tokenizer", "CLIP")),
        (edited("unet/config.json", in_channels=9), ("mismatched-parts", "9", "4")),
        (edited("unet/config.json", cross_attention_dim=99), ("mismatched-parts", "99")),
        (edited("text_encoder/config.json", vocab_size=500), ("mismatched-parts", "500")),
        (
            edited("model_index.json", unet=["diffusers", "UNet3D"]),
            ("wrong-kind-of-model", "UNet3D", "UNet2DConditionModel"),
        ),
        (edited("model_index.json", vae=...), ("wrong-kind-of-model", "vae")),
        (edited("model_index.json", text_encoder_2=["a", "b"]), ("wrong-kind-of-model", "text_encoder_2")),
    ],
)
def test_damaged_pipelines_are_one_sentence(copy, damage, message):
    damage(copy)
    with raises(*message):
        StableDiffusion.from_pretrained(copy)


def test_hub_id_from_the_cache(tiny_pipeline, bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--owner--name"
    snapshot = pathlib.Path(shutil.copytree(tiny_pipeline, repository / "snapshots" / ("a" * 40)))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    # What a published repository also holds, and nobody here needs.
    stem = "unet/diffusion_pytorch_model"
    others = [f"{stem}.fp16.safetensors", f"{stem}.bin", "v1-5-pruned.ckpt", "README.md"]
    for name in others:
        (snapshot / name).touch()

    requests = []
    download = huggingface_hub.hf_hub_download

    def recorded(repo_id, name, **options):
        requests.append(name)
        return download(repo_id, name, **options)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", recorded)
    loaded = StableDiffusion.from_pretrained("owner/name")
    assert loaded.fingerprint == bundle.fingerprint
    assert not set(requests) & set(others)
    with pytest.raises(InputError, match=names("model_index.json", "owner/other", "HF_HUB_OFFLINE")):
        StableDiffusion.from_pretrained("owner/other")


@pytest.mark.parametrize("texts", ["a red cube", [], [None], None], ids=repr)
def test_a_text_in_place_of_a_list_of_texts_is_refused(bundle, texts):
    for method in (bundle.encode_texts, bundle.generate):
        with raises("empty-list" if texts == [] else "wrong-type", "texts[0]" if texts == [None] else "texts"):
            method(texts)


@pytest.mark.parametrize("pipeline", [5, None, "clevr-tiny", object()])
def test_a_scorer_takes_a_pipeline(pipeline):
    with raises("wrong-type", "pipeline"):
        DiffusionITM(pipeline)


@pytest.mark.parametrize("mesh", [5, "cpu", [1]])
def test_a_mesh_is_a_mesh(mesh):
    with pytest.raises(InputError, match=names("jax.sharding.Mesh")):
        parallel.as_mesh(mesh)


_IMAGES = np.zeros((1, 32, 32, 3), np.float32)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (_IMAGES + np.nan, ("out-of-range", "nan")),
        (_IMAGES + 255, ("out-of-range", "uint8")),
        (_IMAGES[:, :0], ("wrong-shape", "images", "[1, 0, 32, 3]")),
        (_IMAGES[..., :1], ("wrong-shape", "images", "[1, 32, 32, 1]")),
        (_IMAGES[:, :30], ("not-a-multiple", "30", "32", "4")),
        (_IMAGES.astype(np.int32), ("wrong-dtype", "int32")),
    ],
)
def test_images_are_checked_before_they_are_encoded(bundle, images, said):
    with raises(*said):
        bundle.encode_images(images)


@pytest.mark.parametrize(
    ("latents", "said"),
    [
        (np.zeros((1, 8, 8, 3), np.float32), ("wrong-shape", "latents", "[1, 8, 8, 3]")),
        (np.zeros((1, 8, 8, 4), np.int32), ("wrong-shape", "latents", "int32")),
        (np.full((1, 8, 8, 4), np.nan, np.float32), ("not-finite", "NaN")),
        (jnp.full((1, 8, 8, 4), jnp.inf), ("not-finite", "NaN")),
    ],
)
def test_latents_are_checked_before_they_are_decoded(bundle, latents, said):
    with raises(*said):
        bundle.decode_latents(latents)


def test_errors_that_are_not_numbers_give_no_score(bundle, monkeypatch):
    scorer = DiffusionITM(bundle, mesh=parallel.make_mesh(jax.devices()[:1]))
    monkeypatch.setattr(scorer, "iter_errors", lambda images, texts, triples, **_: [(slice(None), np.nan)])
    with raises("not-finite", "images[0]", "'a ball'"):
        scorer.score([np.zeros((32, 32, 3), np.uint8)], ["a ball"], num_samples=2)
