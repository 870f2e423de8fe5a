"""The HTML of pages on which people judge: one frame, which other packages fill with how an item is drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jinja2


@dataclasses.dataclass(frozen=True)
class Choice:
    """A label that can be given, as a button."""

    label: str
    text: str
    colour: str  # blue, amber or red


def render(package: str, template: str, *, title: str, person: str, choices: Sequence[Choice]) -> str:
    """A page from a template of another package, which extends ``page.html.jinja``.

    The template has the blocks ``rules`` (list items: the meanings of the labels), ``style`` and ``script`` with the
    function ``draw(item, box)``, which puts an item of the server into the page.
    """
    loader = jinja2.ChoiceLoader(
        [jinja2.PackageLoader(package), jinja2.PackageLoader("winobench.contrib.people.judging")]
    )
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    keys = {str(number): choice.label for number, choice in enumerate(choices, 1)}
    return environment.get_template(template).render(title=title, person=person, choices=choices, keys=keys)
