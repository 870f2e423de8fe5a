"""Plans of generators: shapes alone, by names and by folders, and the bytes and programs that follow."""

import dataclasses
import types

import jax
import pytest

from configs import gdbench, images
from tests.contrib.autoregressive.tiny import IMAGE_SIZES
from tests.contrib.planning import small
from tests.expectations import raises
from winobench import parallel
from winobench.base import memory, registry
from winobench.base.errors import InputError
from winobench.contrib.autoregressive import answering, plans
from winobench.contrib.autoregressive.answering import AnswerScore
from winobench.contrib.autoregressive.generation import TokenGeneration
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.contrib.planning import generating, pair_scoring, plan, vision_language
from winobench.contrib.planning import plans as all_plans
from winobench.contrib.planning.vision_language import Question
from winobench.diffusion import pure_functions
from winobench.models import functional
from winobench.responders import batches
from winobench.scorers import loading

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


@pytest.mark.quick(1)
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


@pytest.mark.quick(1)
@pytest.mark.parametrize("family", IMAGE_SIZES)
@pytest.mark.parametrize("guidance", [None, 3.0])
def test_a_plan_has_what_the_scorer_has(family, guidance, write_generator, load_generator, one_device):
    folder, size = write_generator(family), IMAGE_SIZES[family]
    scorer = ImageLikelihood(load_generator(family, "bfloat16"), guidance=guidance, mesh=one_device, batch_size=3)
    planned = plans.read_generator(str(folder), "bfloat16", image_size=size)
    assert planned.network.family == scorer.model.family
    skeleton = pair_scoring.Network(one_device, *planned.scoring(one_device, guidance, "squash", 8))
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


@pytest.mark.parametrize("sharing", [1, 2])
def test_a_plan_of_answers_has_what_the_scorer_has(write_generator, sharing):
    folder, mesh = str(write_generator("janus")), parallel.make_mesh(jax.devices()[:sharing], model_parallel=sharing)
    scorer = AnswerScore.from_pretrained(folder, "bfloat16", mesh=mesh, batch_size=3)
    planned = plans.read_generator(folder, "bfloat16")
    asked = Question(len(scorer._loaded.tokens(scorer.question, [""])[0]), 40)
    made = pair_scoring.make_scorer(vision_language.network_of(*planned.answering(mesh), asked, mesh), 3)
    assert made.weights == batches.parameter_bytes(scorer._params)
    assert (made.rows, made.images.items) == (scorer._image_rows, scorer._image_encoder.batch_size)
    table = scorer._image_encoder.empty_table(2, scorer.processor.blank)
    assert made.row == sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(table)) // 2
    shapes = [leaf.shape for leaf in jax.tree.leaves(made.pairs.lower().in_avals)]
    assert shapes[len(scorer._params) :] == [
        *((made.rows, *leaf.shape[1:]) for leaf in jax.tree.leaves(table)),
        (shapes[-2][0], 41),
        (2, 3),
    ]


def test_the_question_of_released_names_is_the_published_one(load_generator):
    """The blank behind the answer's start, and the system prompt, are of transformers."""
    assert plans.read_generator("janus-pro-1b", "bfloat16").form() == answering.form_of(
        load_generator("janus").processor
    )


@pytest.mark.parametrize(("name", "reason"), [("emu3-gen", "answers nothing"), ("clevr-tokens", "is not trained")])
def test_answers_of_models_that_have_none_are_refused(name, reason):
    with pytest.raises(InputError, match=reason) as raised:
        plans.read_generator(name, "bfloat16").form()
    assert raised.value.code == "kind-not-answered"


@pytest.mark.parametrize(("guidance", "sharing"), [(None, 1), pytest.param(1.0, 2, marks=pytest.mark.slow)])
def test_the_programs_are_those_that_generate(write_generator, monkeypatch, guidance, sharing):
    """To the letter, as JAX's compilers take them."""
    folder, ran, call = str(write_generator("janus")), [], pure_functions.call_on_rows

    def noted(*arguments):
        ran.append(call.lower(*arguments).as_text())
        return call(*arguments)

    mesh = parallel.make_mesh(jax.devices()[: 2 * sharing], model_parallel=sharing)
    made = TokenGeneration.from_pretrained(folder, mesh=mesh)
    monkeypatch.setattr(pure_functions, "call_on_rows", noted)
    made.generate(["a dog"], guidance_scale=guidance, batch_size=4)
    monkeypatch.undo()
    target = types.SimpleNamespace(text="h100:4", devices=tuple(mesh.devices.flat))
    target.accelerator = types.SimpleNamespace(platform="gpu")
    config = images.Settings(model=folder, guidance_scale=guidance, model_parallel=sharing)
    planned = next(generating._of_tokens(plan.Job(config, target), loading.resolve(folder), target.devices))
    assert [program.lower().as_text() for program in planned.programs(2)] == ran
    assert planned.weights["network"] == batches.parameter_bytes(made._params)


def test_a_plan_of_generation_takes_as_many_devices_as_needed(monkeypatch, write_generator):
    config = images.Settings(model=str(write_generator("janus")), prompts="clevr:14", batch_size=4)
    whole, devices = None, 2
    for usable in (10**12, None):
        usable = usable or int(0.8 * sum(whole.content["generators"][0]["weights"].values()))
        made = small.Devices(monkeypatch, devices, usable=usable, seconds={"image": 0.5})
        planned = all_plans.make_plan(config, made.target, say=lambda _: None)
        (generator,) = planned.content["generators"]
        sharing = 1 if whole is None else 2
        assert (generator["model_parallel"], generator["batch"]) == (sharing, 4)
        assert generator["images_per_second"] == 4 / (0.5 + 0.5) / sharing
        # 14 images, 4 at once on each copy.
        assert planned.durations[0].parts["generation"] == 0.5 * (2 if sharing == 1 else 4)
        whole = planned
    assert "--model_parallel=2" in " ".join(planned.notes)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": "glm-image"}, "wrong-kind-of-model"),
        ({"num_steps": 20}, "option-of-others"),
        ({"model": "clevr-tiny", "model_parallel": 2}, "option-of-others"),
    ],
)
def test_generation_that_cannot_be_planned(monkeypatch, changes, code):
    devices = small.Devices(monkeypatch, 1, usable=10**12, seconds={"image": 0.5})
    with raises(code):
        all_plans.make_plan(images.Settings(**{"model": "janus-pro-1b", **changes}), devices.target)


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
    mesh, few = parallel.make_mesh(jax.devices()[:1]), []
    for blocks in (1, 2):
        planned = plans.read_generator("janus-pro-1b", "bfloat16", blocks=blocks)
        few.append(((blocks,), pair_scoring.Network(mesh, *planned.scoring(mesh, None, "squash", 32))))
    made = pair_scoring.make_scorer(few[0][1], 2, (24,), few)
    assert made.pairs.blocks == (24,)
    (_, one), (_, two) = made.pairs.shallow_programs()
    assert one.lower().as_text().count("dot_general") < two.lower().as_text().count("dot_general")
