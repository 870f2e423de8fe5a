"""Paths are cut to their last part, and no other text changes."""

import pytest

from winobench.runs import private_paths

SETTINGS = {
    "model": "sdxl+/data/secret models/a.safetensors",
    "tasks": ["jsonl:/data/secret/mine.jsonl", "clevr_image"],
    "data_dir": "~/secret/sets",
    "api": "openai:m@https://host/v1",
    "limit": 5,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/anna/runs/one", "one"),
        ("/home/anna/runs/one/results.json cannot be read", "results.json cannot be read"),
        ("/home/anna", "~"),
        ("file:///home/anna/x.png", "file://x.png"),
        ("winobench view '/home/anna/other runs'", "winobench view 'other runs'"),
        ("--model='sdxl+/data/secret models/a.safetensors'", "--model='sdxl+a.safetensors'"),
        ("jsonl:/data/secret/mine.jsonl", "jsonl:mine.jsonl"),
        ("~/secret/sets", "sets"),
        ("https://host/v1", "https://host/v1"),
        ("/home/annabel/x", "/home/annabel/x"),
        ("a dog and/or a cat, 1/2", "a dog and/or a cat, 1/2"),
        ("/other/place", "/other/place"),
    ],
)
def test_texts(text, expected, monkeypatch):
    monkeypatch.setenv("HOME", "/home/anna")
    cut = private_paths.remover(["/home/anna/runs/one"], SETTINGS)
    assert cut(text) == expected
    assert cut({text: [text, 3, None, (text,)]}) == {expected: [expected, 3, None, (expected,)]}
