"""Writes the files of a CLIP tokenizer whose vocabulary is a given list of words.

The format is CLIP's byte-level byte-pair encoding (Radford et al. 2021, after Sennrich et al. 2016): ``vocab.json``
maps tokens to ids, ``merges.txt`` lists the pairs to be joined, the first line first. transformers' ``CLIPTokenizer``
reads both. Each listed word becomes one token; every other text falls back to pieces, in the end to single bytes, so
nothing is out of vocabulary.
"""

from __future__ import annotations

import itertools
import json
import os
import unicodedata
from collections.abc import Iterable

from winobench.checkpoints.files import write_text
from winobench.errors import InputError

START_TOKEN = "<|startoftext|>"
END_TOKEN = "<|endoftext|>"
_END_OF_WORD = "</w>"


def write_clip_tokenizer(folder: str | os.PathLike, words: Iterable[str], model_max_length: int = 77) -> int:
    """Writes ``vocab.json``, ``merges.txt``, ``tokenizer_config.json`` and ``special_tokens_map.json``.

    Args:
      folder: where to write; made if needed.
      words: each becomes one token. Lower case; a run of letters, one digit, or a run of other signs. Repetitions are
        dropped; the order decides the ids, so the same list gives the same files.
      model_max_length: number of tokens of a padded text, start and end included.

    Returns:
      The vocabulary's size: the text encoder's ``vocab_size``. The last two ids are the start and end tokens; padding
      uses the end token, as in Stable Diffusion 1.x.

    Raises:
      InputError: for a word that CLIP's tokenizer would split or change.
    """
    if model_max_length < 3:
        raise InputError(f"model_max_length is {model_max_length}, but a text needs room for start, end and one word")
    merges = learn_merges(words)
    alphabet = list(_byte_letters().values())
    tokens = alphabet + [letter + _END_OF_WORD for letter in alphabet]
    # Two merges can spell the same token.
    tokens = list(dict.fromkeys(tokens + ["".join(pair) for pair in merges]))
    tokens += [START_TOKEN, END_TOKEN]
    special = {"bos_token": START_TOKEN, "eos_token": END_TOKEN, "unk_token": END_TOKEN, "pad_token": END_TOKEN}
    settings = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": model_max_length,
        "errors": "replace",
        **special,
    }

    os.makedirs(folder, exist_ok=True)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merge_lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    write_text(os.path.join(folder, "vocab.json"), json.dumps(vocabulary, ensure_ascii=False, indent=0) + "\n")
    write_text(os.path.join(folder, "merges.txt"), "\n".join(merge_lines) + "\n")
    write_text(os.path.join(folder, "special_tokens_map.json"), json.dumps(special, indent=2) + "\n")
    write_text(os.path.join(folder, "tokenizer_config.json"), json.dumps(settings, indent=2) + "\n")
    return len(tokens)


def learn_merges(words: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the pairs to join, in order, so that each word ends as one token.

    A word is first encoded with the merges found so far, and only what is still apart is joined by new merges at the
    end of the list. An earlier word keeps its encoding: at each of its steps one of the older merges applies, and older
    ones win.

    Args:
      words: as in :func:`write_clip_tokenizer`.

    Raises:
      InputError: for a word that CLIP's tokenizer would split or change.
    """
    merges: dict[tuple[str, str], int] = {}
    letters = _byte_letters()
    for word in dict.fromkeys(words):
        _check_word(word)
        symbols = [letters[byte] for byte in word.encode("utf-8")]
        symbols[-1] += _END_OF_WORD
        pieces = _merge(symbols, merges)
        while len(pieces) > 1:
            merges[pieces[0], pieces[1]] = len(merges)
            pieces = _merge(symbols, merges)
    return list(merges)


def _check_word(word: str) -> None:
    normal = unicodedata.normalize("NFC", word).lower()
    if word != normal:
        raise InputError(f"the word {word!r} is not in lower case and NFC: the tokenizer would read it as {normal!r}")
    kinds = {unicodedata.category(character)[0] for character in word}
    # Separators and control characters (Z, C) count as blanks or are rare enough to refuse.
    one_token = kinds == {"L"} or (kinds == {"N"} and len(word) == 1) or (kinds and kinds <= {"M", "P", "S"})
    if not one_token:
        raise InputError(
            f"the word {word!r} cannot be one token: CLIP's tokenizer splits texts into runs of letters, single digits"
            " and runs of other signs"
        )


def _merge(symbols: list[str], merges: dict[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding: joins the pair of lowest rank everywhere, again and again, until none is left."""
    pieces = list(symbols)
    while len(pieces) > 1:
        pairs = set(itertools.pairwise(pieces)) & merges.keys()
        if not pairs:
            break
        first, second = min(pairs, key=merges.__getitem__)
        joined = []
        position = 0
        while position < len(pieces):
            if pieces[position : position + 2] == [first, second]:
                joined.append(first + second)
                position += 2
            else:
                joined.append(pieces[position])
                position += 1
        pieces = joined
    return pieces


def _byte_letters() -> dict[int, str]:
    """A visible character for each byte, in the order of CLIP's vocabulary.

    Printable Latin-1 bytes stand for themselves; the other 68 get the characters from U+0100 on.
    """
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {byte: chr(byte) for byte in visible}
    hidden = (byte for byte in range(256) if byte not in letters)
    return letters | {byte: chr(256 + index) for index, byte in enumerate(hidden)}
