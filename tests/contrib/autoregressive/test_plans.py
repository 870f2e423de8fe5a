"""Plans of generators: shapes alone, by names and by folders, and the bytes and programs that follow."""

import dataclasses

import jax
import pytest

from configs import gdbench
from tests.contrib.autoregressive.tiny import IMAGE_SIZES
from tests.contrib.planning import small
from winobench import parallel
from winobench.base import memory, registry
from winobench.contrib.autoregressive import plans
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.contrib.planning import pair_scoring
from winobench.contrib.planning import plans as all_plans
from winobench.models import functional

# Billions of parameters, and tokens of an image. deepseek-ai's files have 0.0126 more each: SigLIP's pooling, which
# transformers leaves out. Emu3's 8.49 and its tokenizer's 0.27 are two repositories.
SIZES = {
    "janus-pro-1b": (2.0766, 576, 16),
    "janus-pro-7b": (7.4078, 576, 32),
    "emu3-gen": (8.7628, 8190, 8),
    "glm-image": (10.1142, 1280, 2),
}


def arrays_of(planned):
    return functional.split(planned.network)[1]


def test_all_names_have_sizes():
    named = {name for name, model in registry.MODELS.items() if model.scorer == "image_likelihood"}
    assert named - {"clevr-tokens"} == {*plans.RELEASED} == {*SIZES}


def test_the_embedded_model_is_planned_from_its_folder():
    planned = plans.read_generator("clevr-tokens", "bfloat16")
    assert (planned.network.family.length, planned.heads, planned.blocks) == (64, 4, (5,))


@pytest.mark.parametrize("name", SIZES)
def test_released_sizes(name):
    billions, tokens, heads = SIZES[name]
    planned = plans.read_generator(name, "bfloat16")
    arrays = arrays_of(planned)
    assert sum(array.size for array in arrays) / 1e9 == pytest.approx(billions, abs=1e-4)
    assert (planned.network.family.length, planned.heads) == (tokens, heads)
    assert sum(array.nbytes for array in arrays if array.base is None) < 1e6  # shapes without memory
    few = [arrays_of(plans.read_generator(name, "bfloat16", blocks=count)) for count in (1, 2)]
    one, two, whole = (sum(array.nbytes for array in of_few) for of_few in (*few, arrays))
    assert whole - one == (planned.blocks[0] - 1) * (two - one)


@pytest.mark.parametrize("family", IMAGE_SIZES)
@pytest.mark.parametrize("guidance", [None, 3.0])
def test_a_plan_has_what_the_scorer_has(family, guidance, write_generator, load_generator, one_device):
    folder, size = write_generator(family), IMAGE_SIZES[family]
    scorer = ImageLikelihood(load_generator(family, "bfloat16"), guidance=guidance, mesh=one_device, batch_size=3)
    planned = plans.read_generator(str(folder), "bfloat16", image_size=size)
    assert planned.network.family == scorer.model.family
    skeleton = planned.skeleton(one_device, guidance=guidance, preprocessing="squash", text_tokens=8)
    # A counter of Emu3's batch norms is whole here, and float32 in a loaded model.
    shapes, wanted = ([(a.shape, a.ndim and a.dtype) for a in arrays] for arrays in (skeleton.params, scorer._params))
    assert shapes == wanted
    made = pair_scoring.make_scorer(skeleton, 3)
    assert made.weights == memory.array_bytes(scorer._params)
    assert (made.rows, made.images.items) == (scorer._image_rows, scorer._image_encoder.batch_size)
    table = scorer._image_encoder.empty_table(2, scorer.processor.blank)
    assert made.row == memory.array_bytes(table) // 2
    _, *(codes, texts, index) = made.pairs.lower().in_avals[0]
    assert codes.shape == (made.rows, *table.shape[1:])
    assert texts.shape[1] == (1 if guidance is None else 2) * (8 + 24 + 1)
    assert index.shape == (2, 3)
    (seen,) = jax.tree.leaves(made.images.lower().out_info)
    assert seen.shape == (made.images.items, planned.network.family.scored)


def test_devices_share_a_model_that_one_cannot_hold(monkeypatch, write_generator):
    config = dataclasses.replace(
        gdbench.Settings(), model=str(write_generator("janus")), tasks="winoground,clevr", dtype="bfloat16"
    )
    seconds = {"image": 0.5, "pair": 0.25}
    devices = small.Devices(monkeypatch, 2, usable=10**12, seconds=seconds)
    whole = all_plans.make_plan(config, devices.target, say=lambda _: None)
    assert (whole.content["model_parallel"], whole.content["copies"], whole.fits) == (1, 2, True)
    # 1,374 images and 15,028 pairs, which include those with the empty text.
    assert whole.durations[0].parts["scoring"] == pytest.approx(15_028 * 0.25 / whole.content["pairs"]["items"] / 2)
    assert whole.durations[0].parts["seeing"] == pytest.approx(1374 * 0.5 / whole.content["images"]["items"] / 2)
    needed = whole.content["weights"] + whole.content["table"]
    devices = small.Devices(monkeypatch, 2, usable=int(0.8 * needed), seconds=seconds)
    shared = all_plans.make_plan(config, devices.target, say=lambda _: None)
    assert (shared.content["model_parallel"], shared.content["copies"]) == (2, 1)
    assert shared.content["weights"] < 0.8 * whole.content["weights"]
    assert "--model_parallel=2" in " ".join(shared.notes)


@pytest.mark.slow
def test_few_blocks():
    mesh = parallel.make_mesh(jax.devices()[:1])
    options = {"guidance": None, "preprocessing": "squash", "text_tokens": 32}
    few = [((n,), plans.read_generator("janus-pro-1b", "bfloat16", blocks=n).skeleton(mesh, **options)) for n in (1, 2)]
    made = pair_scoring.make_scorer(few[0][1], 2, (24,), few)
    assert made.pairs.blocks == (24,)
    (_, one), (_, two) = made.pairs.shallow_programs()
    assert one.lower().as_text().count("dot_general") < two.lower().as_text().count("dot_general")
