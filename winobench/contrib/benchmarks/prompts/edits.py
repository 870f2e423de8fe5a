"""Prompts that edit an image, with the image and what tells it from others."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Callable, Mapping
from typing import Any

import PIL.Image

from winobench.base import options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import SOURCE_IMAGE, SOURCE_SHA256, Prompt, make_prompt

INSTRUCTION = "instruction"
"""Field of the content: the instruction as the set has it. The prompt's text is without blanks at the ends."""


def make_edit(where: str, id: str, category: str, fields: Mapping[str, Any], source: Callable[[], bytes]) -> Prompt:
    """A prompt of checked parts that edits an image.

    Args:
      where: it is in the set, in words.
      id: of the prompt.
      category: kind of edit.
      fields: content, with `INSTRUCTION` and the image's path in the set.
      source: reads the image's file. It may raise OSError.

    Raises:
      InputError: the instruction is not a text, or the file is not an image.
    """
    if not isinstance(fields[INSTRUCTION], str):
        raise InputError(f"{where} has the instruction {options.quote(fields[INSTRUCTION])}, which is not a text")
    try:
        file = source()
        with PIL.Image.open(io.BytesIO(file)):
            pass
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or "it is not an image"
        raise InputError(
            f"{where} edits the image {fields[SOURCE_IMAGE]}, which cannot be read ({problem}): get it again",
            code="no-source-image",
        ) from None
    content = {**fields, SOURCE_SHA256: hashlib.sha256(file).hexdigest()}
    prompt = make_prompt(where, fields[INSTRUCTION], id=id, category=category, content=content)
    return dataclasses.replace(prompt, source=source)
