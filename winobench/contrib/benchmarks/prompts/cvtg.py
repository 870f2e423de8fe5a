"""CVTG-2K's 2,000 prompts with two to five texts in the image (Du et al. 2025, arXiv:2503.23461).

The files are CVTG/2.json to 5.json and CVTG-Style/2.json to 5.json of dnkdnk/CVTG-2K on the Hugging Face hub. No
licence was found. The words that the image must show stand between single quotation marks in the prompt, as in the
published extract_words_from_prompt.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, make_prompt

PARTS, REGIONS = ("CVTG", "CVTG-Style"), (2, 3, 4, 5)
_QUOTED = re.compile("'(.*?)'")
_ADVICE = f"name CVTG-2K's folder with {' and '.join(PARTS)}, each with {REGIONS[0]}.json to {REGIONS[-1]}.json"


def read(folder: pathlib.Path) -> list[Prompt]:
    """The prompts, with the part as category. The content is the number of regions, and the words in small letters."""
    prompts = []
    for part in PARTS:
        for regions in REGIONS:
            path = _existing(folder, part) / f"{regions}.json"
            rows = json_files.read_object(path, _ADVICE).get("data_list")
            if not isinstance(rows, list) or not rows:
                raise InputError(f"{path} has no list data_list: {_ADVICE}")
            seen: set[int] = set()
            for place, row in enumerate(rows):
                where = f"prompt {place} of {path}"
                index, text = _checked(row, where)
                if index in seen:
                    raise InputError(f"{where} repeats the index {index}: {_ADVICE}")
                seen.add(index)
                words = [word for quoted in _QUOTED.findall(text) for word in quoted.lower().split()]
                content = {"regions": regions, "words": words}
                prompts.append(make_prompt(where, text, id=f"{part}_{regions}_{index}", category=part, content=content))
    return prompts


def has_words(content: Any) -> bool:
    """Whether a prompt's content is CVTG-2K's, with words to read."""
    if not isinstance(content, dict) or type(content.get("regions")) is not int:
        return False
    words = content.get("words")
    return isinstance(words, list) and bool(words) and all(isinstance(word, str) and word for word in words)


def _existing(folder: pathlib.Path, part: str) -> pathlib.Path:
    """The folder of a part. The published page writes CVTG-style, too."""
    return next((path for path in sorted(folder.glob("*")) if path.name.lower() == part.lower()), folder / part)


def _checked(row: Any, where: str) -> tuple[int, str]:
    if not isinstance(row, dict) or type(row.get("index")) is not int or not isinstance(row.get("prompt"), str):
        raise InputError(f"{where} is {options.quote(row)}, without a number index and a text prompt: {_ADVICE}")
    return row["index"], row["prompt"]
