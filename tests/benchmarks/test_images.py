"""The benchmark of drawing, as small as it can be: both draw the same, and what it prints."""

import pytest

from benchmarks import images
from winobench.base.errors import InputError


@pytest.mark.slow
def test_both_draw_the_same(tmp_path):
    figures = images.measure("clevr-tiny", "cpu", images=2, batch_size=2, steps=2, rounds=1)
    assert figures["difference"] < 1e-4
    assert set(figures["images_per_second"]) == {"winobench", "torch diffusers"}
    figures["machine"] = {"accelerator": "a GPU", "libraries": {"jax": "1", "diffusers": "2", "torch": "3"}}
    figures["load_average"] = [0, 1]
    assert "| torch diffusers | " in images.table(figures)


@pytest.mark.slow
def test_another_family_is_refused():
    with pytest.raises(InputError, match="StableDiffusion3Pipeline"):
        images.measure("clevr-flow", "cpu", images=1, batch_size=1, steps=1, rounds=1)
