import copy
import json
import random
import shutil

import pytest
from tokenizers import normalizers
from transformers import CLIPTokenizer

from tests.expectations import raises
from winobench.checkpoints import clip_tokenizer, tokenizer_files
from winobench.checkpoints.tokenizer_files import learn_merges, write_clip_tokenizer
from winobench.diffusion.stable_diffusion import StableDiffusion
from winobench.models import states

SPECIAL = "special_tokens_map.json"
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


@pytest.mark.parametrize(
    ("word", "code"),
    [
        *((word, "word-not-normal") for word in ("Red", "e\N{COMBINING ACUTE ACCENT}")),
        *((word, "word-of-several-tokens") for word in ("left-hand", "two words", "12", "", "a1", "it's")),
    ],
)
def test_a_word_that_would_be_split_or_changed_is_refused(tmp_path, word, code):
    with raises(code, repr(word)):
        write_clip_tokenizer(tmp_path / "new", ["red", word], 12)
    assert not (tmp_path / "new").exists()


def test_too_short_texts_are_refused(tmp_path):
    with raises("out-of-range", "model_max_length", "2"):
        write_clip_tokenizer(tmp_path, ["red"], 2)


def test_many_words_that_share_their_pieces(tmp_path):
    generator = random.Random(0)
    words = ["".join(generator.choices("abc", k=generator.randint(1, 9))) for _ in range(400)]
    assert len(set(learn_merges(words))) == len(learn_merges(words))
    write_clip_tokenizer(tmp_path, words, 12)
    tokenizer = CLIPTokenizer.from_pretrained(tmp_path)
    assert [word for word in words if len(tokenizer.tokenize(word)) != 1] == []


TEXTS = [
    "",
    " A  Red\tCUBE,\nleft ",
    "it's 42 naïve e\u0301 猫 🙂",
    "<|startoftext|> red <|endoftext|>cube",
    "cubes " * 20,
]
HOW = {"padding": "max_length", "truncation": True, "max_length": 12}


def test_without_transformers_tokens_and_state_are_the_same(folder, tokenizer):
    own = tokenizer_files.read_clip_tokenizer(folder)
    assert type(own) is clip_tokenizer.CLIPTokenizer
    ids, expected = own(TEXTS, **HOW), tokenizer(TEXTS, **HOW)
    assert dict(ids) == dict(expected)
    is_cut = [bool(each.overflowing) for each in ids.encodings]
    assert is_cut == [bool(each.overflowing) for each in expected.encodings]
    assert {*is_cut} == {True, False}
    assert own.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()
    names = ("model_max_length", "special_tokens_map", "all_special_tokens", "added_tokens_encoder")
    for name in (*names, *clip_tokenizer.SPECIAL_TOKENS, *(f"{name}_id" for name in clip_tokenizer.SPECIAL_TOKENS)):
        assert getattr(own, name) == getattr(tokenizer, name), name
    assert len(own) == len(tokenizer)
    assert own.get_vocab() == tokenizer.get_vocab()
    assert states._how(own) == states._how(tokenizer)
    assert type(own) is type(copy.deepcopy(own)) is clip_tokenizer.CLIPTokenizer  # nothing above needed transformers


def test_an_embedded_model_tokenizes_and_has_its_identity_without_transformers():
    pipeline = StableDiffusion.from_pretrained("clevr-tiny")
    snapshot = pipeline.snapshot()
    assert snapshot.tokenize(["A red cube."]).shape == (1, 24)
    assert snapshot.fingerprint == pipeline.fingerprint
    assert type(pipeline.tokenizer) is type(snapshot.tokenizer) is clip_tokenizer.CLIPTokenizer


def test_it_becomes_transformers_tokenizer_when_that_is_needed(folder, tokenizer):
    own = tokenizer_files.read_clip_tokenizer(folder)
    kept = copy.deepcopy(own)
    ids = own(["red cube"], **HOW)["input_ids"]
    assert own.decode(ids[0]) == tokenizer.decode(ids[0])
    assert type(own) is CLIPTokenizer
    assert (
        own("red cube", add_special_tokens=False)["input_ids"]
        == tokenizer("red cube", add_special_tokens=False)["input_ids"]
    )
    assert states._how(own) == states._how(kept)
    assert dict(own(TEXTS, **HOW)) == dict(kept(TEXTS, **HOW))
    kept.backend_tokenizer.normalizer = normalizers.Replace("red", "cube")
    kept.padding_side = "left"
    assert type(kept) is CLIPTokenizer
    assert kept(["red"], **HOW)["input_ids"][0][-2] == own.convert_tokens_to_ids("cube</w>")


def _vocabulary(change):
    def apply(folder):
        path = folder / "vocab.json"
        vocabulary = json.loads(path.read_text())
        change(vocabulary)
        path.write_text(json.dumps(vocabulary))

    return apply


def _merges(change):
    return lambda folder: (folder / "merges.txt").write_text(change((folder / "merges.txt").read_text()))


def _settings(name, **changes):
    def apply(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return apply


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_vocabulary(lambda ids: ids.update({"!": ids["a"]})), ("damaged-tokenizer", "id")),
        *(
            (_vocabulary(lambda ids, number=each: ids.update({"!": number})), ("damaged-tokenizer", "id", repr(each)))
            for each in (True, None, "0", 0.0, -1, 2**31, 2**40)  # the last one is 0 to the library
        ),
        (_vocabulary(lambda ids: ids.pop("red</w>")), ("unreadable-tokenizer",)),
        (_vocabulary(lambda ids: ids.pop("<|endoftext|>")), ("damaged-tokenizer", "eos_token")),
        (_merges(lambda text: ""), ("damaged-tokenizer", "tokens", "merges.txt")),
        (_merges(lambda text: "\n".join(text.split("\n")[:-2]) + "\n"), ("damaged-tokenizer", "merge")),
        (_settings("tokenizer_config.json", tokenizer_class="Foo"), ("wrong-kind-of-tokenizer", "'Foo'")),
        (_settings("tokenizer_config.json", tokenizer_class=[]), ("wrong-kind-of-tokenizer",)),
        (_settings("tokenizer_config.json", bos_token=5), ("damaged-tokenizer", "bos_token", "5")),
        (_settings(SPECIAL, pad_token=True), ("damaged-tokenizer", "pad_token", "True")),
        (_settings(SPECIAL, eos_token="cube</w>"), ("damaged-tokenizer", "eos_token", "'cube</w>'")),
        (lambda folder: (folder / SPECIAL).write_text("[1]"), ("not-an-object", SPECIAL)),
    ],
)
def test_files_that_contradict_each_other_are_refused(folder, tmp_path, change, said):
    copy = shutil.copytree(folder, tmp_path / "copy")
    change(copy)
    with raises(*said):
        tokenizer_files.read_clip_tokenizer(copy)


def test_tokens_that_a_tool_has_added_need_no_merge(folder, tmp_path):
    tokenizer = tokenizer_files.read_clip_tokenizer(folder)
    tokenizer.add_tokens(["<my-cat>"])
    tokenizer.save_pretrained(tmp_path)
    again = tokenizer_files.read_clip_tokenizer(tmp_path)
    assert again("<my-cat>")["input_ids"][1] == len(tokenizer_files.read_clip_tokenizer(folder).get_vocab())


@pytest.mark.parametrize("change", [{}, {"tokenizer_class": "CLIPTokenizerFast"}, {"tokenizer_class": None}])
def test_names_of_the_same_class(folder, tmp_path, change):
    copy = shutil.copytree(folder, tmp_path / "copy")
    _settings("tokenizer_config.json", **change)(copy)
    assert (
        tokenizer_files.read_clip_tokenizer(copy).get_vocab() == tokenizer_files.read_clip_tokenizer(folder).get_vocab()
    )
