"""Deep transformers planned from shallow ones: the arithmetic by hand, and by a compiler that takes all blocks."""

import dataclasses
import types

import pytest

from tests.planning import small
from winobench import parallel
from winobench.accelerators import ACCELERATORS
from winobench.planning import abstract, few_blocks, fit, hlo, plans, programs, topologies
from winobench.planning.compiling import Compiled, compile_program
from winobench.planning.roofline import Sum


def compiled(double, single, *, temporaries=0, more=0):
    """A step of 10 ms and two products, and 3 and 5 ms and one product for each block of a kind."""
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
        ((8, 24), ((1, 1), (2, 1), (1, 2))),
        ((3, 5), ()),  # 8 blocks are no more than those together
        ((1, 1), ()),
        ((), ()),  # a UNet
    ],
)
def test_what_is_compiled(full, counts):
    assert few_blocks.shallow_counts(full) == counts


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("sd3-medium", (24,)),
        ("sd35-medium", (11, 13)),
        ("sd35-large", (38,)),
        ("flux1-dev", (19, 38)),
        ("flux2-klein-4b", (5, 20)),
        ("flux2-klein-9b", (8, 24)),
        ("z-image-turbo", (30,)),
        ("sd21-base", ()),
        ("sdxl", ()),
    ],
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
        ({"denoiser": 24e9, "text encoders": 9e9}, "resident", "take 35.0 GB of 33.6: try --config.encoders=staged"),
        # They would be there together while texts are encoded.
        ({"denoiser": 24e9, "text encoders": 10e9}, "resident", "take 36.0 GB of 33.6: try --config.model_parallel=2"),
        ({"denoiser": 40e9, "text encoders": 0}, "staged", "take 42.0 GB of 33.6: try --config.model_parallel=2"),
    ],
)
def test_weights_that_do_not_fit_are_not_compiled(weights, encoders, advice):
    program = programs.Program("image encoder", "image", 8, lambda _: pytest.fail("it was lowered"))
    scoring = programs.Scoring(weights, int(2e9), 1, lambda _: program, (program,))
    found = fit.fit_scorer(scoring, V6E, largest=True, say=lambda _: pytest.fail("something was compiled"))
    assert (found.step, found.encoders) == (None, (None,))
    (note,) = plans._notes(found, types.SimpleNamespace(encoders=encoders, model_parallel=1), V6E)
    assert advice in note


def test_staged_encoders_are_beside_the_denoiser_while_they_encode():
    """FLUX.1-dev's weights on a v6e: 24.1 GB while passes are scored, 34.1 GB before."""
    scoring = programs.Scoring({"denoiser": 24.1e9, "text encoders": 0}, int(2e9), 5, None, (), int(10e9))
    found = fit.Fit(scoring, compiled(1, 1), (), None)
    config = types.SimpleNamespace(encoders="staged", model_parallel=1)
    (note,) = plans._notes(found, config, V6E)
    assert "all weights take 34.1 GB of 33.6" in note
    assert "--config.model_parallel=2" in note
    fitting = dataclasses.replace(found, scoring=dataclasses.replace(scoring, staged=int(9e9)))
    assert plans._notes(fitting, config, V6E) == []


@pytest.mark.slow
def test_few_blocks_say_what_all_of_them_would(monkeypatch, tmp_path):
    """The step of a narrow FLUX.1 with 1 + 9 blocks, from 1 + 1 and 1 + 2, by the TPU's compiler."""
    pytest.importorskip("libtpu")
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    target = topologies.find("v5e:1x1")
    pipeline = abstract.make_pipeline(small.flux_description(double=1, single=9), "bfloat16")
    whole = pipeline.denoiser.config
    shallow = [
        (counts, abstract.with_denoiser(pipeline, whole.with_block_counts(*counts)))
        for counts in few_blocks.shallow_counts(few_blocks.block_counts(whole))
    ]
    mesh = parallel.make_mesh(target.devices)
    few, all_blocks = (
        compile_program(programs.scoring(pipeline, mesh, shallow=own).step(2), target) for own in (shallow, ())
    )
    assert (few.blocks, all_blocks.blocks) == ((1, 9), ())
    assert few.operations == pytest.approx(all_blocks.operations, rel=1e-3)
    assert few.arguments == pytest.approx(all_blocks.arguments, rel=1e-3)
    assert few.kernels[hlo.ATTENTION].count == all_blocks.kernels[hlo.ATTENTION].count == 10
    assert few.seconds == pytest.approx(all_blocks.seconds, rel=0.1)
    assert few.bytes == pytest.approx(all_blocks.bytes, rel=0.1)
    assert few.temporaries == pytest.approx(all_blocks.temporaries, rel=0.2)
