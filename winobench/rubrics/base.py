"""A rubric: the questions that a benchmark asks about each generated image, and the scores that answers give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt
from winobench.runs.requests import ImageMatch, Request, Response

ALL = "all"
"""The group of scores that count for the benchmark as a whole."""

UNREAD = "unread"
"""The metric of answers that cannot be read: their share of all answers about an image."""


class Score(NamedTuple):
    """One number about one image. A result is the mean over all numbers with its metric and group."""

    metric: str
    group: str  # `ALL`, or a skill, a category, a number of atoms
    value: float


def unread(readings: Sequence[Any], responses: Sequence[Response]) -> Iterator[Score]:
    """The share of readings that are None. Nothing where no response can be without an answer."""
    if any(response.scores is None or response.unlisted is not None for response in responses):
        yield Score(UNREAD, ALL, sum(reading is None for reading in readings) / len(readings))


def scores_of(response: Response) -> tuple[float, ...]:
    """The scores of a response to a request that has candidates."""
    if response.scores is None:
        raise ValueError("a response to a request with candidates has no scores")
    return response.scores


def named(*names: str) -> Callable[[str], bool]:
    """Whether a judge has one of some names, in any case and with any owner before it."""
    return lambda name: name.lower().rpartition("/")[2] in names


@dataclasses.dataclass(frozen=True)
class Rubric:
    """A benchmark's way to score generated images.

    Attributes:
      name: as ``--rubric`` names it.
      version: raised whenever a score could change.
      description: one line.
      source: paper and code, with the commit that was compared.
      judge: the published judge. Results by any other are marked as such.
      is_published: name of a judge -> whether it is the published one, which answers the first of ``kinds``.
      kinds: kinds of requests by preference. The first that the judge answers is used.
      wordings: kind of request -> the texts that the judge reads, verbatim, with ``{}`` for a question or prompt.
      fits: whether a prompt has the content that the rubric needs. Images of other prompts are left out.
      requests: ``requests(prompt, image, kind) -> requests``: always the same ones in the same order.
      scores: ``scores(prompt, responses, kind, published) -> scores`` of one image, from the responses in the requests'
        order. With ``published``, the default, texts are read letter by letter as the published code reads them.
        Otherwise as `winobench.base.answer_texts` does.
      follow_ups: ``follow_ups(prompt, image, kind, responses) -> requests`` after the first ones, whose
        responses they may repeat. ``scores`` gets the responses to all, in this order. None without any.
      together: whether ``requests`` gets all images of a prompt by one model, as a tuple, and ``scores`` are of these
        images together. Images about which it requests nothing are left out.
      edits: whether ``requests`` gets a pair of images: the one that the prompt edits, and the result.
      macros: (metric, row) -> groups. The row's value is the plain mean of the groups' means. Or group -> weight: the
        row's value is the sum of the means with these weights, and needs all of them.
      combined: metric -> its value for `ALL`, from the values of other metrics for `ALL`.
      counts: metrics whose values are counts, such as letters, and no shares.
      scorers: names of scorers whose scores ``image_match`` may be, as in a fingerprint. Any where empty.
      missing: prompt -> scores of a missing image, such as 0 where the published code counts it. Without any, which is
        the default, it counts nowhere.
      joint: rubric -> metric. The mean of their values for `ALL` is the benchmark's overall value. Empty without one.
      skills: (metric, group) -> the skill of `winobench.tasks.base.SKILLS` that it measures, to compare with matching.
    """

    name: str
    version: int
    description: str
    source: str
    judge: str
    is_published: Callable[[str], bool]
    kinds: tuple[str, ...]
    wordings: Mapping[str, tuple[str, ...]]
    fits: Callable[[Prompt], bool]
    requests: Callable[[Prompt, Any, str], Iterable[Request]]
    scores: Callable[[Prompt, Sequence[Response], str, bool], Iterable[Score]]
    follow_ups: Callable[[Prompt, Any, str, Sequence[Response]], Iterable[Request]] | None = None
    together: bool = False
    edits: bool = False
    macros: Mapping[tuple[str, str], tuple[str, ...] | Mapping[str, float]] = dataclasses.field(default_factory=dict)
    joint: Mapping[str, str] = dataclasses.field(default_factory=dict)
    combined: Mapping[str, Callable[[Mapping[str, float]], float]] = dataclasses.field(default_factory=dict)
    counts: frozenset[str] = frozenset()
    scorers: tuple[str, ...] = ()
    missing: Callable[[Prompt], Iterable[Score]] = lambda prompt: ()
    skills: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)

    def check_judge(self, name: str, fingerprint: Mapping[str, Any], kind: str) -> None:
        """Refuses a judge whose scores of matching texts mean something else, such as cosines for probabilities."""
        scorer = fingerprint.get("match", fingerprint).get("scorer")
        if kind == ImageMatch.kind and self.scorers and scorer not in self.scorers:
            raise InputError(
                f"{name} cannot judge by {self.name}, which needs the scores of {' or '.join(self.scorers)}, not of"
                f" {scorer}: name a judge such as {self.judge}",
                code="wrong-kind-of-model",
            )
