import json
import re

import diffusers
import jax
import pytest
import torch

from benchmarks import hardneg
from tests.expectations import names
from tests.parity.harness import QUICK_COMPILATION
from winobench.models import lora
from winobench.models.unet_2d_condition import UNet2DConditionModel

FIRST_STEP = {"loss": 0.003, "positive_error": 1.3, "negative_error": 1.297, "gradient_norm": 0.06}


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", hardneg.TOLERANCE), ("bfloat16", 1e-2)])
def test_runs_and_all_agree(dtype, tolerance, tmp_path, capsys, monkeypatch):
    make_step = hardneg.loop.make_step

    def make_quickly(*arguments, **options):
        return jax.jit(make_step(*arguments, **options).__wrapped__, compiler_options=QUICK_COMPILATION)

    monkeypatch.setattr(hardneg.loop, "make_step", make_quickly)
    output = tmp_path / "results" / "figures.json"
    hardneg.main(["--size=small", f"--dtype={dtype}", "--rounds=2", "--steps=1", f"--output={output}"])
    figures = json.loads(output.read_text())
    results = figures["results"]
    assert list(results) == ["winobench", "torch, one after the other", "torch, batched"]
    for result in results.values():
        low, high = result["lowest_and_highest"]
        assert 0 < low <= result["images_per_second"] + 1e-4 <= high + 2e-4  # both ends are rounded to 1e-4
        assert len(result["seconds_a_step_of_each_round"]) == 2
        assert result["loss_difference"] <= tolerance
    assert figures["dtype"] == dtype
    # One transformer down, one in the middle and two up, four projections each.
    assert "adapters of rank 4 on 16 layers" in figures["work"]
    assert figures["machine"]["libraries"]["peft"]
    table = capsys.readouterr().out
    assert all(f"| {name} |" in table for name in results)


@pytest.mark.slow
def test_adapters_that_are_a_little_larger_are_noticed(tmp_path):
    size = hardneg.SIZES["small"]
    hardneg.write_unet(tmp_path, size.unet, "cpu")
    batch = hardneg.make_batch(size)

    def first_step(scale, batched):
        factors = hardneg.make_adapters(tmp_path)
        factors = {name: values._replace(up=scale * values.up) for name, values in factors.items()}
        peer = hardneg.TorchPeer(tmp_path, "float32", "cpu", factors)
        metrics = peer.step(peer.prepare(batch), batched=batched, draws=hardneg.first_draws(batch))
        return {name: float(value) for name, value in metrics.items()}

    reference = first_step(1.0, batched=True)
    hardneg.check_agreement("torch", first_step(1.0, batched=False), reference)
    with pytest.raises(RuntimeError, match=names("torch", "winobench")):
        hardneg.check_agreement("torch", first_step(1.01, batched=False), reference)


@pytest.mark.parametrize(
    ("name", "change", "coarseness", "passes"),
    [
        ("loss", 1e-4, 1.0, True),
        ("loss", 2e-4, 1.0, False),
        ("negative_error", -2e-4, 1.0, False),
        ("negative_error", float("nan"), 1.0, False),
        ("gradient_norm", 7e-5, 1.0, False),
        ("gradient_norm", 0.005, hardneg.COARSENESS, True),
        ("gradient_norm", -0.014, hardneg.COARSENESS, False),  # what torch's compiler for CPUs made of it
    ],
)
def test_what_counts_as_the_same(name, change, coarseness, passes):
    values = FIRST_STEP | {name: FIRST_STEP[name] + change}
    if passes:
        hardneg.check_agreement("torch", values, FIRST_STEP, coarseness=coarseness)
    else:
        with pytest.raises(RuntimeError, match=names("torch", "winobench")):
            hardneg.check_agreement("torch", values, FIRST_STEP, coarseness=coarseness)


@pytest.mark.slow
def test_real_size_is_a_network_that_both_sides_know():
    unet = hardneg.SIZES["sd21"].unet
    with torch.device("meta"):
        network = diffusers.UNet2DConditionModel(**unet.arguments)
    config = UNet2DConditionModel.config_class.from_dict(dict(network.config))
    assert config.cross_attention_dim == unet.arguments["cross_attention_dim"]
    ours = hardneg.models.abstract_model(UNet2DConditionModel, config)
    names = set(lora.linear_layers(ours))
    # 16 transformers of one block each, in both libraries under the same names.
    chosen = {name for name in names if re.fullmatch(hardneg._TORCH_TARGETS, name)}
    assert len(chosen) == 64
    assert chosen <= {name for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)}
