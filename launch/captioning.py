"""The part of launch.generate that has a model write about pictures: captions, or answers to a question."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch import text
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.base.files import digest, user_path

if TYPE_CHECKING:
    from winobench.runs.requests import Responder

_INCOMPLETE = 2


def caption(
    words: Sequence[str],
    *,
    model: str | None,
    question: str = "",
    max_tokens: int = 30,
    dtype: str = "float32",
    workdir: str | None = None,
) -> None:
    """Writes texts about images and says where they are.

    Args:
      words: the images, as `winobench.generation.captions.find` takes them.
      model: what writes: a name, folder or hub id of a vision-language model, ``openai:MODEL`` or ``anthropic:MODEL``.
      question: what is asked. A caption when empty.
      max_tokens: of the longest text.
      dtype: of a model with weights.
      workdir: the folder; ``runs/captions-<model>-<hash of model, question and length>`` when None.

    Raises:
      InputError: something of this cannot be.
      SystemExit: with the status 2 where calls have failed, after everything else.
    """
    from winobench.base import caches
    from winobench.generation import captions

    if not model:
        raise InputError(
            "--caption needs --model=MODEL, which writes: a model that sees, such as blip2-flan-t5-xl or openai:gpt-4o"
        )
    shown = captions.find(words)
    caches.keep_compiled()
    responder = load(model, dtype)
    folder = workdir
    if folder is None:
        asked = digest([dict(responder.fingerprint()), question, max_tokens])[:8]
        folder = f"runs/captions-{text.model_label(model)}-{asked}"
    found = captions.write(
        responder,
        shown,
        pathlib.Path(user_path(folder)),
        model=text.display_name(model),
        question=question,
        max_tokens=max_tokens,
    )
    there = sum(one is not None for one in found["texts"])
    print(f"{there:,} texts about {len(shown):,} pictures, {found['asked']:,} of them written now")
    if found["tokens"] is not None and there:
        cost = "" if found["cost"] is None else f"; ${found['cost']:,.4f}"
        print(f"{found['tokens'][0]:,} tokens read, {found['tokens'][1]:,} written{cost}")
    print(f"{found['path']}, and the same as a table: {found['path'].with_suffix('.csv')}")
    if found["failed"]:
        file, reason = next(iter(found["failed"].items()))
        print(
            f"error: {len(found['failed']):,} pictures have no text (first: {file!r}: {reason}): give the same command"
            " again, which asks only for what is missing",
            file=sys.stderr,
        )
        sys.exit(_INCOMPLETE)


def load(model: str, dtype: str = "float32") -> Responder:
    """A model that writes about images.

    Raises:
      InputError: there is no such model, or it does not see.
    """
    from winobench.responders import loading

    ref = registry.resolve(model)
    if ref.kind is None:
        ref = loading.resolve(ref, about_pictures=True)
    if ref.kind == registry.HOSTED or "picture_text" in loading.ANSWERS.get(ref.kind, ()):
        return loading.load_responder(ref, dtype, about_pictures=True)
    raise InputError(
        f"{model!r} writes nothing about images: name a vision-language model, such as blip2-flan-t5-xl or"
        " openai:gpt-4o",
        code="wrong-kind-of-model",
    )
