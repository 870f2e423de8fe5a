"""Texts with more tokens than a class takes: cut off as diffusers does, and one line says so."""

import pytest
import torch

from tests.torch_pipelines.comparison import cases
from winobench.torch_pipelines.pipeline import TorchPipeline

LONG = " ".join(["a dog to the left of a cat"] * 700)
# Their tokenizers state no overflow, or they cut states instead of tokens.
SILENT = ("KolorsPAGPipeline", "KolorsPipeline", "LongCatImagePipeline")


@pytest.mark.parametrize(("name", "maker"), cases())
def test_a_long_text_is_cut_off(name, maker, caplog):
    texts = TorchPipeline.from_diffusers(maker.make()).texts
    short, long, longer = (texts.encode_all([text]) for text in ("two birds", LONG, f"{LONG} and two birds"))
    for place, values in long.items():
        assert values.shape == short[place].shape
        torch.testing.assert_close(torch.tensor(values), torch.tensor(longer[place]))
    if name not in SILENT:
        assert [record for record in caplog.records if "truncated" in record.getMessage()]
