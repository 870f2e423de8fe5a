"""Tokenizers of language models that encode a picture's text, such as T5's: read, called, written, identified.

transformers reads them from ``tokenizer.json``, or makes that of a SentencePiece model. CLIP's have a module of their
own (`winobench.checkpoints.tokenizer_files`), which reads files of all vintages.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from winobench.checkpoints import sources
from winobench.errors import InputError
from winobench.texts import check_texts, count_truncated, log_truncated

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def read_fast_tokenizer(source: str | os.PathLike | sources.Source, *, subfolder: str | None = None) -> Any:
    """Loads a tokenizer from a local folder or a hub id.

    Args:
      source: as :func:`winobench.checkpoints.resolve` takes it.
      subfolder: the tokenizer's folder in it, e.g. ``"tokenizer_3"``.

    Returns:
      A transformers tokenizer on the library of the same name, which knows a token for padding.

    Raises:
      InputError: files are missing or damaged, or there is no such token.
    """
    # Without torch, transformers would say at import that it has no models; we only want its tokenizers.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    import transformers

    source = sources.resolve(source)
    paths = {name: source.find(sources.join(subfolder, name)) for name in _FILES}
    if paths["tokenizer.json"] is None and paths["spiece.model"] is None and paths["vocab.json"] is None:
        source.require(sources.join(subfolder, "tokenizer.json"), "so its texts cannot be made tokens")
    folder = os.path.dirname(next(path for path in paths.values() if path is not None))
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    # The library passes on whatever its JSON and Rust parts raise.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{folder} holds no readable tokenizer: {reason}", code="unreadable-tokenizer") from error
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise InputError(
            f"{folder} holds a {type(tokenizer).__name__} without tokenizer.json: save it with that file",
            code="incomplete-tokenizer",
        )
    if tokenizer.pad_token_id is None:
        raise InputError(
            f"the tokenizer in {folder} has no pad_token, with which texts are filled up: name one",
            code="incomplete-tokenizer",
        )
    return tokenizer


def fast_ids(tokenizer: Any, texts: Sequence[str], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts as ids of a tokenizer, padded at their ends and truncated; logs truncated ones.

    Args:
      tokenizer: from `read_fast_tokenizer`.
      texts: strings.
      length: of all of them, in tokens.

    Returns:
      int32 ``[num_texts, length]``; and the number of each text's own tokens, int32 ``[num_texts]``.

    Raises:
      InputError: if there are no texts, or one cannot be tokenized (`winobench.texts.check_texts`).
    """
    texts = list(texts)
    if not texts:
        raise InputError("the list of texts is empty: give at least one", code="empty-list")
    check_texts(texts)
    encoded = tokenizer(
        texts,
        padding="max_length",
        padding_side="right",
        truncation=True,
        max_length=length,
        # Of models that attend to padding, the file says that none is wanted.
        return_attention_mask=True,
    )
    log_truncated(count_truncated(encoded), len(texts), length)
    return np.asarray(encoded["input_ids"], np.int32), np.asarray(encoded["attention_mask"], np.int32).sum(axis=1)


def as_questions(tokenizer: Any, texts: Sequence[str], *, thinking: bool = False) -> list[str]:
    """Texts in a tokenizer's chat template, each as what a user says, up to where an answer begins.

    Args:
      tokenizer: from `read_fast_tokenizer`.
      texts: strings.
      thinking: the answer may begin with a thought; otherwise the template says that there is none.

    Raises:
      InputError: if a text cannot be tokenized (`winobench.texts.check_texts`), or there is no chat template.
    """
    check_texts(texts)
    if getattr(tokenizer, "chat_template", None) is None:
        raise InputError(
            "the tokenizer has no chat template, in which this model takes texts: put its chat_template.jinja into the"
            " tokenizer's folder",
            code="no-chat-template",
        )
    options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": thinking}
    return [tokenizer.apply_chat_template([{"role": "user", "content": text}], **options) for text in texts]


def save_fast_tokenizer(tokenizer: Any, folder: str | os.PathLike) -> None:
    """Writes a tokenizer's files; the folder is made if needed."""
    tokenizer.save_pretrained(str(folder))


def fast_identity(tokenizer: Any) -> list[Any]:
    """What a tokenizer does, as JSON values: a digest of its parts, how it pads, and its chat template."""
    # What the last call asked for is part of the library's object.
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
