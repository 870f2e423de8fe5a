"""Plans of pipelines that torch runs: shapes alone, by names and by folders."""

import jax
import pytest

from winobench import parallel
from winobench.contrib.planning import abstract, scoring
from winobench.contrib.torch_pipelines import plans
from winobench.models import snapshots

# Parameters and tables in billions, latents of 1,024 pixels, tokens and their width.
SIZES = {
    "pixart-sigma": (0.6156, (128, 128, 4), (300, 4096)),
    "qwen-image": (20.43, (128, 128, 16), (512, 3584)),
    "sana-1.6b": (1.604, (32, 32, 32), (300, 2304)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", plans.RELEASED)
def test_released_sizes(name):
    pipeline = plans.read_pipeline(name, "bfloat16")
    billions, latents, states = SIZES[name]
    arrays = snapshots.split(pipeline.denoiser)[1]
    assert sum(array.size for array in arrays) == pytest.approx(billions * 1e9, rel=5e-3)
    assert sum(array.base is None for array in arrays) == 0
    assert {array.dtype.name for array in arrays} <= {"bfloat16", "float32", "complex64"}
    _, shapes, _, _ = pipeline.host_texts("bfloat16")
    assert shapes["0"].shape == states
    assert shapes["1"].shape == states[:1]
    found = scoring.make_scoring(pipeline, parallel.make_mesh(jax.devices()[:1]), batch=2)
    assert found.weights["denoiser"] == pytest.approx(2 * billions * 1e9, rel=5e-3)
    assert pipeline.latent_shape(1024) == latents
    assert [program.name for program in found.encoders] == ["image encoder"]


@pytest.mark.slow
def test_few_blocks():
    pipeline = plans.read_pipeline("qwen-image", "bfloat16")
    few = abstract.shallow(pipeline)
    assert [counts for counts, _ in few] == [(1,), (2,)]
    sizes = [sum(array.size for array in snapshots.split(one.denoiser)[1]) for _, one in (*few, ((60,), pipeline))]
    assert sizes[2] - sizes[0] == 59 * (sizes[1] - sizes[0]) > 0
    mesh = parallel.make_mesh(jax.devices()[:1])
    made = scoring.make_scoring(pipeline, mesh, batch=1, shallow=few)
    assert made.step.blocks == (60,)
    (_, one), (_, two) = made.step.shallow_programs()
    assert one.lower().as_text().count("dot_general") < two.lower().as_text().count("dot_general")
