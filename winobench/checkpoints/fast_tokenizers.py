"""Tokenizers of language models that encode an image's text, such as T5's: read, called, written, identified.

transformers reads them from ``tokenizer.json``, or makes one from a SentencePiece model. CLIP's: `tokenizer_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.base.texts import check_texts, checked_list, count_truncated, log_truncated
from winobench.checkpoints import chat_templates, sources

_NEEDED = ("spiece.model", "vocab.json", "tokenizer.json")
_OTHERS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "chat_template.jinja")

ANY = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
"""Classes of tokenizers that do what ``tokenizer.json`` says, as versions of transformers call them."""


def find_files(
    source: str | os.PathLike | sources.Source,
    names: Sequence[str],
    needed: Sequence[str],
    purpose: str,
    subfolder: str | None = None,
) -> tuple[str, dict[str, str | None]]:
    """The folder of a tokenizer's files, and name -> path. Raises InputError without any of the ``needed``."""
    source = sources.resolve(source)
    paths = {name: source.find(sources.join(subfolder, name)) for name in names}
    if not any(paths[name] for name in needed):
        source.require(sources.join(subfolder, needed[-1]), purpose)
    return os.path.dirname(next(filter(None, paths.values()))), paths


@contextlib.contextmanager
def reading(place: str, kind: str = "tokenizer") -> Iterator[None]:
    """Makes an InputError of any error of a tokenizer's Python, JSON and Rust parts."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{place} holds no readable {kind}: {reason}", code="unreadable-tokenizer") from error


def check_class(path: str | None, known: Collection[str] | None = None) -> None:
    """Refuses a tokenizer of another class, which would turn texts into other ids without a word."""
    named = sources.read_json(path).get("tokenizer_class") if path is not None else None
    if named is None:
        return
    plain = named.removesuffix("Fast") if isinstance(named, str) else ""
    if not (plain in known or named in known if known is not None else _has_class(plain) or _has_class(str(named))):
        expected = f"not {' or '.join(sorted(known))}" if known is not None else "which transformers does not have"
        message = f"{path} names the tokenizer_class {options.quote(named)}, {expected}: take the model's own tokenizer"
        raise InputError(message, code="wrong-kind-of-tokenizer")


def _has_class(name: str) -> bool:
    import transformers

    return name in ANY or ("Tokenizer" in name and name.isidentifier() and hasattr(transformers, name))


def check_kind(tokenizer: Any, path: str | None) -> None:
    """Refuses a tokenizer of another kind than its file's, such as words for byte pairs, and one with dropout."""
    model = sources.read_json(path).get("model") if path is not None else None
    wanted = model.get("type") if isinstance(model, dict) else None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and getattr(backend.model, "dropout", None):
        message = f"{path} has a dropout of {backend.model.dropout:g}, so texts change at each call: set it to null"
        raise InputError(message, code="unsupported-option")
    if wanted is None or backend is None or (kind := type(backend.model).__name__) == wanted:
        return
    raise InputError(
        f"{path} holds a {wanted} model, but its tokenizer_class, {type(tokenizer).__name__}, makes a {kind} of it:"
        " take the tokenizer_config.json that was published with the model",
        code="wrong-kind-of-tokenizer",
    )


def check_ids(tokenizer: Any, vocab_size: int, place: str) -> None:
    """Refuses a tokenizer with tokens that its network lacks. The padding token may be one of them."""
    ids, pad = tokenizer.get_vocab(), tokenizer.pad_token_id
    if beyond := sorted(token for token, number in ids.items() if number >= vocab_size and number != pad):
        found = f"{len(beyond)} tokens ({sources.shorten(beyond)}) beyond the model's vocabulary of {vocab_size}"
        raise sources.mismatch(f"the tokenizer {place} has {found}")


def read_fast_tokenizer(source: str | os.PathLike | sources.Source, *, subfolder: str | None = None) -> Any:
    """Loads a tokenizer from a local folder or a hub id."""
    import transformers

    folder, paths = find_files(source, (*_NEEDED, *_OTHERS), _NEEDED, "so its texts cannot be made tokens", subfolder)
    check_class(paths["tokenizer_config.json"])
    with reading(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        message = f"{folder} holds a {type(tokenizer).__name__} without tokenizer.json: save it with that file"
        raise InputError(message, code="incomplete-tokenizer")
    check_kind(tokenizer, paths["tokenizer.json"])
    if tokenizer.pad_token_id is None:
        message = f"the tokenizer in {folder} has no pad_token, with which texts are filled up: name one"
        raise InputError(message, code="incomplete-tokenizer")
    return tokenizer


def checked(texts: Sequence[str]) -> list[str]:
    """A list of texts. Raises InputError for an empty list, and for other values than texts."""
    texts = checked_list("texts", texts)
    check_texts(texts)
    return texts


def fast_ids(tokenizer: Any, texts: Sequence[str], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts as padded and truncated ids, int32 ``[num_texts, length]``, and their lengths. Logs truncated ones."""
    texts = checked(texts)
    encoded = tokenizer(
        texts,
        padding="max_length",
        padding_side="right",
        truncation=True,
        max_length=length,
        return_attention_mask=True,  # files of models that attend to padding state that none is needed
    )
    log_truncated(count_truncated(encoded), len(texts), length)
    return np.asarray(encoded["input_ids"], np.int32), np.asarray(encoded["attention_mask"], np.int32).sum(axis=1)


def apply_chat_template(tokenizer: Any, texts: Sequence[str], *, thinking: bool = False) -> list[str]:
    """Texts in a tokenizer's chat template, each as a user's message, up to where an answer begins."""
    check_texts(texts)
    template = getattr(tokenizer, "chat_template", None)
    if template is None:
        message = "the tokenizer has no chat template: put the chat_template.jinja of the model into its folder"
        raise InputError(message, code="no-chat-template")
    if isinstance(template, str) and hasattr(tokenizer, "special_tokens_map"):  # a plan has no real tokenizer
        special = {name: str(token) for name, token in tokenizer.special_tokens_map.items()}
        chat_templates.try_samples(template, special | {"enable_thinking": thinking}, "the text encoder")
    options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": thinking}
    questions = []
    for text in texts:
        with chat_templates.bounded():
            questions.append(tokenizer.apply_chat_template([{"role": "user", "content": text}], **options))
    return questions


def save_fast_tokenizer(tokenizer: Any, folder: str | os.PathLike) -> None:
    """Writes a tokenizer's files. The folder is made if needed."""
    tokenizer.save_pretrained(str(folder))


def fast_identity(tokenizer: Any) -> list[Any]:
    """Identity of a tokenizer as JSON values: a digest of its parts, its padding, and its chat template."""
    # The library's object keeps the last call's truncation and padding.
    backend = tokenizer.backend_tokenizer
    truncation, padding = backend.truncation, backend.padding
    backend.no_truncation()
    backend.no_padding()
    try:
        digest = hashlib.sha256(backend.to_str().encode()).hexdigest()
    finally:
        if truncation is not None:
            backend.enable_truncation(**truncation)
        if padding is not None:
            backend.enable_padding(**padding)
    return [digest, tokenizer.pad_token_id, getattr(tokenizer, "chat_template", None)]
