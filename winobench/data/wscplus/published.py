"""The numbers that the paper of WSC+ prints or states."""

from __future__ import annotations

import dataclasses
import functools

from winobench.base import json_files
from winobench.data import wscplus as data


@dataclasses.dataclass(frozen=True)
class PublishedNumber:
    """A number that the paper prints or states.

    Attributes:
      place: ``"Table 6"``, ``"Figure 5, as stated in section 3.2"``.
      row, column: of the table, or what the number is about.
      printed: as printed, ``"95.1%"``.
      unit: ``percent``, ``count`` or ``kappa``.
      metric: its key in our results, ``accuracy``, ``traditional/accuracy``. Others for numbers about the data, such as
        ``share/traditional``, ``items/total``, ``candidates/total``, ``generation/valid``.
      model: ``gpt-4-0613``, ``gpt-3.5-turbo-0613``, ``claude-v2.3``, ``human`` (mean of the evaluators),
        ``evaluator-1`` to ``evaluator-5``, ``random``, or None.
      task: our task, or None for numbers about the data.
      protocol: the template's name in our protocols, or None.
      n: number of questions, where it is stated.
    """

    place: str
    row: str
    column: str
    printed: str
    unit: str
    metric: str
    model: str | None = None
    task: str | None = None
    protocol: str | None = None
    n: int | None = None

    @property
    def value(self) -> float:
        """The number, in [0, 1] where the unit is percent."""
        number = float(self.printed.rstrip("%").replace(",", ""))
        return number / 100 if self.unit == "percent" else number


def published(
    *,
    place: str | None = None,
    metric: str | None = None,
    model: str | None = None,
    protocol: str | None = None,
    task: str | None = None,
) -> tuple[PublishedNumber, ...]:
    """The numbers of Tables 2, 5 and 6 and those that the text states, in the order of print.

    Args:
      place: ``"Table 6"``, or the beginning of another place, such as ``"Figure 5"``.
      metric, model, protocol, task: if given, only numbers with this value.
    """
    wanted = {"metric": metric, "model": model, "protocol": protocol, "task": task}
    return tuple(
        number
        for number in _published()
        if (place is None or number.place.startswith(place))
        and all(value is None or getattr(number, name) == value for name, value in wanted.items())
    )


@functools.cache
def _published() -> tuple[PublishedNumber, ...]:
    content = json_files.read(data.ASSETS / "published.json")
    return tuple(PublishedNumber(**number) for number in content["numbers"])
