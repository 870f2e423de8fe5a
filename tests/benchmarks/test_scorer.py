import json

import numpy as np
import pytest
import torch

from benchmarks import scorer
from winobench.models.autoencoder_kl import AutoencoderKL
from winobench.models.unet_2d_condition import UNet2DConditionModel


@pytest.mark.slow
def test_runs_and_all_agree(tmp_path, capsys):
    output = tmp_path / "results" / "figures.json"
    scorer.main(["--size", "tiny", "--rounds", "1", "--output", str(output)])
    figures = json.loads(output.read_text())
    names = ["fused", "torch, batched", "torch, pair by pair"]
    # (2 x 2 pairs and 2 x the empty text) x 2 samples, against 2 x 2 pairs x 2 samples x 2; 10 pairs x 2 samples.
    passes = {"winoground": [12, 12, 16], "retrieval": [20, 20, 20]}
    assert list(figures["results"]) == list(passes)
    for style, results in figures["results"].items():
        assert list(results) == names
        assert [result["passes"] for result in results.values()] == passes[style]
        # Two frameworks in float32; scores are differences of errors some 100 times their size.
        assert all(result["largest_score_difference"] < 1e-2 for result in results.values())
    assert figures["matrix_teraflops"] > 0
    assert figures["machine"]["cores"] >= 1
    table = capsys.readouterr().out
    assert all(table.count(f"| {name} |") == 2 for name in names)


def test_nothing_is_scored_twice():
    work = scorer.make_work(scorer.SIZES["mid"], "winoground", 8, (2, 2, 4), 3)
    assert len(work.pairs) == 12
    triples = list(map(tuple, work.triples.tolist()))
    assert len(triples) == len(set(triples)) == (12 + 6) * 10
    # The score of a pair is the error under the empty text (number 6) less its own, in the mean.
    errors = np.array([image * 100 + text * 10 + sample for image, text, sample in triples], np.float32)
    text = int(work.pairs[5, 1])
    assert work.scores(errors)[5] == 10 * (6 - text)


@pytest.mark.parametrize("size", scorer.SIZES)
def test_sizes_are_networks_that_both_sides_know(size):
    import diffusers

    size = scorer.SIZES[size]
    with torch.device("meta"):
        unet = diffusers.UNet2DConditionModel(**size.unet)
        vae = diffusers.AutoencoderKL(**size.vae)
    assert UNet2DConditionModel.config_class.from_dict(unet.config).cross_attention_dim == size.unet[
        "cross_attention_dim"
    ]  # fmt: skip
    assert AutoencoderKL.config_class.from_dict(vae.config).latent_channels == unet.config.in_channels
    assert size.text_encoder["hidden_size"] == size.unet["cross_attention_dim"]
    if size is scorer.SIZES["sd21-base"]:
        assert round(sum(np.prod(p.shape) for p in unet.parameters()) / 1e6) == 866
