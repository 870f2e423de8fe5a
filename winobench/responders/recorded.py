"""A file of responses as a model: ``recorded:FILE.csv``, in UTF-8, with a header and a row a response. Its columns:

    response           the text of the answer. In the result files that are published with WSC+: predicted_reason
    prompt             the words of the last user turn. Or, as in WSC+'s result files,
    ToE_query, query   the whole prompt and the question at its end
    id                 the question, without a prompt; ``bind`` assigns prompts to it
    sample             optional: number of the sample. Otherwise rows of the same prompt are samples 0, 1, ... in order

A row answers a request if one of its prompts is the last user turn, or stands at its end with at most 100 characters
behind it (examples come before the question), up to white space, quotation marks and wrongly decoded characters. After
``bind``, a prompt without a row takes the most similar row that no other finds: some were edited after they had been
asked. Any other request is a failed call of the kind ``not recorded``.
"""

from __future__ import annotations

import csv
import difflib
import functools
import hashlib
import io
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.base.registry import RECORDED
from winobench.runs.requests import Generation, Raw, Response

PREFIX = f"{RECORDED}:"
EXAMPLE = "example"
"""``recorded:example``: handwritten answers to the first six items of WinoViz mini, in several forms. Of no model."""
_EXAMPLE_FILE = pathlib.Path(__file__).parents[1] / "assets/winoviz/example_answers.csv"
PROMPT_COLUMNS = ("prompt", "ToE_query", "query")
RESPONSE_COLUMNS = ("response", "predicted_reason")

# What else of a row is kept with its response: how the authors of a file have read and judged it.
_NOTES = ("predicted_answer", "check", "result")
_LARGEST_FIELD = 2**24
_LONGEST_TAIL = 100
# Of prompts, as difflib measures it: a question in other words has 0.9 and more.
_SIMILAR = 0.8
_MOST_COMPARISONS = 1000
_MARKS = str.maketrans({"‘": "'", "’": "'", "‚": "'", "“": '"', "”": '"', "„": '"', "…": "..."})


class RecordedModel:
    """A file of responses. ``missing`` counts the requests so far without a row."""

    kinds = frozenset({"generation"})

    def __init__(self, name: str):
        given = name.removeprefix(PREFIX)
        self.path = _EXAMPLE_FILE if given == EXAMPLE else pathlib.Path(user_path(given))
        self.missing = 0
        content = _read(self.path)
        columns, rows = _parse(self.path, content)
        self._digest = hashlib.sha256(content).hexdigest()
        response_column = next((column for column in RESPONSE_COLUMNS if column in columns), None)
        self._prompt_columns = [column for column in PROMPT_COLUMNS if column in columns]
        self._has_ids = "id" in columns
        if response_column is None:
            raise InputError(
                f"{self.path} has no column with responses, only {', '.join(columns)}: name one of its columns "
                f"{' or '.join(RESPONSE_COLUMNS)}.",
                code="missing-column",
            )
        self._response_column = response_column
        if not self._prompt_columns and not self._has_ids:
            raise InputError(
                f"{self.path} has no prompts, only the columns {', '.join(columns)}. Add one named "
                f"{', '.join(PROMPT_COLUMNS)} or id.",
                code="missing-column",
            )
        self._rows = rows
        self._by_prompt: dict[str, dict[int, int]] = {}
        self._by_id: dict[str, dict[int, int]] = {}
        for number, row in enumerate(rows):
            sample = self._sample(number, row)
            # Columns of a row may hold the same, which is one sample.
            for prompt in {normalise(row[column]) for column in self._prompt_columns} - {""}:
                _enter(self._by_prompt, prompt, sample, number)
            if self._has_ids:
                _enter(self._by_id, row["id"].strip(), sample, number)
        self._bound: dict[str, tuple[str, int]] = {}
        self._edited: dict[str, int] = {}

    def fingerprint(self) -> dict[str, Any]:
        return {"recorded": self._digest}

    def bind(self, questions: Iterable[tuple[str, Sequence[Generation]]]) -> None:
        """Takes all questions (id, requests): finds the prompts of the file's ids, and the rows of edited prompts."""
        if self._prompt_columns:
            self._bind_edited([request for _, requests in questions for request in requests])
            return
        for name, requests in questions:
            for number, request in enumerate(requests):
                self._bound.setdefault(f"{request.sample} {normalise(request.turns[-1].text)}", (name, number))

    def _bind_edited(self, requests: Sequence[Generation]) -> None:
        rows = [self._find(request) for request in requests]
        left = sorted(set(range(len(self._rows))) - set(rows))
        edited = [request for request, number in zip(requests, rows, strict=True) if number is None]
        # Files of the same data leave few rows and few prompts for this table of all against all.
        if not left or len(left) * len(edited) > _MOST_COMPARISONS:
            return
        pairs = []
        for request in edited:
            prompt = normalise(request.turns[-1].text)
            matcher = difflib.SequenceMatcher(b=prompt, autojunk=False)
            for number in left:
                recorded = [normalise(self._rows[number][column]) for column in self._prompt_columns]
                similar = 0.0
                for text in filter(None, recorded):
                    matcher.set_seq1(text)
                    similar = max(similar, matcher.ratio())
                pairs.append((similar, number, f"{request.sample} {prompt}"))
        taken: set[int] = set()
        for similar, number, key in sorted(pairs, reverse=True):
            if similar >= _SIMILAR and number not in taken and key not in self._edited:
                taken.add(number)
                self._edited[key] = number

    def ask(self, requests: Sequence[Generation]) -> Iterator[tuple[int, Raw]]:
        """Yields ``{"response", "row", "notes"}`` of each request in order. Rows count from 1, the header left out."""
        missing: list[str] = []
        for index, request in enumerate(requests):
            if request.kind not in self.kinds:
                raise InputError(
                    f"{PREFIX}{self.path} holds texts and answers no {request.kind} requests: choose another protocol.",
                    code="kind-not-answered",
                )
            number = self._find(request)
            if number is None:
                missing.append(request.turns[-1].text)
                message = f"{self.path} has no response to this prompt"
                yield index, {"error": {"kind": "not recorded", "message": message, "attempts": 0}}
                continue
            row = self._rows[number]
            notes = {column: row[column] for column in _NOTES if column in row}
            yield index, {"response": row[self._response_column], "row": number + 1, "notes": notes}
        self.missing += len(missing)
        if missing:
            example = " ".join(missing[0].split())
            example = example if len(example) <= 120 else f"...{example[-117:]}"
            logging.warning(
                "%s has no response to %d of %d prompts, such as %r: they are counted as failed",
                self.path,
                len(missing),
                len(requests),
                example,
            )

    def read(self, request: Generation, raw: Raw) -> Response:
        """The text, its wrongly decoded characters repaired. Numbers of tokens are not known."""
        text = raw.get("response")
        if not isinstance(text, str):
            raise ValueError("it has no response")
        return Response(text=_repair()(text).strip() or None)

    def _sample(self, number: int, row: Mapping[str, str]) -> int | None:
        text = row.get("sample")
        if text is None or not text.strip():
            return None
        try:
            return int(text)
        except ValueError:
            raise InputError(
                f"{self.path}, row {number + 1}: the sample {text!r} is not a whole number: correct it.",
                code="not-a-number",
            ) from None

    def _find(self, request: Generation) -> int | None:
        prompt = normalise(request.turns[-1].text)
        if not self._prompt_columns:
            name, sample = self._bound.get(f"{request.sample} {prompt}", ("", 0))
            return self._by_id.get(name, {}).get(sample) if name else None
        rows = self._by_prompt.get(prompt)
        if rows is None:
            rows = self._by_prompt.get(self._at_end(prompt))
        number = None if rows is None else rows.get(request.sample)
        return self._edited.get(f"{request.sample} {prompt}") if number is None else number

    def _at_end(self, prompt: str) -> str:
        """The recorded prompt at the end of another one. Of several the one that ends last, then the longest."""
        ends = []
        for known in self._by_prompt:
            start = prompt.rfind(known, max(0, len(prompt) - len(known) - _LONGEST_TAIL))
            if start >= 0:
                ends.append((start + len(known), len(known), known))
        return max(ends, default=(0, 0, ""))[2]


def normalise(text: str) -> str:
    """A prompt as it is compared: wrongly decoded characters repaired, quotation marks straight, single spaces."""
    return " ".join(_repair()(text).translate(_MARKS).split())


def _enter(table: dict[str, dict[int, int]], name: str, sample: int | None, row: int) -> None:
    rows = table.setdefault(name, {})
    rows.setdefault(len(rows) if sample is None else sample, row)


@functools.cache
def _repair() -> Callable[[str], str]:
    from winobench.data import wscplus

    return wscplus.repair


def _read(path: pathlib.Path) -> bytes:
    try:
        content = files.content(path, json_files.LARGEST_DATA)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: name a CSV file of responses.", code="no-such-file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.", code="cannot-read") from error
    if not content.strip():
        raise InputError(f"{path} is empty: name a CSV file with a header and a row a response.", code="empty-file")
    return content


def _parse(path: pathlib.Path, content: bytes) -> tuple[list[str], list[dict[str, str]]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not in UTF-8 (byte {error.start}): save it as a CSV in UTF-8.", code="not-utf8"
        ) from None
    before = csv.field_size_limit(_LARGEST_FIELD)
    rows: list[dict[str, str]] = []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = [column.strip() for column in next(reader, [])]
        twice = {column for column in columns if columns.count(column) > 1}
        if twice:
            raise InputError(
                f"{path} has several columns named {min(twice)!r}: name them differently.", code="repeated-column"
            )
        for fields in reader:
            if not fields:  # an empty line
                continue
            if len(fields) != len(columns):
                raise InputError(
                    f"{path}, line {reader.line_num}: {len(fields)} fields under {len(columns)} columns: put fields"
                    " that hold commas or line breaks in quotation marks.",
                    code="wrong-number-of-cells",
                )
            rows.append(dict(zip(columns, fields, strict=True)))
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num} is not a CSV ({error}): correct it.", code="damaged-table"
        ) from None
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise InputError(f"{path} has a header and no rows: name a file with responses.", code="empty-file")
    return columns, rows
