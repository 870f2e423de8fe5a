"""The qualification task of writers: why is a contrast invalid (appendix A.5, Figure 4 of the arXiv version)?

The paper prints two of its 12 questions without their items. Ours are in ``assets/winoviz/qualification.json``.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping
from typing import Any

from winobench import web
from winobench.base import files, json_files
from winobench.contrib.people import judging
from winobench.data import winoviz

LABELS = FIRST, SECOND = "first", "second"
"""Which of a question's two reasons a person gives."""

_CHOICES = (judging.Choice(FIRST, "First reason", "blue"), judging.Choice(SECOND, "Second reason", "amber"))


@functools.cache
def _content() -> Mapping[str, Any]:
    return json_files.read_object(winoviz.ASSETS / "qualification.json")


def right_answers() -> dict[str, str]:
    """Question -> its right label."""
    return {one["id"]: LABELS[one["reasons"].index(one["right"])] for one in _content()["questions"]}


def answers(folder: str | os.PathLike, name: str) -> judging.Labels:
    """One person's answers, to be opened."""
    return judging.Labels(files.user_path(folder), name, LABELS)


def serve(given: judging.Labels, port: int | None = None) -> contextlib.AbstractContextManager[web.Server]:
    """A running server for the page of one person."""
    html = judging.render(
        __package__, "qualify.html.jinja", title="Why is it invalid?", person=f"writer {given.name}", choices=_CHOICES
    )
    return judging.serve(judging.Page(html, _shown(), given), port)


def num_right(labels: Mapping[str, str]) -> int:
    """Counts a person's right answers."""
    return sum(labels.get(name) == right for name, right in right_answers().items())


def _shown() -> list[dict[str, Any]]:
    """The questions without their answers."""
    reasons = _content()["reasons"]
    return [
        {
            "id": question["id"],
            "object": question["object"],
            "pairs": list(zip(question["properties"], question["attributes"], strict=True)),
            "reasons": [reasons[name] for name in question["reasons"]],
        }
        for question in _content()["questions"]
    ]
