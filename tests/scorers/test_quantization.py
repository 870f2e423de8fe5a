"""Scoring with the denoiser in 8 bits: how near it is, how small, and that the rest of the scorer is as it was."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import winobench
from tests.expectations import names
from tests.scorers import tiny_models
from winobench import checkpoints, parallel
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.errors import InputError
from winobench.evaluation import evaluate
from winobench.models import lora
from winobench.scorers import loading
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube", "a blue ball to the right", ""]
# Of an error; the denoiser is random, and 16 to 32 channels wide.
TOLERANCE = {"int8": 0.02, "fp8": 0.08}


def image(seed):
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)


@pytest.fixture(scope="module")
def load(tiny_pipeline):
    def loaded(quantization="none", **options):
        defaults = {"batch_size": 4, "mesh": parallel.make_mesh(jax.devices("cpu")[:1])}
        return DiffusionITM.from_pretrained(tiny_pipeline, quantization=quantization, **defaults | options)

    return loaded


def errors(scorer):
    return scorer.errors([image(0), image(1)], TEXTS, num_samples=5)


@pytest.fixture(scope="module")
def exact(load):
    return errors(load())


@pytest.fixture(scope="module")
def in_int8(load):
    return errors(load("int8"))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        pytest.param("int8", "float32", marks=pytest.mark.slow),  # a quick one: models/test_quantized.py
        pytest.param("fp8", "float32", marks=pytest.mark.slow),
        pytest.param("int8", "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_errors_are_near_those_of_float32(load, exact, kind, dtype):
    off = np.abs(errors(load(kind, dtype=dtype)) / exact - 1)
    # The 8 bits of bfloat16 between the layers come on top.
    assert 1e-3 < off.max() < TOLERANCE[kind] + (0.02 if dtype == "bfloat16" else 0)


@pytest.mark.slow  # a quick one: models/test_quantized.py
@pytest.mark.parametrize(("kind", "dtype"), [("int8", jnp.int8), ("fp8", jnp.float8_e4m3fn)])
def test_parameters_are_small(load, kind, dtype):
    scorer = load(kind)
    kernels = {
        ".".join(map(str, path[:-1])): leaf.get_value()
        for path, leaf in nnx.to_flat_state(nnx.state(load().pipeline.unet))
        if path[-1] == "kernel"
    }
    kept = {name for name in kernels if name.startswith(("conv_in", "conv_out", "time_embedding."))}
    assert len(kept) == 4
    in_8_bits = [array for array in scorer._params if array.dtype == dtype]
    assert sum(array.nbytes for array in in_8_bits) == sum(kernels[name].size for name in kernels.keys() - kept)
    plain = sum(array.nbytes for array in load()._params)
    # 4 times as small, but for the layers that are kept, scales, norms and biases: much of so narrow a network.
    assert sum(array.nbytes for array in scorer._params) < 0.4 * plain
    # The weights before rounding are not kept.
    assert sum(array.nbytes for array in jax.tree.leaves(nnx.state(scorer.pipeline.unet))) < 0.4 * plain


@pytest.mark.slow
@pytest.mark.parametrize("change", ["devices", "shared parameters", "batch size"])
def test_devices_and_batches_change_rounding_only(load, in_int8, change):
    """Where the last bit of a sum differs, a value may be rounded to the other side: a few are, by one step."""
    devices = jax.devices("cpu")
    options = {
        "devices": {"mesh": parallel.make_mesh(devices[:3])},
        "shared parameters": {"mesh": parallel.make_mesh(devices[:4], model_parallel=2)},
        "batch size": {"batch_size": 7},
    }
    off = np.abs(errors(load("int8", **options[change])) / in_int8 - 1)
    assert np.median(off) < 1e-5
    assert off.max() < TOLERANCE["int8"]


@pytest.mark.slow
def test_equal_scorers_share_a_compilation(load, compilations):
    in_int8 = errors(load("int8"))
    with compilations() as count:
        np.testing.assert_array_equal(errors(load("int8")), in_int8)
    assert count.total == 0


@pytest.mark.slow
def test_the_fingerprint_names_it(load):
    plain, int8, fp8 = (load(kind).fingerprint() for kind in ("none", "int8", "fp8"))
    assert "quantization" not in plain
    assert int8 == {**plain, "quantization": "int8"}
    assert fp8 == {**plain, "quantization": "fp8"}


@pytest.mark.slow
def test_a_lora_is_fused_before_rounding(load, tiny_pipeline, tmp_path):
    pipeline = StableDiffusion.from_pretrained(tiny_pipeline)
    lora.add_lora(pipeline.unet, lora.LoRAConfig("cross", rank=2), rngs=nnx.Rngs(0))
    for adapter in lora.adapters(pipeline.unet).values():
        adapter.up.set_value(jnp.ones_like(adapter.up[...]))
    checkpoints.save_lora(tmp_path, unet=pipeline.unet)
    adapted, plain = errors(load(lora=tmp_path)), errors(load())
    in_8_bits = load("int8", lora=tmp_path)
    assert in_8_bits.fingerprint()["lora"]["fused"]
    # Nearer to the adapted network than that is to the one without the adapter.
    distance = np.abs(errors(in_8_bits) / adapted - 1).max()
    assert distance < TOLERANCE["int8"] < np.abs(plain / adapted - 1).max()
    # Told before the model is looked for.
    with pytest.raises(InputError, match=names("'int8'", "LoRA")):
        DiffusionITM.from_pretrained("no-such/model", lora=tmp_path, fuse_lora=False, quantization="int8")
    with pytest.raises(InputError, match=names("'fp8'", "LoRA")):
        DiffusionITM(pipeline, quantization="fp8")


def test_what_is_refused(tiny_pipeline, tmp_path, monkeypatch):
    clip = tiny_models.write_clip(tmp_path / "clip")
    with pytest.raises(InputError, match=r"^quantization is an option of diffusion models, but .*clip' is none"):
        loading.load_scorer(str(clip), diffusion={"quantization": "int8"})
    for source in ("no-such/model", tiny_pipeline):
        with pytest.raises(InputError, match=names("'int4'", "int8", "fp8")):
            loading.load_scorer(str(tiny_pipeline), diffusion={"quantization": "int4"})
        with pytest.raises(InputError, match=r"^quantization is 'int4'"):
            DiffusionITM.from_pretrained(source, quantization="int4")
    monkeypatch.setitem(sys.modules, "qwix", None)
    with pytest.raises(InputError, match=names("'winobench[quantization]'")):
        DiffusionITM.from_pretrained("no-such/model", quantization="int8")
    DiffusionITM.from_pretrained(tiny_pipeline)


@pytest.mark.slow
def test_the_embedded_model_keeps_its_accuracy(tmp_path):
    values = {}
    for kind in ("none", "int8", "fp8"):
        results = evaluate.evaluate(
            DiffusionITM.from_pretrained("clevr-tiny", quantization=kind),
            [winobench.get_task("clevr")],
            str(tmp_path / kind),
            limit=20,
            num_samples=8,
            progress=False,
        )
        values[kind] = results["tasks"]["clevr"]["accuracy"]["value"]
    assert values["none"] > 0.95
    assert min(values.values()) > values["none"] - 0.03
