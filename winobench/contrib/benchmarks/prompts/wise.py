"""WISE's 1,000 prompts, each with an explanation of the right image (Niu et al. 2025, arXiv:2503.07265).

PKU-YuanGroup/WISE eb51174 has two editions: WISE_legacy/data of 2025, and data_verified of April 2026 with about 200
other prompts. The repository states no licence.
"""

from __future__ import annotations

import pathlib
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, make_prompt

LAST_IDS = {
    "legacy": {"culture": 400, "time": 567, "space": 700, "biology": 800, "physics": 900, "chemistry": 1000},
    "verified": {"culture": 400, "time": 520, "space": 640, "biology": 760, "physics": 880, "chemistry": 1000},
}
"""Edition -> category -> the last id in it, as in the published scripts. Ids begin with 1."""

_FILES = ("cultural_common_sense", "spatio-temporal_reasoning", "natural_science")
_ENDS = {"legacy": ".json", "verified": "_verified.json"}
_ADVICE = "name WISE's WISE_legacy/data or data_verified, with three files of prompts"


def read(folder: pathlib.Path) -> list[Prompt]:
    """The prompts of the three files, with the category that the id has in the published script."""
    editions = [name for name, end in _ENDS.items() if any((folder / (file + end)).is_file() for file in _FILES)]
    if len(editions) != 1:
        problem = "files of two editions" if editions else f"no file {_FILES[0]}.json or {_FILES[0]}_verified.json"
        raise InputError(f"{folder} has {problem}: {_ADVICE}")
    prompts: dict[int, Prompt] = {}
    for file in _FILES:
        path = folder / (file + _ENDS[editions[0]])
        entries = json_files.read(path, _ADVICE)
        if not isinstance(entries, list):
            raise InputError(f"{path} is not a list of prompts: {_ADVICE}")
        for number, entry in enumerate(entries, 1):
            where = f"prompt {number} of {path}"
            identity, prompt = _prompt(entry, editions[0], where)
            if identity in prompts:
                raise InputError(f"{where} repeats the prompt_id {identity}: {_ADVICE}")
            prompts[identity] = prompt
    return [prompts[identity] for identity in sorted(prompts)]


def edition(prompt: Prompt) -> str | None:
    """The edition of WISE that a prompt is from. None for a prompt of another set."""
    content = prompt.content if isinstance(prompt.content, dict) else {}
    last_ids = LAST_IDS.get(content["wise"], {}) if isinstance(content.get("wise"), str) else {}
    return content["wise"] if prompt.category in last_ids and isinstance(content.get("explanation"), str) else None


def _prompt(entry: Any, edition: str, where: str) -> tuple[int, Prompt]:
    fields = entry if isinstance(entry, dict) else {}
    for name in ("Prompt", "Explanation", "Subcategory"):
        if not isinstance(fields.get(name), str) or not fields[name].strip():
            raise InputError(f"{where} has no {name}: {_ADVICE}")
    identity, last_ids = fields.get("prompt_id"), LAST_IDS[edition]
    if type(identity) is not int or not 1 <= identity <= last_ids["chemistry"]:
        raise InputError(f"{where} has the prompt_id {identity!r}, not a number from 1 to 1,000: {_ADVICE}")
    content = {"wise": edition, "explanation": fields["Explanation"], "subcategory": fields["Subcategory"]}
    category = next(name for name, last in last_ids.items() if identity <= last)
    return identity, make_prompt(where, fields["Prompt"], id=str(identity), category=category, content=content)
