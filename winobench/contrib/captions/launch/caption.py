"""Caption images, or answer a question about each: winobench caption PICTURES --model=MODEL"""

from __future__ import annotations

import pathlib
import sys
from typing import TYPE_CHECKING

from absl import flags

from winobench.base import options, registry
from winobench.base.errors import InputError
from winobench.base.files import digest, user_path

from . import configuration, output, text

if TYPE_CHECKING:
    from winobench.runs.requests import Responder

USAGE = """
Captions images with a vision-language model, or answers a question about each image (docs/howto/vision_language.md).
PICTURES are folders, patterns, files, and runs of winobench generate:

  winobench caption photos --model=blip2-flan-t5-xl --dtype=bfloat16
  winobench caption 'photos/**/*.jpg' --model=openai:gpt-4o --question="What colour is the car?"
  winobench caption runs/images-clevr-tiny-1a2b3c4d --model=qwen3-vl-2b --max_tokens=60

Each text is in captions.jsonl of the run's folder as soon as it is written. captions.csv has all texts at the end. The
same command requests only missing texts.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder, runs/captions-<model>-<hash> by default.")
_MODEL = flags.DEFINE_string(
    "model", None, "The vision-language model: a name, folder, hub id, openai:MODEL, or anthropic:MODEL."
)
_QUESTION = flags.DEFINE_string("question", "", "A question to ask instead of a caption.")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 30, "Tokens of the longest text.", lower_bound=1, upper_bound=100_000)
_DTYPE = flags.DEFINE_enum("dtype", "float32", options.DTYPES, "Compute dtype of a model with weights.")
text.define_api_flags(__name__)

_INCOMPLETE = 2


def main(words: list[str]) -> None:
    """Writes texts about the named images, and prints where they are."""
    from winobench.base import caches
    from winobench.contrib.captions import writing

    model, question, max_tokens = _MODEL.value, _QUESTION.value, _MAX_TOKENS.value
    if not model:
        raise InputError(
            "no model is named: give --model=MODEL, a vision-language model such as blip2-flan-t5-xl or openai:gpt-4o",
            code="nothing-named",
        )
    images = writing.find(words)
    caches.keep_compiled()
    responder = _load(model, _DTYPE.value)
    folder = _WORKDIR.value
    if folder is None:
        key = digest([dict(responder.fingerprint()), question, max_tokens])[:8]
        folder = f"runs/captions-{text.model_label(model)}-{key}"
    run = writing.write(
        responder,
        images,
        pathlib.Path(user_path(folder)),
        model=text.display_name(model),
        question=question,
        max_tokens=max_tokens,
    )
    num_texts = sum(caption is not None for caption in run["texts"])
    print(f"{num_texts:,} texts about {len(images):,} images, {run['asked']:,} of them written now")
    if run["tokens"] is not None and num_texts:
        cost = "" if run["cost"] is None else f"; ${run['cost']:,.4f}"
        print(f"{run['tokens']['input'] or 0:,} tokens read, {run['tokens']['output'] or 0:,} written{cost}")
    print(f"{run['path']}, and the same as a table: {run['path'].with_suffix('.csv')}")
    texts = zip(images, run["texts"], strict=True)
    output.print_json(
        {
            "folder": str(run["path"].parent),
            "question": question,
            "captions": [{"file": image.image.path, "text": caption} for image, caption in texts],
            **{name: run[name] for name in ("failed", "asked", "tokens", "cost")},
        }
    )
    if run["failed"]:
        from winobench.runs import endings

        file, reason = next(iter(run["failed"].items()))
        print(
            f"error: {len(run['failed']):,} images have no text (first: {file!r}: {reason}):"
            f" {endings.again(len(run['failed']), run['blocked'])}",
            file=sys.stderr,
        )
        sys.exit(_INCOMPLETE)


def _load(model: str, dtype: str) -> Responder:
    from winobench.responders import loading
    from winobench.scorers import loading as scorers

    ref = registry.resolve(model)
    if ref.kind is None:
        ref = scorers.resolve(ref, scorers.IMAGES)
    if ref.is_checkpoint and "picture_text" not in loading.ANSWERS.get(ref.kind, ()):
        raise InputError(
            f"{model!r} writes no texts about images: name a vision-language model, such as blip2-flan-t5-xl or"
            " openai:gpt-4o",
            code="wrong-kind-of-model",
        )
    return loading.load_responder(ref, dtype, hosted=text.given_api_options(model), about_images=True)


if __name__ == "__main__":
    output.define_json()
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
