import json

import pytest

from benchmarks import language_model
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
    ("work", "results", "message"),
    [
        ("options", [[-1.0, -2.0]], None),
        ("options", [[-1.0, -2.0011]], "scores differ by up to 0.0011"),
        ("options", [[-1.0, float("nan")]], "scores differ by up to nan"),
        ("generation", [[2, 3]], "100% of the texts differ"),
    ],
)
def test_what_counts_as_the_same(work, results, message):
    reference = [[-1.0, -2.0]] if work == "options" else [[2, 4]]
    if message is None:
        language_model.check_agreement(work, "winobench", results, reference)
    else:
        with pytest.raises(RuntimeError, match=f"winobench and torch, batched do not do the same: {message}"):
            language_model.check_agreement(work, "winobench", results, reference)


def test_real_size_is_llama_2():
    import torch
    import transformers

    with torch.device("meta"):
        network = transformers.LlamaForCausalLM(transformers.LlamaConfig(**language_model.SIZES["7b"].network))
    assert round(sum(parameter.numel() for parameter in network.parameters()) / 1e7) == 674
