"""VQAScore planned ahead: what a scorer has on its devices, from shapes, and what follows from what compilers say."""

import dataclasses
import io
import json
import math

import jax
import numpy as np
import pytest
import rich.console
from flax import nnx

from configs import gdbench
from tests.contrib.planning import small
from tests.expectations import names
from tests.tiny_vision_language import SIZE, write_vision_language
from winobench import parallel
from winobench.base import memory, registry
from winobench.base.errors import InputError
from winobench.checkpoints import language_models
from winobench.checkpoints import vision_language as checkpoints
from winobench.contrib.planning import asking, few_blocks, plans, released_vision_language, table, vision_language
from winobench.contrib.planning.vision_language import Question
from winobench.scorers.vqa_score import VQAScore

# Billions of parameters, as published files have them (docs/howto/vision_language.md).
PARAMETERS = {
    "instructblip-flan-t5-xl": 4.02,
    "blip2-flan-t5-xl": 3.94,
    "blip2-opt-2.7b": 3.74,
    "blip2-opt-6.7b": 7.75,
    "llava-1.5-7b": 7.06,
    "llava-1.5-13b": 13.35,
    "qwen2.5-vl-3b": 3.75,
    "qwen2.5-vl-7b": 8.29,
    "qwen2.5-vl-32b": 33.45,
    "qwen2.5-vl-72b": 73.41,
    "qwen3-vl-2b": 2.13,
    "qwen3-vl-4b": 4.44,
    "qwen3-vl-8b": 8.77,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_vision_language(tmp_path_factory.mktemp("model"), "llava")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "blip2-opt-2.7b" else [pytest.mark.slow]) for name in PARAMETERS]
)
def test_released_sizes(name):
    config = released_vision_language.vision_language_config(name)
    network = language_models.abstract_network(vision_language.network_class(config), config)
    count = sum(math.prod(each.shape) for each in jax.tree.leaves(nnx.state(network)))
    assert round(count / 1e9, 2) == PARAMETERS[name]


def test_released_names_have_sizes():
    named = {name for name, model in registry.MODELS.items() if model.scorer == "vqa_score"}
    assert named == PARAMETERS.keys()
    assert all(
        asking.heads_of(each.text_config) % 2 == 0
        for each in map(released_vision_language.vision_language_config, named)
    )


def test_the_plan_has_what_the_scorer_has(folder):
    mesh = parallel.make_mesh(jax.devices()[:1])
    scorer = VQAScore.from_pretrained(folder, mesh=mesh, batch_size=3)
    network = vision_language.read_config(str(folder))
    texts = ["a red cube", "a ball"]
    rows = scorer._tokenize(texts)
    before, _ = scorer._loaded.tokens(scorer.question, [""])
    asked = Question(len(before), rows[0][0].shape[0] - 1)
    planned_scorer = vision_language.make_scorer(network, mesh, asked, batch_size=3)
    assert planned_scorer.weights == memory.array_bytes(scorer._params)
    assert (planned_scorer.rows, planned_scorer.images.items) == (scorer._image_rows, scorer._image_encoder.batch_size)
    table = scorer._image_encoder.empty_table(2, np.zeros((SIZE, SIZE, 3), np.uint8))
    assert planned_scorer.row == memory.array_bytes(table) // 2
    given = [leaf.shape for leaf in jax.tree.leaves(planned_scorer.pairs.lower().in_avals)]
    assert given[-1] == (2, 3)
    assert [shape[1:] for shape in given[len(scorer._params) : -1 - len(rows[0])]] == [
        leaf.shape[1:] for leaf in jax.tree.leaves(table)
    ]
    (seen,) = {leaf.shape[0] for leaf in jax.tree.leaves(planned_scorer.images.lower().out_info)}
    assert seen == planned_scorer.images.items


def test_devices_that_share_the_parameters_share_the_images():
    """A LLaVA's: each has its heads'. The Q-Former's are few, and whole on each."""
    shared = {}
    for name in ("llava-1.5-7b", "instructblip-flan-t5-xl"):
        network = released_vision_language.vision_language_config(name)
        asked = Question.of(vision_language.network_class(network).form, 4.0, 32)
        shallow = vision_language.with_block_counts(network, [1] * len(vision_language.block_counts(network)))
        one, two = (
            vision_language.make_scorer(
                shallow, parallel.make_mesh(jax.devices()[:2], model_parallel=parts), asked, dtype="bfloat16"
            )
            for parts in (1, 2)
        )
        assert (one.copies, two.copies) == (2, 1)
        assert one.weights > two.weights > one.weights // 2 - 1
        shared[name] = one.row / two.row
        # Two copies hand each other what they have seen, and make one array of it.
        assert one.needed("image", 4) - one.needed("pair", 4) == (1 + 2 + 2) * 4 * one.row
        assert two.needed("image", 4, 7) - two.needed("pair", 4) == (1 + 1) * 4 * two.row
    assert shared == {"llava-1.5-7b": 2, "instructblip-flan-t5-xl": 1}


def test_how_long_the_question_is():
    forms = {name: cls.form for name, cls in checkpoints.NETWORKS.items()}
    assert Question.of(forms["instructblip"], 4.0, 32) == Question(0, 48)
    assert Question.of(forms["llava"], 4.0, 32) == Question(41, 48)
    assert Question.of(forms["instructblip"], 4.0, 500) == Question(0, 128)  # longer ones lose their beginning


def test_few_layers():
    counts = {"llava-1.5-7b": (24, 32), "instructblip-flan-t5-xl": (39, 6, 24)}
    for name, expected in counts.items():
        network = released_vision_language.vision_language_config(name)
        assert vision_language.block_counts(network) == expected
        few = few_blocks.shallow_counts(expected)
        assert [vision_language.block_counts(vision_language.with_block_counts(network, each)) for each in few] == [
            *few
        ]

    @dataclasses.dataclass(frozen=True)
    class Other(type(network.vision_config)):
        """A part whose layers nobody said are alike."""

    other = dataclasses.replace(network, vision_config=Other())
    assert vision_language.block_counts(other) == ()


def devices_of(*arguments, **options):
    return small.Devices(*arguments, seconds={"image": 0.5, "pair": 0.25}, **options)


def planned(devices, folder, numbers=(), **fields):
    config = dataclasses.replace(gdbench.Settings(), model=str(folder), tasks="winoground,clevr", **fields)
    return plans.make_plan(config, devices.target, devices=numbers, price=2.0, say=lambda _: None)


def shown(plan):
    console = rich.console.Console(width=200, record=True, file=io.StringIO())
    table.print_plans([plan], details=True, console=console)
    return console.export_text()


def test_as_few_devices_share_as_hold_it(monkeypatch, folder):
    devices = devices_of(monkeypatch, 4, usable=10**12)
    whole = planned(devices, folder)
    assert (whole.content["model_parallel"], whole.content["copies"], whole.fits) == (1, 4, True)
    devices = devices_of(monkeypatch, 4, usable=int(0.8 * (whole.content["weights"] + whole.content["table"])))
    plan = planned(devices, folder, numbers=(2, 4), batch_size=2)
    assert (plan.content["model_parallel"], plan.content["copies"]) == (2, 2)
    assert plan.content["weights"] < 0.8 * whole.content["weights"]
    assert "--model_parallel=2" in " ".join(plan.notes)
    # 1,374 images and 15,028 pairs, two copies.
    two, four = plan.durations
    assert two.parts["seeing"] == pytest.approx(1374 * 0.5 / plan.content["images"]["items"])
    assert four.parts["seeing"] == pytest.approx(two.parts["seeing"] / 2)
    assert two.parts["scoring"] == pytest.approx(15_028 * 0.25 / 2)
    assert two.parts["compiling"] == 6.0
    with pytest.raises(InputError, match=names("--devices", "3", "2")):
        planned(devices, folder, numbers=(3,))


def test_what_does_not_fit_is_halved(monkeypatch, folder):
    devices = devices_of(monkeypatch, 1, usable=10**12, most=3)
    plan = planned(devices, folder, batch_size=9)
    images = [items for noun, items in devices.asked if noun == "image"]
    assert images[-1] <= 3
    assert [items for noun, items in devices.asked if noun == "pair"] == [9, 4, 2]
    written = json.loads(json.dumps(plan.as_json()))
    assert written["pairs"]["per_second"] == 8
    assert written["fits"]
    for words in ("pairs/s", "tables", "seeing", "dollars"):
        assert words in shown(plan), words
    # Where not even the weights fit.
    devices = devices_of(monkeypatch, 2, usable=10_000)
    plan = planned(devices, folder)
    assert (devices.asked, plan.fits, plan.durations) == ([], False, ())
    assert "--dtype=bfloat16" in plan.notes[-1]
    assert "does not fit" in shown(plan)
