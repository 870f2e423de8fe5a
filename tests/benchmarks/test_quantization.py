"""The comparison of arithmetics, in its smallest form."""

import json

import numpy as np
import pytest

from benchmarks import quantization
from tests.expectations import names
from winobench.errors import InputError
from winobench.evaluation import plan as planning
from winobench.tasks import get_task


@pytest.mark.slow
def test_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(quantization, "_TIMED_BATCHES", 1)
    monkeypatch.setattr(quantization, "ARITHMETICS", {"float32": ("float32", "none"), "int8": ("float32", "int8")})
    output = tmp_path / "figures.json"
    options = ["--tasks", "clevr", "--scenes", "1", "--samples", "2", "--rounds", "1", "--output", str(output)]
    quantization.main(["--called", "trained", *options])
    figures = json.loads(output.read_text())
    found = figures["models"]["trained"]["arithmetics"]
    assert list(found) == ["float32", "int8", quantization.OTHER_SEED]
    assert found["float32"]["errors_change"] == 0
    assert found["float32"]["tasks"]["clevr"]["as_float32"] == 1
    assert 1e-4 < found["int8"]["errors_change"] < 0.05
    assert found["int8"]["parameter_bytes"] < 0.3 * found["float32"]["parameter_bytes"]
    assert found["int8"]["passes_per_second"][0] > 0
    assert found["int8"]["tasks"]["clevr"]["n"] == 14
    assert figures["machine"]["libraries"]["qwix"].startswith("0.1.")
    table = capsys.readouterr().out
    assert all(f"| {name} |" in table for name in found)


@pytest.mark.slow
def test_differences_are_those_of_the_scores():
    tasks = [get_task("clevr"), get_task("clevr_image")]
    plan = planning.make_plan(tasks, data_dir=None, limit=1, normalize="auto")
    errors = np.random.default_rng(0).random((len(plan.pairs), 3)).astype(np.float32)
    found = quantization.differences(plan, errors)
    scores = [
        matrix.ravel()
        for name in plan.questions
        for matrix in quantization.summary.question_scores(plan, name, errors)
        if matrix.size == 2
    ]
    np.testing.assert_allclose(found.mean(axis=1), [one - other for one, other in scores], rtol=1e-6, atol=1e-7)
    assert len(found) >= 14


def test_bad_arguments():
    with pytest.raises(InputError, match="--samples is 0"):
        quantization.main(["--samples", "0"])
    with pytest.raises(InputError, match=names("--called", "2", "--model", "1")):
        quantization.main(["--called", "a", "b"])
