"""Deep transformers planned from shallow ones: the arithmetic by hand, and by a compiler that takes all blocks."""

import dataclasses
import types

import pytest

from tests.contrib.planning import small
from winobench import parallel
from winobench.base.accelerators import ACCELERATORS
from winobench.contrib.planning import abstract, few_blocks, hlo, programs, scoring, topologies
from winobench.contrib.planning import plan as planning
from winobench.contrib.planning.compiling import compile_program
from winobench.contrib.planning.programs import Compiled
from winobench.contrib.planning.roofline import Sum


def compiled(double, single, *, temporaries=0, more=0):
    seconds = (10 + 3 * double + 5 * single) / 1e3
    return Compiled(
        "denoising step",
        "pass",
        8,
        temporaries=1000 + temporaries,
        arguments=100 + 7 * double + 11 * single,
        code=50 * double + 20 * single + more,
        kernels={
            "matrix product": Sum(2 + double + single, 4.0 * double, 2.0 * single, seconds),
            "other": Sum(1, 0.0, 1.0, 0.0),
        },
        collectives={"all-reduce": 2 * double},
        compile_seconds=20.0,
    )


def test_sums_over_blocks():
    full = (19, 38)
    counts = few_blocks.shallow_counts(full)
    assert counts == ((1, 1), (2, 1), (1, 2))
    found = [(each, compiled(*each)) for each in counts]
    expected = dataclasses.replace(compiled(*full), compile_seconds=60.0, blocks=full)
    result = few_blocks.extrapolated(full, found)
    product = result.kernels["matrix product"]
    assert product.seconds == pytest.approx(expected.seconds)
    assert dataclasses.replace(result, kernels={}) == dataclasses.replace(expected, kernels={})
    assert (product.count, product.operations, product.bytes) == (59, 76.0, 76.0)


def test_temporaries_grow_but_do_not_shrink():
    """What lies between layers is used again, by the third block at the latest."""
    found = [((1,), compiled(1, 0)), ((2,), compiled(2, 0, temporaries=-5))]
    assert few_blocks.extrapolated((38,), found).temporaries == 1000
    found = [((1,), compiled(1, 0)), ((2,), compiled(2, 0, temporaries=5))]
    assert few_blocks.extrapolated((38,), found).temporaries == 1000 + 2 * 5


@pytest.mark.parametrize(
    ("full", "counts"),
    [
        ((38,), ((1,), (2,))),
        ((1, 20), ((1, 1), (1, 2))),
        ((3, 5), ()),  # 8 blocks are no more than those together
        ((), ()),  # a UNet
    ],
)
def test_what_is_compiled(full, counts):
    assert few_blocks.shallow_counts(full) == counts


@pytest.mark.parametrize(
    ("name", "counts"), [("sd3-medium", (24,)), ("flux1-dev", (19, 38)), ("z-image-turbo", (30,)), ("sd21-base", ())]
)
def test_blocks_of_released_networks(name, counts):
    config = abstract.read_description(name).denoiser_config
    assert few_blocks.block_counts(config) == counts
    if counts:
        assert config.with_block_counts(*counts) == config
        assert few_blocks.block_counts(config.with_block_counts(*(n + 1 for n in counts))) == tuple(
            n + 1 for n in counts
        )


V6E = types.SimpleNamespace(text="v6e:2x4", accelerator=ACCELERATORS["v6e"])


@pytest.mark.parametrize(
    ("weights", "encoders", "advice"),
    [
        # Either of them without the other one, the larger one beside the tables.
        ({"denoiser": 24e9, "text encoders": 31e9}, "resident", "take 57.0 GB of 33.6: try --encoders=staged"),
        ({"denoiser": 24e9, "text encoders": 32e9}, "resident", "take 58.0 GB of 33.6: try --model_parallel=2"),
        ({"denoiser": 40e9, "text encoders": 0}, "staged", "take 42.0 GB of 33.6: try --model_parallel=2"),
    ],
)
def test_weights_that_do_not_fit_are_not_compiled(weights, encoders, advice):
    program = programs.Program("image encoder", "image", 8, lambda _: pytest.fail("it was lowered"))
    config = types.SimpleNamespace(encoders=encoders, model_parallel=1)
    job = planning.Job(config, V6E, largest=True, say=lambda _: pytest.fail("something was compiled"))
    found = scoring.fit(scoring.Scoring(weights, int(2e9), program, (program,)), job)
    assert (found.step, found.encoders) == (None, (None,))
    (note,) = scoring.advice(found, job)
    assert advice in note


def test_staged_encoders_are_there_without_the_denoiser(monkeypatch):
    """An autoencoder of 0.3 GB and tables of 2 GB are beside either of them."""
    program = programs.Program("text encoder", programs.TEXT, 8, None)
    weights = {"denoiser": int(24e9), "autoencoder": int(0.3e9), "text encoders": 0}
    step = programs.Program("denoising step", "pass", 5, None)
    made = scoring.Scoring(weights, int(2e9), step, (program,), int(32e9))
    assert [made.needed(noun, 1, 0) for noun in ("pass", "image", "text")] == [26.3e9, 26.3e9, 34.3e9]
    config = types.SimpleNamespace(encoders="staged", model_parallel=1)
    job = planning.Job(config, V6E, say=lambda _: None)

    def planned(made, temporaries):
        def compile_program(program, target):
            return dataclasses.replace(compiled(1, 1), noun=program.noun, temporaries=int(temporaries), code=0)

        monkeypatch.setattr(planning, "compile_program", compile_program)
        return scoring.fit(made, job)

    # Texts that are encoded already can be scored, and the encoder is not compiled.
    found = planned(made, 1e9)
    assert (found.step.noun, found.encoders) == ("pass", (None,))
    (note,) = scoring.advice(found, job)
    assert "while texts are encoded, weights and tables take 34.3 GB of 33.6" in note
    assert "--model_parallel=2" in note
    # 26.3 and 24.3 GB leave room for programs of 7.3 and 9.3 GB.
    fitting = dataclasses.replace(made, staged=int(22e9))
    found = planned(fitting, 7.2e9)
    assert None not in (found.step, *found.encoders)
    assert scoring.advice(found, job) == []
    found = planned(fitting, 9.2e9)
    assert found.step is None
    assert found.encoders[0].noun == programs.TEXT
    found = planned(fitting, 9.4e9)
    assert (found.step, found.encoders) == (None, (None,))


@pytest.mark.slow
@pytest.mark.usefixtures("little_effort")
def test_few_blocks_say_what_all_of_them_would(monkeypatch, tmp_path):
    """The step of a narrow FLUX.1 with 1 + 5 blocks, from 1 + 1 and 1 + 2, by the TPU's compiler."""
    pytest.importorskip("libtpu")
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    target = topologies.find("v5e:1x1")
    pipeline = abstract.make_pipeline(small.flux_description(double=1, single=5), "bfloat16")
    shallow = abstract.shallow(pipeline)
    mesh = parallel.make_mesh(target.devices)
    few, all_blocks = (
        compile_program(scoring.make_scoring(pipeline, mesh, batch=32, shallow=own).step, target)  # not all on the chip
        for own in (shallow, ())
    )
    assert (few.blocks, all_blocks.blocks) == ((1, 5), ())
    assert few.operations == pytest.approx(all_blocks.operations, rel=1e-3)
    assert few.arguments == pytest.approx(all_blocks.arguments, rel=1e-3)
    # A block of two streams has two, of the image's and the text's queries.
    assert few.kernels[hlo.ATTENTION].count == all_blocks.kernels[hlo.ATTENTION].count == 2 * 1 + 5
    assert few.seconds == pytest.approx(all_blocks.seconds, rel=0.1)
    assert few.bytes == pytest.approx(all_blocks.bytes, rel=0.1)
    # Rather too many: what lies between layers stops growing before the third block.
    assert 0.8 < few.temporaries / all_blocks.temporaries < 1.5


def test_devices_that_share_a_copy_count_once():
    step = types.SimpleNamespace(items=8, seconds=1.0, compile_seconds=2.0)
    found = types.SimpleNamespace(step=step, encoders=(), scoring=types.SimpleNamespace(weights={}, staged=0))
    job = types.SimpleNamespace(
        config=types.SimpleNamespace(model_parallel=2),
        copies=lambda devices, parts: devices // parts,
        stored=lambda images, devices: 0,
        assumed=types.SimpleNamespace(storage_rate=1.0, rounds=1),
    )
    total = types.SimpleNamespace(passes=80, images=0)
    assert scoring._duration(found, total, job, 4).parts["scoring"] == 5.0
