"""CLIP's tokenizer without transformers: the same ids, and transformers' own object for everything else."""

import copy
import json
import pickle
import sys

import numpy as np
import pytest

from winobench.base import registry
from winobench.checkpoints import clip_tokenizer, tokenizer_files
from winobench.diffusion import identity

TEXTS = [
    "",
    "a large red cube to the left of a small blue sphere",
    "It's  we're I'll I'd 12 34th\tcubes\n and spheres!!! (?)",
    "ÉTÉ e\u0301te\u0301 Straße İstanbul ﬁn 東京 🙂🙂 \u200b\u00a0x",
    "a <|endoftext|> b<|startoftext|>c <|ENDOFTEXT|>",
    "red " * 40,
]
FOLDERS = [f"{registry.MODELS[name].source}/tokenizer" for name in ("clevr-tiny", "clevr-flow")]


def whole(folder):
    import transformers

    return transformers.CLIPTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.fixture(params=FOLDERS, ids=["clevr-tiny", "clevr-flow"])
def folder(request):
    return request.param


@pytest.fixture
def tokenizer(folder):
    found = tokenizer_files.read_clip_tokenizer(folder)
    assert type(found) is clip_tokenizer.CLIPTokenizer
    return found


def test_ids_are_those_of_transformers(folder, tokenizer, caplog):
    rng = np.random.default_rng(0)
    letters = [chr(code) for code in (*range(1, 0x250), *range(0x370, 0x400), 0x4E00, 0x1F600, 0x300, 0x2028, 0xFB01)]
    texts = TEXTS + ["".join(rng.choice(letters, 12)) for _ in range(300)]
    expected = whole(folder)
    assert json.loads(tokenizer.backend_tokenizer.to_str()) == json.loads(expected.backend_tokenizer.to_str())
    for length in (24, 9):
        ids = tokenizer_files.clip_ids(tokenizer, texts, length)
        np.testing.assert_array_equal(ids, tokenizer_files.clip_ids(expected, texts, length))
        one, other = (record.getMessage() for record in caplog.records[-2:])
        assert one == other
    assert type(tokenizer) is clip_tokenizer.CLIPTokenizer
    assert identity.tokenizer_identity(tokenizer) == identity.tokenizer_identity(expected)
    names = ("pad_token_id", "model_max_length", "bos_token", "eos_token", "all_special_tokens", "added_tokens_encoder")
    assert [getattr(tokenizer, name) for name in names] == [getattr(expected, name) for name in names]
    assert len(tokenizer) == len(expected)
    assert tokenizer_files.num_ids(tokenizer) == tokenizer_files.num_ids(expected)


def test_it_needs_no_transformers(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert tokenizer_files.clip_ids(tokenizer_files.read_clip_tokenizer(folder), TEXTS, 24).shape == (len(TEXTS), 24)


@pytest.mark.parametrize("ask", ["call", "attribute", "add"])
def test_it_becomes_the_whole_one(folder, tokenizer, ask):
    """For each name that has the object."""
    expected, same = whole(folder), tokenizer
    if ask == "call":
        assert tokenizer(TEXTS[:2], padding=True)["input_ids"] == expected(TEXTS[:2], padding=True)["input_ids"]
    elif ask == "attribute":
        assert tokenizer.tokenize(TEXTS[1]) == expected.tokenize(TEXTS[1])
    else:
        assert tokenizer.add_tokens(["wug"]) == expected.add_tokens(["wug"]) == 1
    assert same is tokenizer
    assert type(tokenizer) is type(expected)
    ids = tokenizer_files.clip_ids(tokenizer, ["a red wug"], 24)
    np.testing.assert_array_equal(ids, tokenizer_files.clip_ids(expected, ["a red wug"], 24))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies(tokenizer, copied):
    found = copied(tokenizer)
    assert type(found) is clip_tokenizer.CLIPTokenizer
    np.testing.assert_array_equal(*(tokenizer_files.clip_ids(one, TEXTS, 24) for one in (found, tokenizer)))


@pytest.mark.parametrize("change", [{"add_prefix_space": True}, {"bos_token": {"content": "<|startoftext|>"}}])
def test_files_that_say_more_are_transformers_own(folder, tmp_path, change):
    tokenizer_files.save_clip_tokenizer(whole(folder), tmp_path)
    assert type(tokenizer_files.read_clip_tokenizer(tmp_path)) is clip_tokenizer.CLIPTokenizer
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert type(tokenizer_files.read_clip_tokenizer(tmp_path)) is type(whole(folder))
