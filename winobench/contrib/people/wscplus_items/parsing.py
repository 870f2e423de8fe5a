"""Reads the sentences from models' answers to requests for pairs.

JSON objects, one a sentence, are preferred (also with the broken quotes and commas that models produce) to lines with
labels ("Sentence 1: ...", "Options: ..."). In both a pair may be one line ("... because it is too [large/small].").
Parts that look like a sentence but lack something are counted as malformed, with the reason.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

from winobench.base import json_files
from winobench.base.texts import readable
from winobench.contrib.people.wscplus_items.items import NEITHER, OFFENSIVE, Sentence, normalised, words

# Reasons.
REFUSED = "declined"  # paper, section 2.3.2
CUT_OFF = "cut off"
NOTHING = "no sentence"  # nor anything that looks like one
ALONE = "without its partner"  # the other sentence of a pair is missing or malformed


@dataclasses.dataclass(frozen=True)
class Malformed:
    """A part of an answer that cannot be used."""

    reason: str  # a few words, the same for all of a kind
    text: str  # shortened


@dataclasses.dataclass
class _Record:
    """Fields of one or two sentences as they were found."""

    fields: dict[str, Any]
    group: str | None  # the number of the pair that they stand under
    text: str


# What models call the fields -> the layout's names.
_NAMES = {
    **dict.fromkeys(("statement", "sentence", "question"), "statement"),
    **dict.fromkeys(("snippet", "excerpt"), "snippet"),
    **dict.fromkeys(("options", "option", "candidates", "antecedents"), "options"),
    **dict.fromkeys(("answer", "correct answer"), "answer"),
    **dict.fromkeys(("reason", "reasoning", "explanation"), "reason"),
    **{"pronoun": "pronoun", "pair": "pair"},
}
_NAME = "|".join(sorted(map(re.escape, _NAMES), key=len, reverse=True))
_OBJECT = re.compile(r"\{[^{}]*\}")
_OPEN_OBJECT = re.compile(r"\{[^{}]*\Z")
_HEADING = re.compile(r"\b(?:pair|question|item)\s*#?\s*(\d+)\b", re.IGNORECASE)
_FIELD = re.compile(rf"""["'“”]?\b({_NAME})\b["'“”]?\s*:\s*""", re.IGNORECASE)
_LINE = re.compile(
    rf"^\s*(?:[-*•]\s+)?(?:\d+[.)]\s+)?[*_]*(?:pair\s*\d+\s*)?[.\s]*({_NAME})\s*#?\s*(?:\(?(\d|[ab])\)?)?[*_]*\s*[:=]\s*[*_]*(.*)$",
    re.IGNORECASE,
)
_HEADING_LINE = re.compile(
    r"^\W*(?:pair|item)\s*#?\s*(\d+)\W*(?:\.?\s*([ab])\b)?[*_]*\s*[:.\-)]*\s*(.*)$", re.IGNORECASE
)
_BRACKET = re.compile(r"\[([^\[\]/|]+)[/|]([^\[\]/|]+)\]")
_CLAIM = re.compile(r"\(\s*(?:K\s*=|answer\s*[:=])\s*([^()]*)\)", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\b(sorry|apologi[sz]e|apologies|can(?:no|['’])t (?:assist|help|generate|provide|create|fulfil\w*|comply)"
    r"|(?:un)?able to (?:assist|generate|provide|create|comply)|not (?:feel )?comfortable|against my|must decline)\b",
    re.IGNORECASE,
)
_NEITHER_WORDS = re.compile(
    r"\b(neither|none|ambiguous|unclear|either|both|unknown|undetermined|cannot be determined|can't be determined)\b",
    re.IGNORECASE,
)
_ORDINALS = {"first": 0, "second": 1, "option 1": 0, "option 2": 1}
_ARTICLES = ("the", "a", "an")
_QUOTES = "\"'“”‘’` "
_SHOWN = 300
# Brackets that may begin an object. Models that go round in circles write more.
_MOST_OBJECTS = 10_000
# Sentences of one pair share more than this part of their words. Those of different pairs hardly ever do.
_PARTNERS = 0.5


def parse(text: str | None, kind: str, *, cut_off: bool = False) -> tuple[list[tuple[Sentence, ...]], list[Malformed]]:
    """The groups of two sentences (one where they stand alone) in an answer, and what could not be used."""
    # What a model thinks aloud before it answers is not an answer, nor are thoughts that were cut off.
    text = readable((text or "").rpartition("</think>")[2].partition("<think>")[0])
    records, malformed = _json_records(text)
    if not records:
        records = _line_records(text)
    last = _OPEN_OBJECT.search(text)
    if last and _FIELD.search(last.group()):
        malformed.append(Malformed(CUT_OFF, _short(last.group())))
    if not records and not malformed:
        reason = CUT_OFF if cut_off else REFUSED if _REFUSAL.search(text) else NOTHING
        return [], [Malformed(reason, _short(text))]
    sentences = [(sentence, record.group) for record in records for sentence in _sentences(record)]
    malformed += [sentence for sentence, _ in sentences if isinstance(sentence, Malformed)]
    good = [(sentence, group) for sentence, group in sentences if isinstance(sentence, Sentence)]
    if kind == OFFENSIVE:
        return [(sentence,) for sentence, _ in good], malformed
    pairs, alone = _pairs(good)
    malformed += [Malformed(ALONE, _short(sentence.statement)) for sentence in alone]
    return pairs, malformed


def _json_records(text: str) -> tuple[list[_Record], list[Malformed]]:
    """The sentences that are JSON objects."""
    records, malformed = [], []
    headings = list(_HEADING.finditer(text))
    ends = [match.end() for match in headings]
    for start, end, fields in _objects(text):
        shown = text[start:end]
        if "statement" not in fields:
            if fields:
                malformed.append(Malformed("no statement", _short(shown)))
            continue
        before = bisect.bisect_right(ends, start)
        group = fields.get("pair") or (headings[before - 1][1] if before else None)
        records.append(_Record(fields, None if group is None else str(group), shown))
    return records, malformed


def _objects(text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Beginning, end and fields of the JSON objects, which may be broken, or lie in others that hold no statement."""
    start, tries = -1, 0
    while (start := text.find("{", start + 1)) >= 0 and tries < _MOST_OBJECTS:
        tries += 1
        try:
            record, end = json_files.parse_at(text, start)
        except ValueError:
            broken = _OBJECT.match(text, start)
            if broken is None:
                continue
            end, fields = broken.end(), _broken_fields(broken.group())
        else:
            fields = {_NAMES[name.lower()]: value for name, value in record.items() if name.lower() in _NAMES}
            if "statement" not in fields and "{" in text[start + 1 : end]:
                continue
        yield start, end, fields
        start = end - 1


def _broken_fields(text: str) -> dict[str, Any]:
    """The fields of an object that is not JSON, cut at the names, with any quotes and commas between them."""
    names = list(_FIELD.finditer(text))
    ends = [*(match.start() for match in names), len(text) - 1][1:]
    return {
        _NAMES[match.group(1).lower()]: text[match.end() : end].strip().rstrip(",").strip()
        for match, end in zip(names, ends, strict=True)
    }


def _line_records(text: str) -> list[_Record]:
    """The sentences that are lines with labels. A record holds those of a pair that share its other lines."""
    records: list[_Record] = []
    fields: dict[str, Any] = {}
    group: str | None = None
    last: str | None = None

    def close() -> None:
        nonlocal fields, last
        if any(name.startswith("statement") for name in fields):
            shown = "\n".join(f"{name}: {value}" for name, value in fields.items())
            records.append(_Record(fields, group, shown))
        fields, last = {}, None

    for line in text.splitlines():
        heading, labelled = _HEADING_LINE.match(line), _LINE.match(line)
        if heading and not labelled:
            close()
            group, rest = heading.group(1), _bare(heading.group(3))
            labelled = _LINE.match(rest)
            if rest and not labelled:
                fields["statement"] = rest
                continue
        if labelled:
            name, index, value = labelled.groups()
            key = _NAMES[name.lower()]
            # "Option 1: ..." is one of the two options, not the options of the first sentence.
            if name.lower() == "option":
                fields.setdefault("options", [])
                if not isinstance(fields["options"], list) or len(fields["options"]) == 2:
                    close()
                    fields["options"] = []
                fields["options"].append(_bare(value))
                last = None
                continue
            key = key if index is None else f"{key} {int(index.lower() in ('2', 'b'))}"
            statements = [position for position, known in enumerate(fields) if known.startswith("statement")]
            if _NAMES[name.lower()] == "statement" and statements and "answer" in fields:
                # One sentence after the other, each with its answer. Text before them belongs to both.
                shared = dict(list(fields.items())[: statements[0]])
                close()
                fields = shared
            elif key in fields:
                close()
            fields[key] = _bare(value)
            last = key
        elif not line.strip():
            last = None
        elif _BRACKET.search(line) and (not fields or ("statement" in fields and last != "statement")):
            close()
            fields["statement"] = _bare(re.sub(r"^\s*\d+[.)]\s*", "", line))
        elif last is not None:
            fields[last] = f"{fields[last]} {_bare(line)}".strip()
    close()
    return records


def _sentences(record: _Record) -> list[Sentence | Malformed]:
    """The one or two sentences of a record."""
    fields = dict(record.fields)
    has_two = "statement 0" in fields and "statement 1" in fields
    if not has_two and "statement" not in fields:
        fields["statement"] = fields.pop("statement 0", None) or fields.pop("statement 1", None)
    num_brackets = 0 if has_two else len(_BRACKET.findall(_text(fields["statement"])))
    if not has_two and not num_brackets:
        return [_sentence(_own(fields, 0), record.text)]
    if num_brackets > 1:
        return [Malformed("several brackets", _short(record.text))]
    both = [_own(fields, number) for number in (0, 1)]
    answers = None if "answer 0" in fields else _two_answers(fields.get("answer"))
    if num_brackets and answers is None and "answer 0" not in fields:
        return [Malformed("one answer for two sentences", _short(record.text))] * 2
    for own, answer in zip(both, answers or (), strict=False):
        own["answer"] = answer
    for number, own in enumerate(both if num_brackets else ()):
        for name in ("statement", "snippet", "reason"):
            if own.get(name) is not None:
                own[name] = _BRACKET.sub(lambda match, number=number: match.group(number + 1).strip(), _text(own[name]))
    return [_sentence(own, record.text) for own in both]


def _own(fields: dict[str, Any], number: int) -> dict[str, Any]:
    """The fields of one of a record's two sentences: numbered fields come before shared ones."""
    shared = {name: value for name, value in fields.items() if not name[-1].isdigit()}
    return shared | {name[:-2]: value for name, value in fields.items() if name.endswith(f" {number}")}


def _two_answers(value: Any) -> tuple[Any, Any] | None:
    """The answers of two sentences that are written as one; None where there is one for both."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return tuple(value)
    text = _text(value)
    bracket = _BRACKET.search(text)
    if bracket:
        return bracket.groups()
    parts = re.fullmatch(r"\W*([012])\s*(?:/|,|;|\||and|or)\s*([012])\W*", text)
    if parts:
        return parts.groups()
    if text.count("/") == 1:
        return tuple(text.split("/"))
    return (NEITHER, NEITHER) if _NEITHER_WORDS.search(text) or text.strip(_QUOTES) == str(NEITHER) else None


def _sentence(fields: dict[str, Any], text: str) -> Sentence | Malformed:
    """A sentence from its fields. A reason need not be given, and a snippet that does not fit is cut out again."""
    statement = _text(fields.get("statement"))
    claim = _CLAIM.search(statement)
    if claim:
        statement = _CLAIM.sub("", statement).strip()
        fields.setdefault("answer", claim.group(1))
    for name in ("statement", "pronoun", "options", "answer"):
        if fields.get(name) in (None, "", []):
            return Malformed(f"no {name}", _short(text))
    options = read_options(fields["options"])
    if len(options) != 2:
        return Malformed("not two options", _short(text))
    answer = read_answer(fields["answer"], options)
    if answer is None:
        return Malformed("unreadable answer", _short(text))
    pronoun = _text(fields["pronoun"]).strip("*_.,;:!?()[]" + _QUOTES)
    snippet = _text(fields.get("snippet"))
    if normalised(snippet) not in normalised(statement) or not _places(snippet, pronoun):
        snippet = snippet_of(statement, pronoun)
    return Sentence(statement, pronoun, snippet, (options[0], options[1]), answer, _text(fields.get("reason")))


def read_options(value: Any) -> list[str]:
    """The candidates in a list, in an object by number, or in text, without a third one that states "neither"."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        options = [_text(option) for option in value]
    else:
        text = str(value).strip()
        inner = text.strip("[]() ")
        quoted = re.findall(r'"([^"]+)"', inner) or re.findall(r"(?<!\w)'(.+?)'(?!\w)", inner)
        numbered = re.split(r"(?:^|[,;]?\s+)(?:option\s*)?\(?(?:\d|[AB])[).:]\s*", inner)
        if len(quoted) >= 2:
            options = quoted
        elif len(numbered) >= 3:
            options = numbered[1:]
        else:
            options = next(
                (parts for mark in (r"\s*/\s*", r"\s*;\s*", r"\s*\|\s*", r"\s*,\s*", r"\s+or\s+", r"\s+and\s+")
                 if len(parts := re.split(mark, inner)) >= 2),
                [inner],
            )  # fmt: skip
    options = [re.sub(r"^(?:or|and)\s+", "", option.strip(_QUOTES + ",;.")) for option in options]
    nothing = ("neither", "none", "ambiguous", "unclear")
    return [option for option in options if option and normalised(option) not in nothing]


def read_answer(value: Any, options: Sequence[str]) -> int | None:
    """The index that an answer means by a number, a candidate's name, or words for neither; None if it means none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value in (0, 1, NEITHER) else None
    if isinstance(value, list | tuple):
        return read_answer(value[0], options) if len(value) == 1 else None
    text = _text(value)
    number = re.match(r"\W*([012])(?:\b|$)(?!\s*(?:/|,\s*\d))", text)
    if number:
        return int(number.group(1))
    plain = _plain(text)
    exact = [index for index, option in enumerate(options) if _plain(option) == plain]
    if len(exact) == 1:
        return exact[0]
    if _NEITHER_WORDS.search(text):
        return NEITHER
    named = [index for index, option in enumerate(options) if f" {_plain(option)} " in f" {plain} "]
    if len(named) == 1:
        return named[0]
    return next((index for word, index in _ORDINALS.items() if plain.startswith(word)), None)


def snippet_of(statement: str, pronoun: str) -> str:
    """The part of a statement from its last such pronoun to the end of the clause. Empty if it has none."""
    places = _places(statement, pronoun)
    if not places:
        return ""
    return re.match(r"[^,.;!?]*", statement[places[-1].start() :]).group().strip()


def _places(text: str, pronoun: str) -> list[re.Match[str]]:
    return list(re.finditer(rf"(?<!\w){re.escape(pronoun)}(?!\w)", text, re.IGNORECASE))


def _pairs(sentences: Sequence[tuple[Sentence, str | None]]) -> tuple[list[tuple[Sentence, ...]], list[Sentence]]:
    """Sentences that make a pair, and those that are left alone.

    Two of the same number are one. Where models number nothing, or count sentences rather than pairs, neighbours with
    much the same words are.
    """
    pairs, alone, index = [], [], 0
    counts = collections.Counter(group for _, group in sentences)
    while index < len(sentences):
        sentence, group = sentences[index]
        if index + 1 < len(sentences):
            other, next_group = sentences[index + 1]
            numbered = group is not None and group == next_group and counts[group] == 2
            if numbered or _alike(sentence, other):
                pairs.append((sentence, other))
                index += 2
                continue
        alone.append(sentence)
        index += 1
    return pairs, alone


def _alike(one: Sentence, other: Sentence) -> bool:
    first, second = set(words(one.statement)), set(words(other.statement))
    return len(first & second) > _PARTNERS * max(len(first), len(second), 1)


def _text(value: Any) -> str:
    """A field's text with single spaces, without quotes around it. Quotes that belong to it stay."""
    text = "" if value is None else " ".join(str(value).split())
    for marks in ('"“”', "'‘’", "`"):
        if len(text) > 1 and text[0] in marks and text[-1] in marks:
            return text[1:-1].strip()
    if sum(text.count(mark) for mark in '"“”') == 1:  # the other one is lost
        return text.strip('"“” ')
    return text


def _bare(line: str) -> str:
    return line.strip().strip("*_").strip()


def _plain(text: str) -> str:
    found = words(text)
    return " ".join(found[1:] if found[:1] and found[0] in _ARTICLES and len(found) > 1 else found)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
