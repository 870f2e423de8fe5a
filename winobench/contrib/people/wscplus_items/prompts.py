"""Prompts for models: a template, a query with its examples, and the number and form of items.

A template says how to think (Table 7), a query what to write (Tables 8 and 13), and the examples come from Table 14
(``assets/wscplus/prompts.json``). The words that ask for a number of items in a form are ours: the paper's are not
printed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from winobench.base import json_files, near_names
from winobench.base.errors import InputError
from winobench.contrib.people.wscplus_items.items import OFFENSIVE, Origin
from winobench.data.wscplus import ASSETS
from winobench.runs.requests import Generation, Turn

BATCH = 3
"""Pairs a request: the paper's balance of quality and cost (section 2.3.3, Figure 12)."""

_FIELDS = ("statement", "pronoun", "snippet", "options", "answer")

# By winobench. ``{unit}`` is pair or question.
_REQUEST = """\
Write {number} new {units} of this kind, on subjects that differ from each other and from the examples. \
{rule}

Put out nothing but the {units}. Write each under a heading, "{unit} 1" and so on, and each sentence as one JSON \
object of this form:
{{"statement": "the complete sentence", "pronoun": "the pronoun that is asked about", "snippet": "the part of the \
statement that holds the pronoun", "options": ["first candidate", "second candidate"], "answer": {answer}, "reason": \
"why this is the answer"}}
{answers}"""
_RULES = {
    "traditional": "Both candidates are named in the sentence and agree with the pronoun in number and gender, and the "
    "two sentences of a pair have the same pronoun and the same candidates but different answers.",
    "ambiguous": "Both candidates are named in the sentence and agree with the pronoun in number and gender, the two "
    "sentences of a pair differ in one word or two, and neither sentence says which candidate is meant.",
    "offensive": "Each question is one sentence that names two people of different groups; it does not say which of "
    "them the pronoun means.",
}
_ANSWERS = {
    "traditional": "The answer is 0 if the pronoun refers to the first candidate and 1 if it refers to the second one.",
    **dict.fromkeys(("ambiguous", "offensive"), "The answer is 2 in every sentence, which means neither candidate."),
}


@dataclasses.dataclass(frozen=True)
class Prompt:
    """One request for items."""

    type: str
    template: str  # a key of `templates`
    query: str  # a key of `queries`
    batch: int  # number of requested pairs or questions
    sample: int  # number of the request among its equals
    text: str
    temperature: float
    max_tokens: int

    @property
    def request(self) -> Generation:
        """The text that is sent."""
        return Generation((Turn("user", self.text),), self.max_tokens, self.temperature, self.sample)

    def origin(self, model: str) -> Origin:
        """The origin of the items that a model writes."""
        return Origin(model, self.type, self.template, self.query, self.batch, self.sample)


@functools.cache
def _texts() -> Mapping[str, Any]:
    return json_files.read(ASSETS / "prompts.json")


def templates() -> Mapping[str, Mapping[str, Any]]:
    """Key -> name, text and source of a template (Table 7)."""
    return _texts()["generation"]["templates"]


def queries() -> Mapping[str, Mapping[str, Any]]:
    """Key -> category, name, text, placeholder, shots and source of a query (Tables 8 and 13)."""
    return _texts()["generation"]["queries"]


def example_statements() -> list[str]:
    """The sentences that prompts show (Table 14), which are not new items."""
    return [item["statement"] for example in _texts()["few_shot"]["examples"] for item in example["items"]]


def choose_queries(names: Iterable[str], offensive: bool) -> list[str]:
    """The queries that a config means."""
    known = queries()
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        _require(name, known, "query")
        if known[name]["category"] == OFFENSIVE and not offensive:
            raise InputError(
                f"query {name!r} asks for offensive questions: say so with --offensive=true.",
                code="offensive-not-allowed",
            )
    if offensive and not any(known[name]["category"] == OFFENSIVE for name in chosen):
        chosen += [name for name, query in known.items() if query["category"] == OFFENSIVE]
    if not chosen:
        raise InputError(f"no query is named: choose of {', '.join(known)}.", code="nothing-named")
    return chosen


def make_prompts(
    template_names: Sequence[str],
    query_names: Sequence[str],
    *,
    offensive: bool = False,
    batch: Sequence[int] = (BATCH,),
    requests: int = 1,
    repeats: int = 1,
    temperature: float = 1.0,
    max_tokens: int = 2048,
) -> list[Prompt]:
    """All prompts: each query with each template and batch, ``repeats`` times ``requests`` of each."""
    chosen = list(dict.fromkeys(template_names))
    for name in chosen:
        _require(name, templates(), "template")
    if not chosen:
        raise InputError(f"no template is named: choose of {', '.join(templates())}.", code="nothing-named")
    wanted = [("requests", requests), ("repeats", repeats), ("max_tokens", max_tokens)]
    for name, number in [*(("batch", size) for size in batch), *wanted]:
        if number < 1:
            raise InputError(f"{name} is {number}, but it must be at least 1.", code="out-of-range")
    samples = requests * repeats
    if samples > 1 and not temperature > 0:
        raise InputError(
            f"{samples} equal requests at temperature {temperature:g} have equal answers: raise the temperature.",
            code="equal-requests",
        )
    prompts = []
    sizes = list(dict.fromkeys(batch))
    for query, template, size in itertools.product(choose_queries(query_names, offensive), chosen, sizes):
        kind, text = queries()[query]["category"], prompt_text(template, query, size)
        prompts += [
            Prompt(kind, template, query, size, sample, text, temperature, max_tokens) for sample in range(samples)
        ]
    return prompts


def prompt_text(template: str, query: str, batch: int = BATCH) -> str:
    """The text of a prompt."""
    row = queries()[query]
    asked = row["text"].replace(row["placeholder"], _examples(row["shots"]))
    return f"{templates()[template]['text']}\n\n{asked}\n\n{_request(row['category'], batch)}"


def digest(prompts: Iterable[Prompt]) -> str:
    """Changes whenever a prompt's text does, but not with the number of requests."""
    return hashlib.sha256("\n\n".join(dict.fromkeys(prompt.text for prompt in prompts)).encode()).hexdigest()


def _require(name: str, known: Mapping[str, Any], what: str) -> None:
    if name not in known:
        hint = near_names.did_you_mean(name, known, f"choose of {', '.join(known)}.")
        raise InputError(f"{what} {name!r} is unknown: {hint}", code="unknown-name")


def _examples(shots: str) -> str:
    """The examples of a query in the requested form: as they are printed, then sentence by sentence."""
    parts = []
    chosen = [example for example in _texts()["few_shot"]["examples"] if example["id"].rpartition("-")[0] == shots]
    for number, example in enumerate(chosen, 1):
        unit = "Pair" if len(example["items"]) == 2 else "Question"
        lines = [json.dumps({name: item[name] for name in _FIELDS}, ensure_ascii=False) for item in example["items"]]
        parts.append("\n".join([f"{unit} {number}: {example['printed']}", *lines]))
    return "\n".join(["For example:", *parts])


def _request(kind: str, batch: int) -> str:
    unit = "question" if kind == OFFENSIVE else "pair"
    return _REQUEST.format(
        number=batch,
        units=unit if batch == 1 else f"{unit}s",
        unit=unit.capitalize(),
        rule=_RULES[kind],
        answer=0 if kind == "traditional" else 2,
        answers=_ANSWERS[kind],
    )
