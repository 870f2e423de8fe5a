import contextlib
import json

import numpy as np
import pytest

from benchmarks import language_model, vision_language
from tests.tiny_language_models import compile_quickly


@pytest.mark.slow
def test_runs_and_all_agree(tmp_path, capsys, monkeypatch):
    compile_quickly(monkeypatch)
    output = tmp_path / "results" / "figures.json"
    language_model.main(["--size=small", "--rounds=1", f"--output={output}"])
    figures = json.loads(output.read_text())
    names = ["torch, batched", "torch, prefix shared", "winobench, nothing shared", "winobench"]
    for work, limit in (("options", language_model.SCORE_TOLERANCE), ("generation", 0.0)):
        results = figures["results"][work]
        assert list(results) == names
        for result in results.values():
            assert result["difference"] <= limit
            assert result["per_second"] * result["seconds"] == pytest.approx(5 if work == "options" else 30)
            assert len(result["seconds_of_each_round"]) == 1
    assert figures["dtype"] == "float32"
    assert "5 questions of 4 to 12 tokens behind 20 shared ones" in figures["work"]
    table = capsys.readouterr().out
    assert all(table.count(f"| {name} |") == 2 for name in names)


@pytest.mark.parametrize(
    ("module", "work", "results", "reference", "message"),
    [
        (language_model, "options", [[-1.0, -2.0]], [[-1.0, -2.0]], None),
        (language_model, "options", [[-1.0, -2.0011]], [[-1.0, -2.0]], "scores differ by up to 0.0011"),
        (language_model, "options", [[-1.0, float("nan")]], [[-1.0, -2.0]], "scores differ by up to nan"),
        (language_model, "generation", [[2, 3]], [[2, 4]], "100% of the texts differ"),
        (vision_language, "scores", [[1.0, 2.0]], np.array([[1.0, 2.0]]), None),
        (vision_language, "scores", [[1.0, 2.001]], np.array([[1.0, 2.0]]), "scores differ by up to 0.0005"),
        (vision_language, "scores", [[1.0, float("nan")]], np.array([[1.0, 2.0]]), "scores differ by up to nan"),
        (vision_language, "captions", ["a", "c"], ["a", "b"], "50% of the texts differ"),
    ],
)
def test_what_counts_as_the_same(module, work, results, reference, message):
    peer = "torch, batched" if module is language_model else "torch"
    refused = pytest.raises(RuntimeError, match=f"winobench and {peer} do not do the same: {message}")
    with refused if message else contextlib.nullcontext():
        module.check_agreement(work, "winobench", results, reference)


def test_real_size_is_llama_2():
    import torch
    import transformers

    with torch.device("meta"):
        network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**language_model.SIZES["7b"].network))
    assert round(sum(parameter.numel() for parameter in network.parameters()) / 1e7) == 674
