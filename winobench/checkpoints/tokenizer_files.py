"""CLIP tokenizers: reads published ones, calls them, writes them back, and makes new ones from a list of words.

The format is CLIP's byte-level byte-pair encoding (Radford et al. 2021, after Sennrich et al. 2016): ``vocab.json``
maps tokens to ids, ``merges.txt`` lists the pairs to be joined, the first line first. transformers' ``CLIPTokenizer``
reads both, and needs no torch for it. `clip_tokenizer` reads files as winobench writes them.
"""

from __future__ import annotations

import itertools
import json
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.base.files import write_text
from winobench.base.texts import count_truncated, log_truncated
from winobench.checkpoints import clip_tokenizer, fast_tokenizers, sources
from winobench.checkpoints.clip_tokenizer import END_OF_WORD, SPECIAL_TOKENS

_VOCABULARY_FILES = ("vocab.json", "merges.txt")
_OTHER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")
START_TOKEN = "<|startoftext|>"
END_TOKEN = "<|endoftext|>"
_FEWEST_TOKENS = 3
# Every byte, within and at the end of a word.
_ALL_BYTES = 2 * 256
# Beyond every published vocabulary.
_LARGEST_ID = 10_000_000


def read_clip_tokenizer(source: str | os.PathLike | sources.Source, *, subfolder: str | None = None) -> Any:
    """Loads a CLIP tokenizer from a local folder or a hub id."""
    source, purpose = sources.resolve(source), "so it has no CLIP tokenizer"
    names, needed = (*_OTHER_FILES, *_VOCABULARY_FILES), ("tokenizer.json", "vocab.json")
    folder, at = fast_tokenizers.find_files(source, names, needed, purpose, subfolder)
    if at["tokenizer.json"] is None:
        source.require(sources.join(subfolder, "merges.txt"), purpose)
    fast_tokenizers.check_class(at["tokenizer_config.json"], ("CLIPTokenizer",))
    _check_special_tokens(at["tokenizer_config.json"], at["special_tokens_map.json"])
    _check_ids(at["vocab.json"])
    with fast_tokenizers.reading(folder, "CLIP tokenizer"):
        tokenizer = _own_tokenizer(at) or _other_tokenizer(folder)
    longest = tokenizer.model_max_length
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < _FEWEST_TOKENS:
        raise InputError(
            f"{folder}/tokenizer_config.json has the model_max_length {longest!r:.80}, but it must be a whole number"
            f" from {_FEWEST_TOKENS} on: a text needs room for start, end and one word. Get the file again",
            code="out-of-range",
        )
    fast_tokenizers.check_kind(tokenizer, at["tokenizer.json"])
    _check_vocabulary(tokenizer, folder)
    return tokenizer


def _own_tokenizer(at: Mapping[str, str | None]) -> Any:
    """The tokenizer in files as winobench writes them. None for other files."""
    own = ("tokenizer_config.json", "special_tokens_map.json", *_VOCABULARY_FILES)
    vocabulary, merges = (at[name] for name in _VOCABULARY_FILES)
    if vocabulary is None or merges is None or {name for name, path in at.items() if path is not None} != {*own}:
        return None
    config, special, tokens = (sources.read_json(str(at[name])) for name in own[:3])
    settings = clip_tokenizer.settings(config, special, tokens)
    return settings and clip_tokenizer.CLIPTokenizer(vocabulary, merges, *settings)


def _other_tokenizer(folder: str) -> Any:
    import transformers

    return transformers.CLIPTokenizer.from_pretrained(folder, local_files_only=True)


def _check_special_tokens(*paths: str | None) -> None:
    """Refuses special tokens that are not texts, in whose place the library takes its own, or that contradict.

    The padding token may differ between the files, as in Stable Diffusion 2.x.
    """
    tokens: dict[str, str] = {}
    for path in filter(None, paths):
        settings = json_files.read_object(path, "get it again")
        for name in SPECIAL_TOKENS:
            stated = settings.get(name)
            token = stated.get("content") if isinstance(stated, dict) else stated
            if stated is None:
                continue
            if not isinstance(token, str):
                raise _damaged(f"{path} has the {name} {options.quote(stated)}, which is not a text: get it again")
            if name in ("bos_token", "eos_token") and tokens.setdefault(name, token) != token:
                others = f"{os.path.basename(paths[0] or '')} next to it has {options.quote(tokens[name])}"
                raise _damaged(f"{path} has the {name} {options.quote(token)}, but {others}: get both again")


def _damaged(message: str) -> InputError:
    return InputError(message, code="damaged-tokenizer")


def _check_ids(path: str | None) -> None:
    """Refuses a list of tokens with something else than ids, where the library leaves the token out."""
    for token, number in (json_files.read_object(path, "get it again") if path is not None else {}).items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _LARGEST_ID:
            given = f"{path} gives the token {options.quote(token)} the id {options.quote(number)}"
            raise _damaged(f"{given}, which is not a whole number from 0 to {_LARGEST_ID:,}: get it again")


def _check_vocabulary(tokenizer: Any, folder: str) -> None:
    """Refuses files that contradict each other, with which texts would silently become other ids."""
    vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
    token_of: dict[int, str] = {}
    for token, number in sorted(vocabulary.items()):
        if number > _LARGEST_ID:  # the library takes time and memory for every number up to it
            given = f"{folder} gives the token {options.quote(token)} the id {number:,}"
            raise _damaged(f"{given}, but ids are at most {_LARGEST_ID:,}: get its vocab.json again")
        if (other := token_of.setdefault(number, token)) != token:
            both = f"{options.quote(other)} and {options.quote(token)}"
            raise _damaged(f"{folder} gives the tokens {both} the same id, {number}: get its vocab.json again")
    for name in ("bos_token", "eos_token"):
        if (token := getattr(tokenizer, name)) not in vocabulary:
            raise _damaged(f"{folder} lacks its {name} {options.quote(token)} in its vocabulary: get its files again")
    _, merges = vocabulary_and_merges(tokenizer)
    special = {*tokenizer.all_special_tokens, *tokenizer.added_tokens_encoder}
    of_letters = {token for token in vocabulary if len(token.removesuffix(END_OF_WORD)) > 1} - special
    lacking = sorted(of_letters - {"".join(pair) for pair in merges})
    # Vocabularies without all bytes are made for tests of other projects, by hand, with words that no merge makes.
    if lacking and (len(vocabulary) >= _ALL_BYTES or not merges):
        more = f" and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
        fault = f"the token {options.quote(lacking[0])}{more}, which no merge makes"
        advice = "name special tokens in its tokenizer_config.json, or get its merges.txt again"
        raise _damaged(f"{folder} has {fault}: {advice}")


def num_ids(tokenizer: Any) -> int:
    """The vocabulary size that a network needs for a tokenizer, with or without gaps: its largest id, and one."""
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


def check_size(tokenizer: Any, vocab_size: int, place: str) -> None:
    """Refuses a tokenizer with more ids than its network."""
    if (count := num_ids(tokenizer)) > vocab_size:
        raise sources.mismatch(f"the tokenizer {place} has {count} tokens, but the network has {vocab_size}")


def clip_ids(tokenizer: Any, texts: Sequence[str], length: int) -> np.ndarray:
    """Texts as ids of a CLIP tokenizer, padded and truncated, int32 ``[num_texts, length]``. Logs truncated ones."""
    texts = [_with_all_vectors(tokenizer, text) for text in fast_tokenizers.checked(texts)]
    encoded = tokenizer(texts, padding="max_length", truncation=True, max_length=length)
    log_truncated(count_truncated(encoded), len(texts), length)
    return np.asarray(encoded["input_ids"], np.int32)


def _with_all_vectors(tokenizer: Any, text: str) -> str:
    """A text with ``word word_1 ...`` for each learned word of several vectors (`textual_inversions`)."""
    added = tokenizer.added_tokens_encoder
    several = [word for word in added if f"{word}_1" in added]
    for word in several and sorted({*several} & {*tokenizer.tokenize(text)}):
        vectors = itertools.takewhile(added.__contains__, (f"{word}_{i}" for i in itertools.count(1)))
        text = text.replace(word, " ".join([word, *vectors]))
    return text


def save_clip_tokenizer(tokenizer: Any, folder: str | os.PathLike) -> None:
    """Writes a tokenizer in the files that all versions of transformers read."""
    vocabulary, merges = vocabulary_and_merges(tokenizer)
    usual = {*tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False), *tokenizer.all_special_tokens}
    if learned := sorted(vocabulary.keys() - usual):
        message = f"the tokenizer has the added word {options.quote(learned[0])}, which these files have no place for"
        raise InputError(f"{message}: save the model without it", code="cannot-be-saved")
    special = {name: str(getattr(tokenizer, name)) for name in SPECIAL_TOKENS}
    _write_files(folder, vocabulary, merges, special, tokenizer.model_max_length)


def vocabulary_and_merges(tokenizer: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a tokenizer, in a form that does not depend on the library's version."""
    merges = json_files.parse(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    # A list of pairs, or of strings with a blank between the two, as of tokenizers 0.20.
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in merges]
    vocabulary = tokenizer.get_vocab()
    return dict(sorted(vocabulary.items(), key=lambda item: item[1])), pairs


def write_clip_tokenizer(folder: str | os.PathLike, words: Iterable[str], model_max_length: int = 77) -> int:
    """Writes the files of a tokenizer in which each listed word is one token. Other texts become pieces, or bytes."""
    if model_max_length < _FEWEST_TOKENS:
        message = f"model_max_length is {model_max_length}, but a text needs room for start, end and one word"
        raise InputError(message, code="out-of-range")
    merges = learn_merges(words)
    alphabet = list(_byte_letters().values())
    tokens = alphabet + [letter + END_OF_WORD for letter in alphabet]
    # Two merges can spell the same token.
    tokens = list(dict.fromkeys(tokens + ["".join(pair) for pair in merges]))
    tokens += [START_TOKEN, END_TOKEN]
    special = dict(zip(SPECIAL_TOKENS, (START_TOKEN, END_TOKEN, END_TOKEN, END_TOKEN), strict=True))
    _write_files(folder, {token: index for index, token in enumerate(tokens)}, merges, special, model_max_length)
    return len(tokens)


def _write_files(
    folder: str | os.PathLike,
    vocabulary: dict[str, int],
    merges: list[tuple[str, str]],
    special: dict[str, str],
    model_max_length: int,
) -> None:
    os.makedirs(folder, exist_ok=True)
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": model_max_length, **special}
    merge_lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    write_text(os.path.join(folder, "vocab.json"), json.dumps(vocabulary, ensure_ascii=False, indent=0) + "\n")
    write_text(os.path.join(folder, "merges.txt"), "\n".join(merge_lines) + "\n")
    write_text(os.path.join(folder, "special_tokens_map.json"), json.dumps(special, indent=2) + "\n")
    write_text(os.path.join(folder, "tokenizer_config.json"), json.dumps(settings, indent=2) + "\n")


def learn_merges(words: Iterable[str]) -> list[tuple[str, str]]:
    """The pairs to join, in order, so that each word ends as one token.

    A word is first encoded with the merges found so far. Only the pieces left are joined by new merges at the
    end of the list. An earlier word keeps its encoding: at each of its steps an older merge applies and wins.
    """
    merges: dict[tuple[str, str], int] = {}
    letters = _byte_letters()
    for word in dict.fromkeys(words):
        _check_word(word)
        symbols = [letters[byte] for byte in word.encode("utf-8")]
        symbols[-1] += END_OF_WORD
        pieces = _merge(symbols, merges)
        while len(pieces) > 1:
            merges[pieces[0], pieces[1]] = len(merges)
            pieces = _merge(symbols, merges)
    return list(merges)


def _check_word(word: str) -> None:
    normal = unicodedata.normalize("NFC", word).lower()
    if word != normal:
        message = f"the word {word!r} is not in lower case and NFC: the tokenizer would read it as {normal!r}"
        raise InputError(message, code="word-not-normal")
    kinds = {unicodedata.category(character)[0] for character in word}
    # Separators and control characters (Z, C) count as blanks or are rare enough to refuse.
    one_token = kinds == {"L"} or (kinds == {"N"} and len(word) == 1) or (kinds and kinds <= {"M", "P", "S"})
    if not one_token:
        message = f"the word {word!r} is not one token: a run of letters, one digit, or a run of other signs"
        raise InputError(message, code="word-of-several-tokens")


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
    """A visible character for each byte, in the order of CLIP's vocabulary: Latin-1's, then those from U+0100 on."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {byte: chr(byte) for byte in visible}
    hidden = (byte for byte in range(256) if byte not in letters)
    return letters | {byte: chr(256 + index) for index, byte in enumerate(hidden)}
