"""How much the text benchmarks ask of a language model: requests and their lengths, with or without the data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from winobench.base.errors import InputError
from winobench.evaluation import protocols as protocol_choice
from winobench.runs.requests import Generation, Options, Turn
from winobench.tasks import TEXT_TASKS, wscplus
from winobench.tasks.questions import Protocol, TextQuestion, TextTask

KINDS = frozenset({Options.kind, Generation.kind})
"""Requests that a language model on a machine of one's own answers."""

# Questions of the tasks whose data the user brings: the result files' and the rest of the 3,026 rows but 26.
_PUBLISHED = {"wscplus": 700, "wscplus_test": 2_300}
# A chat template writes some tokens around each turn. So many stand for them.
_TOKENS_A_TURN = 5


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a task asks by a protocol. Each request counts as the longest one.

    Attributes:
      task, protocol: their names.
      questions: how many there are.
      requests: how many these make.
      prompt: tokens of a prompt.
      shared: how many of these all requests begin with, as the protocol declares them.
      options: tokens of each option. None for texts.
      limit: the most tokens of a text.
      source: what the numbers rest on.
    """

    task: str
    protocol: str
    questions: int
    requests: int
    prompt: int
    shared: int
    options: tuple[int, ...]
    limit: int
    source: str

    @property
    def name(self) -> str:
        """Task and protocol."""
        return f"{self.task}, {self.protocol}"


def read(
    tasks: str, protocols: str | None, data_dir: str | None, limit: int | None, characters: float
) -> tuple[list[Asked], list[str]]:
    """What a config of a text benchmark asks.

    Args:
      tasks: as of the config: names with commas. Those that end in a star stand for all that begin so.
      protocols: as of the config: names with commas, ``all``, or None for each task's first.
      data_dir: the folder with the data. What is not there is taken by its published size.
      limit: as of the config.
      characters: of a prompt for each of its tokens.

    Returns:
      What is asked, and the names of tasks of unknown size.

    Raises:
      InputError: there is no such task or protocol, or nothing of known size.
    """
    chosen = _tasks(tasks)
    asked, unknown = [], []
    for task in chosen:
        found, source = _questions(task, data_dir, limit)
        if not found:
            unknown.append(task.name)
            continue
        count = len(found) if source is None else min(_PUBLISHED[task.name], limit or _PUBLISHED[task.name])
        for protocol in protocol_choice.names(protocols, [task], KINDS):
            chosen_one = protocol_choice.choose(task, protocol, KINDS)
            asked.append(_asked(task, chosen_one, found, count, source or "counted in the data", characters))
    if not asked:
        raise InputError(
            f"config.tasks={tasks} names no task whose size is known: put its data into the data folder",
            code="data-not-ready",
        )
    return asked, unknown


def _tasks(text: str) -> list[TextTask]:
    names = []
    for word in filter(None, map(str.strip, text.split(","))):
        meant = [name for name in TEXT_TASKS if word.endswith("*") and name.startswith(word[:-1])]
        if not meant and word not in TEXT_TASKS:
            raise InputError(f"config.tasks={text} has {word!r}, which is none of {', '.join(TEXT_TASKS)}")
        names += meant or [word]
    return [TEXT_TASKS[name] for name in dict.fromkeys(names)]


def _questions(task: TextTask, data_dir: str | None, limit: int | None) -> tuple[list[TextQuestion], str | None]:
    """A task's questions; where there are none, examples of such, and what their number rests on."""
    if task.ready(data_dir) is None:
        return list(task.load(data_dir, limit)), None
    if task.name not in _PUBLISHED:
        return [], None
    return [
        TextQuestion(
            id="example",
            texts={
                "question": wscplus.question_text(
                    shot["pronoun"], shot["snippet"], shot["statement"], shot["options_text"]
                )
            },
            options=wscplus.LABELS,
            answer=0,
        )
        for shot in wscplus.prompts()["evaluation"]["shots"]["plain"]["examples"]
    ], "the published number of questions, as long as the examples"


def _asked(
    task: TextTask, protocol: Protocol, found: Sequence[TextQuestion], count: int, source: str, characters: float
) -> Asked:
    def tokens(turns: Sequence[Turn]) -> int:
        return sum(math.ceil(len(turn.text) / characters) + _TOKENS_A_TURN for turn in turns)

    of_each = [protocol.requests(question) for question in found]
    requests = [request for some in of_each for request in some]
    longest = max(requests, key=lambda request: tokens(request.turns))
    options = longest.options if isinstance(longest, Options) else ()
    return Asked(
        task=task.name,
        protocol=protocol.name,
        questions=count,
        requests=count * len(of_each[0]),
        prompt=tokens(longest.turns),
        shared=tokens(longest.turns[: longest.prefix_turns]),
        options=tuple(math.ceil(len(option) / characters) for option in options),
        limit=0 if options else longest.max_tokens,
        source=source,
    )
