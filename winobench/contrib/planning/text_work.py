"""The work of text benchmarks for a language model: requests and their lengths, with or without the data."""

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
"""Requests that a local language model answers."""

# Questions of the tasks whose data the user brings: the result files' and the rest of the 3,026 rows but 26.
_PUBLISHED = {"wscplus": 700, "wscplus_test": 2_300}
# A chat template writes some tokens around each turn. So many take the place of those.
_TOKENS_A_TURN = 5


@dataclasses.dataclass(frozen=True)
class Workload:
    """The requests of a task by a protocol. Each request counts as the longest one."""

    task: str
    protocol: str
    questions: int
    requests: int
    prompt: int  # tokens
    shared: int  # tokens of the prompt that all requests begin with, as the protocol declares them
    options: tuple[int, ...]  # tokens of each. Empty for texts
    limit: int  # tokens of the longest text
    source: str  # of the numbers

    @property
    def name(self) -> str:
        return f"{self.task}, {self.protocol}"


def read(
    tasks: str, protocols: str | None, data_dir: str | None, limit: int | None, characters: float
) -> tuple[list[Workload], list[str]]:
    """The work of a config of a text benchmark, and the names of tasks of unknown size."""
    workloads, unknown = [], []
    for task in _tasks(tasks):
        questions, source = _questions(task, data_dir, limit)
        if not questions:
            unknown.append(task.name)
            continue
        count = len(questions) if source is None else min(_PUBLISHED[task.name], limit or _PUBLISHED[task.name])
        for protocol in protocol_choice.names(protocols, [task], KINDS):
            chosen_one = protocol_choice.choose(task, protocol, KINDS)
            workloads.append(_workload(task, chosen_one, questions, count, source or "counted in the data", characters))
    if not workloads:
        raise InputError(
            f"--tasks={tasks} names no task whose size is known: put its data into the data folder",
            code="data-not-ready",
        )
    return workloads, unknown


def _tasks(text: str) -> list[TextTask]:
    names = []
    for word in filter(None, map(str.strip, text.split(","))):
        meant = [name for name in TEXT_TASKS if word.endswith("*") and name.startswith(word[:-1])]
        if not meant and word not in TEXT_TASKS:
            raise InputError(f"--tasks={text} has {word!r}, which is not one of {', '.join(TEXT_TASKS)}")
        names += meant or [word]
    return [TEXT_TASKS[name] for name in dict.fromkeys(names)]


def _questions(task: TextTask, data_dir: str | None, limit: int | None) -> tuple[list[TextQuestion], str | None]:
    """A task's questions, or without data some examples and the source of their number."""
    if task.ready(data_dir) is None:
        return list(task.load(data_dir, limit)), None
    if task.name not in _PUBLISHED:
        return [], None
    names = ("pronoun", "snippet", "statement", "options_text")
    shots = wscplus.prompts()["evaluation"]["shots"]["plain"]["examples"]
    texts = [{"question": wscplus.question_text(*(shot[name] for name in names))} for shot in shots]
    examples = [TextQuestion("example", text, wscplus.LABELS, answer=0) for text in texts]
    return examples, "the published number of questions, as long as the examples"


def _workload(
    task: TextTask, protocol: Protocol, examples: Sequence[TextQuestion], count: int, source: str, characters: float
) -> Workload:
    def tokens(turns: Sequence[Turn]) -> int:
        return sum(math.ceil(len(turn.text) / characters) + _TOKENS_A_TURN for turn in turns)

    of_each = [protocol.requests(question) for question in examples]
    requests = [request for of_question in of_each for request in of_question]
    longest = max(requests, key=lambda request: tokens(request.turns))
    options = longest.options if isinstance(longest, Options) else ()
    return Workload(
        task.name,
        protocol.name,
        count,
        requests=count * len(of_each[0]),
        prompt=tokens(longest.turns),
        shared=tokens(longest.turns[: longest.prefix_turns]),
        options=tuple(math.ceil(len(option) / characters) for option in options),
        limit=0 if options else longest.max_tokens,
        source=source,
    )
