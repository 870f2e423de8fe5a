"""What benchmarks refuse before they begin."""

import importlib

import pytest
import torch

from tests.expectations import raises


@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("hardneg", ["--size=small", "--rounds=0"], "out-of-range"),
        ("hardneg", ["--size=small", "--batch_size=0"], "out-of-range"),
        ("hardneg", ["--size=small", "--compile"], None),
        ("language_model", ["--size=small", "--rounds=0"], "out-of-range"),
        ("vision_language", ["--size=small", "--rounds=0"], "out-of-range"),
        ("race", ["--scenes=-1"], "out-of-range"),
        ("race", ["--budget=0"], "out-of-range"),
        ("race_classes", ["--classes=1"], "out-of-range"),
        ("race_classes", ["--classes=169"], "out-of-range"),
        ("race_classes", ["--budget=0"], "out-of-range"),
        ("scorer", ["--rounds=0"], "out-of-range"),
        ("scorer", ["--device=gpu"], "missing-package"),
        ("trace", ["--slow_loading=-1"], "out-of-range"),
        ("trace", ["--images=0"], "out-of-range"),
        ("trace", ["--samples=0"], "out-of-range"),
    ],
)
def test_bad_arguments(name, words, code, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with raises(code, words[-1].partition("=")[0]):
        importlib.import_module(f"benchmarks.{name}").main(words)
