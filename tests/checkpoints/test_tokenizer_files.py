import json
import random

import pytest
from transformers import CLIPTokenizer

from winobench.checkpoints.tokenizer_files import learn_merges, write_clip_tokenizer
from winobench.errors import InputError

WORDS = ["a", "red", "rubber", "true", "purple", "cube", "cubes", "the", "left", "of", "banana", "ana", "é", "7", "..."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    write_clip_tokenizer(folder, WORDS, model_max_length=12)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return CLIPTokenizer.from_pretrained(folder)


def test_every_word_is_one_token_alone_and_in_a_text(tokenizer):
    for word in WORDS:
        assert len(tokenizer.tokenize(word)) == 1, word
    text = " ".join(WORDS)
    assert tokenizer.tokenize(text) == [tokenizer.tokenize(word)[0] for word in WORDS]
    assert tokenizer.tokenize("A Red CUBE, left") == ["a</w>", "red</w>", "cube</w>", ",</w>", "left</w>"]


@pytest.mark.parametrize("text", ["zyzzyva", "red-ish", "naïve 猫 🙂", "it's 42", "cubesred"])
def test_other_text_falls_back_to_known_pieces(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in ids
    decoded = tokenizer.decode(ids)
    assert decoded.replace(" ", "") == text.replace(" ", "")


def test_size_special_tokens_and_padding(tokenizer, folder, tmp_path):
    size = write_clip_tokenizer(tmp_path, WORDS, 12)
    assert size == len(tokenizer) == len(json.loads((folder / "vocab.json").read_text("utf-8")))
    ids = tokenizer("red cube", padding="max_length")["input_ids"]
    assert len(ids) == 12
    assert ids[0] == tokenizer.bos_token_id == size - 2
    assert ids[3:] == [size - 1] * 9
    assert tokenizer.pad_token == tokenizer.eos_token == "<|endoftext|>"


def test_same_words_same_files(folder, tmp_path):
    write_clip_tokenizer(tmp_path, [*WORDS, "red", "a"], 12)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["merges.txt", "special_tokens_map.json", "tokenizer_config.json", "vocab.json"]
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_later_words_do_not_split_earlier_ones(tmp_path):
    """With prefix merges alone, "ru" from "rubber" would win inside "true" and leave it in pieces."""
    words = ["rubber", "true", "brute", "utter", "tetter", "uttered"]
    assert len(set(learn_merges(words))) == len(learn_merges(words))
    write_clip_tokenizer(tmp_path, words, 12)
    tokenizer = CLIPTokenizer.from_pretrained(tmp_path)
    assert [len(tokenizer.tokenize(word)) for word in words] == [1] * len(words)


@pytest.mark.parametrize(
    "word", ["Red", "left-hand", "two words", "12", "", "a1", "e\N{COMBINING ACUTE ACCENT}", "it's"]
)
def test_a_word_that_would_be_split_or_changed_is_refused(tmp_path, word):
    with pytest.raises(InputError, match="word"):
        write_clip_tokenizer(tmp_path / "new", ["red", word], 12)
    assert not (tmp_path / "new").exists()


def test_too_short_texts_are_refused(tmp_path):
    with pytest.raises(InputError, match="model_max_length is 2"):
        write_clip_tokenizer(tmp_path, ["red"], 2)


def test_many_words_that_share_their_pieces(tmp_path):
    """Words of three letters only: every pair of pieces is contested."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abc", k=generator.randint(1, 9))) for _ in range(400)]
    write_clip_tokenizer(tmp_path, words, 12)
    tokenizer = CLIPTokenizer.from_pretrained(tmp_path)
    assert [word for word in words if len(tokenizer.tokenize(word)) != 1] == []
