"""The part of launch.generate that writes about images: captions, or answers to a question."""

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
    """Writes texts about images and prints where they are. Exits with the status 2 where calls have failed.

    The arguments are those of `winobench.generation.captions.write`, but that ``words`` names the images and ``model``
    a model. The folder is ``runs/captions-<model>-<hash of model, question and length>`` by default.
    """
    from winobench.base import caches
    from winobench.generation import captions

    if not model:
        raise InputError(
            "--caption needs --model=MODEL: a vision-language model, such as blip2-flan-t5-xl or openai:gpt-4o"
        )
    images = captions.find(words)
    caches.keep_compiled()
    responder = load(model, dtype)
    folder = workdir
    if folder is None:
        asked = digest([dict(responder.fingerprint()), question, max_tokens])[:8]
        folder = f"runs/captions-{text.model_label(model)}-{asked}"
    found = captions.write(
        responder,
        images,
        pathlib.Path(user_path(folder)),
        model=text.display_name(model),
        question=question,
        max_tokens=max_tokens,
    )
    there = sum(one is not None for one in found["texts"])
    print(f"{there:,} texts about {len(images):,} images, {found['asked']:,} of them written now")
    if found["tokens"] is not None and there:
        cost = "" if found["cost"] is None else f"; ${found['cost']:,.4f}"
        print(f"{found['tokens'][0]:,} tokens read, {found['tokens'][1]:,} written{cost}")
    print(f"{found['path']}, and the same as a table: {found['path'].with_suffix('.csv')}")
    if found["failed"]:
        file, reason = next(iter(found["failed"].items()))
        print(
            f"error: {len(found['failed']):,} images have no text (first: {file!r}: {reason}): give the same command"
            " again, which asks only for what is missing",
            file=sys.stderr,
        )
        sys.exit(_INCOMPLETE)


def load(model: str, dtype: str = "float32") -> Responder:
    """A model that writes about images; raises InputError for another one, before it is loaded."""
    from winobench.responders import loading

    ref = registry.resolve(model)
    if ref.kind is None:
        ref = loading.resolve(ref, about_pictures=True)
    if ref.is_checkpoint and "picture_text" not in loading.ANSWERS.get(ref.kind, ()):
        raise InputError(
            f"{model!r} writes no texts about images: name a vision-language model, such as blip2-flan-t5-xl or"
            " openai:gpt-4o",
            code="wrong-kind-of-model",
        )
    return loading.load_responder(ref, dtype, about_pictures=True)
