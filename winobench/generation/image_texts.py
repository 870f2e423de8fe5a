"""The prompts that ComfyUI and AUTOMATIC1111's web interface write into the images that they generate.

ComfyUI writes its graph as JSON, in the PNG text ``prompt``, or after ``prompt:`` in the EXIF tags 0x010F and 0x0110 of
WebP files. The web interface writes one text, in the PNG text ``parameters`` or the EXIF tag UserComment. There, a line
that begins with ``Negative prompt:`` or ``Steps:`` ends the prompt.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

import PIL.Image

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.data.images import FORMATS

_USER_COMMENT, _EXIF, _COMFYUI_TAGS = 0x9286, 0x8769, (0x010F, 0x0110)
_END = re.compile(r"^(Negative prompt|Steps):", re.MULTILINE)
_INPUTS = ("text", "text_g", "t5xxl", "positive", "conditioning", "prompt", "string", "value")
_LINKS = 100  # between a sampler and its text, at most


def prompt_of(path: pathlib.Path) -> str:
    """The prompt of an image.

    Raises:
      InputError: the file has none, or several samplers with different ones.
    """
    try:
        with PIL.Image.open(path, formats=FORMATS) as image:
            image.load()  # texts may follow the pixels
            texts, exif = dict(image.info), image.getexif()
            comment = _comment(exif.get_ifd(_EXIF).get(_USER_COMMENT))
            tags = [exif.get(tag) for tag in _COMFYUI_TAGS]
    except Exception as error:  # broken files fail in many ways
        raise InputError(f"{path} cannot be read ({error}): restore or remove it", code="undecodable-image") from None
    graphs = [tag.removeprefix("prompt:") for tag in tags if isinstance(tag, str) and tag.startswith("prompt:")]
    for graph in [texts["prompt"]] if isinstance(texts.get("prompt"), str) else graphs:
        if len(prompts := _of_graph(graph)) == 1:
            return prompts.pop()
        said = f"names {len(prompts)} prompts of samplers" if prompts else "connects no text with a sampler"
        raise InputError(f"the graph of ComfyUI in {path} {said}: name the prompts by --table", code="unknown-prompt")
    parameters = texts.get("parameters") if isinstance(texts.get("parameters"), str) else comment
    if parameters and (prompt := _END.split(parameters, maxsplit=1)[0].strip()):
        return prompt
    raise InputError(
        f"{path} has no prompt of ComfyUI or AUTOMATIC1111 in it: name the prompts with --prompts or --table",
        code="unknown-prompt",
    )


def _comment(value: Any) -> str:
    """EXIF's comment: eight bytes name its characters."""
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        return ""
    text = value[8:]
    if value.startswith(b"UNICODE"):
        return text.decode("utf-16-le" if text[1:2] == b"\0" else "utf-16-be", "replace").strip("\0")
    return text.decode("utf-8", "replace").strip("\0")


def _of_graph(text: str) -> set[str]:
    """The texts that the samplers of a graph follow."""
    try:
        graph = json_files.parse(text, foreign=True)
    except InputError:
        return set()
    nodes = graph if isinstance(graph, dict) else {}
    values = {key: node.get("inputs") for key, node in nodes.items() if isinstance(node, dict)}
    inputs = {key: value for key, value in values.items() if isinstance(value, dict)}
    starts = [value[name] for value in inputs.values() for name in ("positive", "guider") if name in value]
    return {text for link in starts for text in _texts(inputs, link)}


def _texts(inputs: dict[str, dict[str, Any]], link: Any) -> list[str]:
    """The text at the end of a node's links: the first input that is one, or that leads to one."""
    for _ in range(_LINKS):
        if not isinstance(link, list) or not link or str(link[0]) not in inputs:
            return [link.strip()] if isinstance(link, str) and link.strip() else []
        values = inputs[str(link[0])]
        link = next((values[name] for name in _INPUTS if name in values), None)
    return []
