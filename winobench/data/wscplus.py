"""WSC+: sentences with a pronoun and two candidates, most of them written by language models (Zahraei and Emami 2024).

The data are one CSV file of 3,026 rows, which the user brings; nothing of it is shipped but identifiers of the rows
that form the validation set. What the file leaves open is recovered here:

* **text**: some cells were decoded by the wrong table once or more, so that an apostrophe has become ``â€™`` or
  worse. `repair` undoes that cell by cell; what stood in the file is kept in ``Item.original``.
* **splits**: the 26 rows of the generator ``Human`` are the few-shot set. The 700 questions of the published result
  files are the validation set. They were taken from 699 rows of the data, whose identifiers are in
  ``assets/wscplus/validation_ids.json``: 688 are as they were asked, 11 were edited, and the last question is another
  wording of a row that was asked too; only the result files have it. The rest is the test set (2,301 rows).
* **pairs**: rows of traditional pairs are neighbours (682 pairs, and 6 among the few-shot examples).

Source: P. S. Zahraei and A. Emami, "WSC+: Enhancing The Winograd Schema Challenge Using Tree-of-Experts", EACL 2024,
arXiv 2401.17703.
"""

from __future__ import annotations

import ast
import collections
import csv
import dataclasses
import difflib
import functools
import hashlib
import io
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import app

from winobench import csv_cells, json_files
from winobench.data.prepared import data_folder
from winobench.errors import InputError
from winobench.files import write_text

COLUMNS = ("statement", "pronoun", "snippet", "options", "answer", "reason", "model", "type")
"""The columns of the layout; a file may have others as well, as the files of recorded answers do."""

TYPES = ("traditional", "ambiguous", "offensive")
GENERATORS = ("GPT4", "GPT3", "Claude2", "Human")
"""The generators of the published data; a file of other sentences may name others."""

SPLITS = ("validation", "test", "few_shot")
NEITHER = 2
"""The answer of a question that its text does not decide."""

NUM_ITEMS = 3026
"""Rows of the published file."""

FILE_NAME = "WSC+.csv"
RESULT_FILES = ("GPT4_results.csv", "GPT3_results.csv")
"""The published files of recorded answers."""

ASSETS = pathlib.Path(__file__).resolve().parents[1] / "assets" / "wscplus"

_TEXT_COLUMNS = ("statement", "pronoun", "snippet", "options", "reason")
_GENERATOR_NAMES = {"gpt4": "GPT4", "gpt35turbo": "GPT3", "gpt35": "GPT3", "claude2": "Claude2", "human": "Human"}
_MODEL_COLUMN = {"GPT3": "GPT3.5 Turbo"}
_RECORDED_COLUMN = "predicted_answer"
_QUERY_COLUMN = "query"
_QUERY = re.compile(
    r'What does "(?P<pronoun>.*?)" refer to in "(?P<snippet>.*)" from "(?P<statement>.*)"\?'
    r" Options: (?P<options_text>.*)\.",
    re.DOTALL,
)

# Of two neighbours, the share of words (as difflib counts it) from which on they are a pair. The least of the published
# pairs is 0.35.
_PAIR_SIMILARITY = 0.3

# Of an edited row and the row it was: the published ones are all above 0.88, and no other row is above 0.91 of them.
_EDIT_SIMILARITY = 0.8


@dataclasses.dataclass(frozen=True)
class Item:
    """One sentence and the question about its pronoun. All texts are repaired; white space is as in the file.

    Attributes:
      id: unique within its file; made of the content of the row, so that it does not change with the row's place.
      statement: the sentence, or two.
      pronoun: as in the file, ``"he"``, ``"One of them"``.
      snippet: the words around the pronoun that the question quotes.
      options: the two candidates, stripped.
      answer: 0 or 1 for the candidate that the pronoun refers to, 2 for neither.
      reason: why, in words; may be empty.
      generator: ``GPT4``, ``GPT3`` (gpt-3.5-turbo), ``Claude2`` or ``Human``, or what the file names.
      type: ``traditional``, ``ambiguous`` or ``offensive``.
      split: ``validation``, ``test`` or ``few_shot``.
      pair: the id of the pair's first item, for both; None for an item without a partner.
      options_text: the list of candidates as the file writes it, which is how questions quote it.
      row: its number in the file, from 1; the header does not count.
      original: column -> what the file has, for the cells that `repair` changed.
    """

    id: str
    statement: str
    pronoun: str
    snippet: str
    options: tuple[str, str]
    answer: int
    reason: str
    generator: str
    type: str
    split: str = "test"
    pair: str | None = None
    options_text: str = ""
    row: int = 0
    original: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)

    def __post_init__(self):
        if not self.options_text:
            object.__setattr__(self, "options_text", repr(list(self.options)))

    @property
    def target_pronoun(self) -> str:
        """The pronoun in lower case and stripped, for counting."""
        return self.pronoun.strip().lower()


class Joined(NamedTuple):
    """Which item each of some recorded rows is about.

    Attributes:
      items: for each row its item, or None where there is none.
      edited: indices of the rows that were joined by the nearest text, since none is equal.
      missing: indices of the rows without an item.
    """

    items: tuple[Item | None, ...]
    edited: tuple[int, ...]
    missing: tuple[int, ...]


# ----------------------------------------------------------------------------------------------------------------------
# Repair of wrongly decoded text
# ----------------------------------------------------------------------------------------------------------------------


def repair(text: str) -> str:
    """Undoes wrong decodings of UTF-8, by Latin-1, Windows-1252 or Mac Roman, however often they happened.

    Only sequences are touched that are UTF-8 of one character if a table is applied backwards: of the Latin-1
    supplement (two bytes, as for ``é``), from U+2000 to U+2FFF (three bytes, as for ``’``), or in one of the two other
    tables. Such sequences
    (``Ã©``, ``â€™``, ``‚Äô``) do not occur in clean English or Western European text, which is left as it is. Control
    characters from U+0080 to U+009F that remain are read as Windows-1252. Idempotent: the result is a fixed point.

    Args:
      text: one cell; the parts of a cell may have suffered differently.
    """
    if text.isascii():
        return text
    while True:
        for sequences, decode in _wrong_decodings():
            repaired = sequences.sub(decode, text)
            if repaired != text:
                break
        else:
            return text
        text = repaired


@functools.cache
def _wrong_decodings() -> tuple[tuple[re.Pattern[str], Any], ...]:
    found = []
    for encoding in ("latin-1", "cp1252", "mac_roman"):
        # Bytes that Windows-1252 leaves open come through as control characters.
        table = [bytes([byte]).decode(encoding, "replace") for byte in range(256)]
        table = [chr(byte) if character == "\ufffd" else character for byte, character in enumerate(table)]
        byte_of = {character: byte for byte, character in enumerate(table)}
        inner = "[" + re.escape("".join(table[0x80:0xC0])) + "]"
        # What a first wrong decoding makes of some bytes has itself two bytes that begin otherwise.
        of_tables = {c for name in ("cp1252", "mac_roman") for c in bytes(range(128, 256)).decode(name, "ignore")}
        others = ["".join(table[byte] for byte in c.encode()) for c in sorted(of_tables) if 0xFF < ord(c) < 0x800]
        ways = (f"[{table[0xC2]}{table[0xC3]}]{inner}", f"{table[0xE2]}{inner}{{2}}", *map(re.escape, others))
        sequences = re.compile("|".join(ways))

        def decode(match: re.Match[str], byte_of: Mapping[str, int] = byte_of) -> str:
            try:
                return bytes(byte_of[character] for character in match[0]).decode()
            except UnicodeDecodeError:
                return match[0]

        found.append((sequences, decode))

    def as_windows(match: re.Match[str]) -> str:
        decoded = match[0].encode("latin-1").decode("cp1252", "replace")
        return match[0] if decoded == "\ufffd" else decoded

    found.append((re.compile("[\x80-\x9f]"), as_windows))
    return tuple(found)


# ----------------------------------------------------------------------------------------------------------------------
# Reading
# ----------------------------------------------------------------------------------------------------------------------


def data_file(data_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """Where the user puts the file: ``wscplus/WSC+.csv`` in the folder of all data."""
    return data_folder(data_dir) / "wscplus" / FILE_NAME


def result_file(data_dir: str | os.PathLike | None = None) -> pathlib.Path | None:
    """The first of ``RESULT_FILES`` that lies beside the data; None where there is none."""
    paths = [data_file(data_dir).with_name(name) for name in RESULT_FILES]
    return next((path for path in paths if path.is_file()), None)


def read(path: str | os.PathLike) -> tuple[Item, ...]:
    """All rows of a file in the layout of WSC+, in its order.

    A file of recorded answers (one with the column ``predicted_answer``) is read as well; its rows are shuffled, so
    that it has no pairs, and all of them are validation items.

    Args:
      path: a CSV file with the ``COLUMNS`` in any order, UTF-8 with or without a byte order mark, or UTF-16 with one;
        bytes that are no UTF-8 are read as Windows-1252.

    Raises:
      InputError: it is missing or no CSV file, lacks a column, or a row is malformed.
    """
    path = pathlib.Path(path)
    header, rows = _rows(path)
    items = []
    repeated: dict[str, int] = {}
    recorded = _RECORDED_COLUMN in header
    known = frozenset(validation_ids())
    for number, row in enumerate(rows, start=1):
        item = _item(row, number, path)
        repeated[item.id] = repeated.get(item.id, 0) + 1
        if repeated[item.id] > 1:
            item = dataclasses.replace(item, id=f"{item.id}-{repeated[item.id]}")
        of_others = "few_shot" if item.generator == "Human" else "test"
        split = "validation" if recorded or item.id in known else of_others
        items.append(dataclasses.replace(item, split=split))
    return tuple(items) if recorded else tuple(_with_pairs(items))


def validation(path: str | os.PathLike, results: str | os.PathLike | None = None) -> tuple[Item, ...]:
    """The validation items, in the order of the published result files.

    Args:
      path: the data.
      results: a published result file. With it the items are its 700 questions as they were asked, with the ids and
        pairs of the rows of the data; without it they are those rows.

    Raises:
      InputError: as `read`, or ``results`` is no file of recorded answers.
    """
    items = read(path)
    if results is None:
        by_id = {item.id: item for item in items}
        return tuple(by_id[id] for id in validation_ids() if id in by_id)
    rows = read(results)
    found = []
    for row, cells, item in zip(rows, read_rows(results), join(rows, items).items, strict=True):
        if _QUERY_COLUMN not in cells:
            raise InputError(f"{results} lacks the column {_QUERY_COLUMN}: name a file of recorded answers of WSC+")
        # Some rows were edited after they had been asked.
        asked = _QUERY.fullmatch(repair(cells[_QUERY_COLUMN]).strip())
        changes: dict[str, Any] = {} if asked is None else asked.groupdict()
        options = _options(changes.get("options_text", row.options_text))
        changes["options"] = row.options if options is None else options
        if item is not None:
            changes |= {"id": item.id, "pair": item.pair}
        found.append(dataclasses.replace(row, **changes))
    return tuple(found)


def write(path: str | os.PathLike, items: Iterable[Item]) -> None:
    """Writes items as a CSV file of the same layout (UTF-8), which `read` gives back; whole or not at all."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for item in items:
        model = _MODEL_COLUMN.get(item.generator, item.generator)
        texts = (item.statement, item.pronoun, item.snippet, item.options_text)
        row = (*texts, item.answer, item.reason, model, item.type.capitalize())
        writer.writerow(map(csv_cells.harmless, row))
    write_text(path, buffer.getvalue())


def composition(items: Iterable[Item]) -> dict[str, dict[str, int]]:
    """How many items there are by type, by generating model and by split.

    Items that people wrote, which are the examples for prompts, have no generating model: Table 2 counts them among
    the types alone.

    Source: Zahraei and Emami 2024, Table 2.
    """
    items = list(items)
    counts = {
        name: collections.Counter(getattr(item, name) for item in items) for name in ("type", "generator", "split")
    }
    counts["generator"].pop("Human", None)
    return {name: dict(counter.most_common()) for name, counter in counts.items()}


def read_rows(path: str | os.PathLike) -> list[dict[str, str]]:
    """The rows of such a file as they stand there, with all columns and unrepaired. Raises as `read`."""
    return _rows(pathlib.Path(path))[1]


@functools.cache
def validation_ids() -> tuple[str, ...]:
    """The ids of the 699 rows that the validation questions are from, in the (shuffled) order of the published result
    files."""
    return tuple(json_files.read(ASSETS / "validation_ids.json")["ids"])


def missing_validation(items: Iterable[Item]) -> tuple[str, ...]:
    """Those of `validation_ids` that none of these items has."""
    there = {item.id for item in items}
    return tuple(id for id in validation_ids() if id not in there)


def normalize(text: str) -> str:
    """A text without what differs between copies of the same sentence: repaired, lower case, letters and digits of
    ASCII alone, single spaces."""
    return " ".join(re.findall("[a-z0-9]+", repair(text).lower()))


def join(recorded: Sequence[Item], items: Sequence[Item]) -> Joined:
    """Finds the item that each of some recorded rows is about.

    Rows and items meet where statement and pronoun are equal after `normalize`; of several such items, those of the
    same generator, reason and snippet come first, and no item is given twice. A row whose sentence was edited gets the
    nearest of the remaining items of its type and generator, if that is near enough. (Of the published GPT-4 answers
    688 are joined by equality, 11 by nearness, and 1 is missing, because its item is that of another row as well.)

    Args:
      recorded: as `read` gives them for a file of recorded answers.
      items: of the data, with the validation items among them.
    """
    by_text: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        by_text.setdefault(_key(item), []).append(item)
    used: set[str] = set()
    found: list[Item | None] = []
    for row in recorded:
        free = [item for item in by_text.get(_key(row), ()) if item.id not in used]
        found.append(max(free, key=functools.partial(_likeness, row), default=None))
        if found[-1] is not None:
            used.add(found[-1].id)
    edited, missing = [], []
    for index, row in enumerate(recorded):
        if found[index] is not None:
            continue
        free = [item for item in items if item.id not in used]
        found[index] = _nearest(row, free)
        (missing if found[index] is None else edited).append(index)
        if found[index] is not None:
            used.add(found[index].id)
    return Joined(tuple(found), tuple(edited), tuple(missing))


def _key(item: Item) -> tuple[str, str]:
    return normalize(item.statement), normalize(item.pronoun)


def _likeness(row: Item, item: Item) -> tuple[bool, ...]:
    return (
        item.generator == row.generator,
        normalize(item.reason) == normalize(row.reason),
        normalize(item.snippet) == normalize(row.snippet),
        item.answer == row.answer,
    )


def _nearest(row: Item, items: Iterable[Item]) -> Item | None:
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(normalize(row.statement))
    best, best_ratio = None, _EDIT_SIMILARITY
    for item in items:
        if (item.type, item.generator) != (row.type, row.generator):
            continue
        matcher.set_seq1(normalize(item.statement))
        if matcher.real_quick_ratio() < best_ratio or matcher.quick_ratio() < best_ratio:
            continue
        ratio = matcher.ratio()
        if ratio > best_ratio:
            best, best_ratio = item, ratio
    return best


def _rows(path: pathlib.Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        table = [row for row in reader if row]
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num} of {path} is no row of a CSV table ({error}): save the table once more as CSV"
        ) from None
    header = tuple(name.strip() for name in table[0]) if table else ()
    lacking = [name for name in COLUMNS if name not in header]
    if lacking:
        raise InputError(
            f"{path} lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}: a file of WSC+ has the columns"
            f" {', '.join(COLUMNS)}"
        )
    for number, row in enumerate(table[1:], start=1):
        if len(row) != len(header):
            raise InputError(
                f"row {number} of {path} has {len(row)} cells, not {len(header)} as the header: restore the row"
            )
    return header, [dict(zip(header, map(csv_cells.restored, row), strict=True)) for row in table[1:]]


def _text(path: pathlib.Path) -> str:
    try:
        content = path.read_bytes()
    except OSError:
        raise InputError(f"there is no file {path}: name a CSV file of WSC+") from None
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return content.decode("utf-16")
        except UnicodeDecodeError:
            raise InputError(f"{path} is broken off in the middle of a character: get the file once more") from None
    text = content.decode("utf-8-sig", "surrogateescape")
    # A byte that is no UTF-8 becomes the character of its number, which `repair` reads as Windows-1252.
    return re.sub("[\udc80-\udcff]", lambda match: chr(ord(match[0]) - 0xDC00), text)


def _item(row: Mapping[str, str], number: int, path: pathlib.Path) -> Item:
    texts = {name: repair(row[name]) for name in _TEXT_COLUMNS}
    original = {name: row[name] for name in _TEXT_COLUMNS if row[name] != texts[name]}

    def wrong(column: str, problem: str) -> InputError:
        return InputError(f"{column!r} in row {number} of {path} {problem}")

    for name in ("statement", "pronoun", "snippet"):
        if not texts[name].strip():
            raise wrong(name, "is empty: fill it in or remove the row")
    options = _options(texts["options"])
    if options is None:
        raise wrong("options", f"is {row['options']!r}, not a list of two different texts like ['Paul', 'George']")
    if row["answer"].strip() not in ("0", "1", "2"):
        raise wrong("answer", f"is {row['answer']!r}: it is 0 or 1 for one of the options, or 2 for neither")
    type_ = row["type"].strip().lower()
    if type_ not in TYPES:
        raise wrong("type", f"is {row['type']!r}: the types are {', '.join(TYPES)}")
    model = row["model"].strip()
    if not model:
        raise wrong("model", "is empty: name who wrote the sentence")
    content = [normalize(text) for text in texts.values()] + [row["answer"].strip()]
    return Item(
        id=hashlib.sha256("\n".join(content).encode()).hexdigest()[:12],
        statement=texts["statement"],
        pronoun=texts["pronoun"],
        snippet=texts["snippet"],
        options=options,
        answer=int(row["answer"]),
        reason=texts["reason"],
        generator=_GENERATOR_NAMES.get(re.sub("[^a-z0-9]", "", model.lower()), model),
        type=type_,
        options_text=texts["options"],
        row=number,
        original=original,
    )


def _options(text: str) -> tuple[str, str] | None:
    """The two candidates in a list as Python writes it, or as hands do: quotation marks may be missing, or occur within
    the text that they enclose."""
    text = text.strip()
    try:
        values = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        if not (text.startswith("[") and text.endswith("]")):
            return None
        inner = text[1:-1]
        # Where one of the marks is missing there is still a comma, and where both are there it stands between them.
        values = re.split(r"""(?<=['"])\s*,\s*(?=['"])""", inner)
        if len(values) != 2:
            values = inner.split(",")
        values = [_unquoted(value.strip()) for value in values]
    if not isinstance(values, list | tuple) or len(values) != 2:
        return None
    if not all(isinstance(value, str) and value.strip() for value in values):
        return None
    first, second = (value.strip() for value in values)
    return (first, second) if first.lower() != second.lower() else None


def _unquoted(text: str) -> str:
    """Without the quotation marks at the ends. A single apostrophe at the end is dropped too where it has no partner,
    as nothing in the data ends in a possessive plural."""
    if text[:1] in ("'", '"'):
        text = text[1:]
    if text[-1:] in ("'", '"'):
        text = text[:-1]
    return text


def _with_pairs(items: Sequence[Item]) -> list[Item]:
    """Neighbours of type traditional and the same generator are pairs where they share enough words."""
    items = list(items)
    index = 0
    while index + 1 < len(items):
        first, second = items[index], items[index + 1]
        if _is_pair(first, second):
            items[index : index + 2] = (dataclasses.replace(item, pair=first.id) for item in (first, second))
            index += 2
        else:
            index += 1
    return items


def _is_pair(first: Item, second: Item) -> bool:
    if not (first.type == second.type == "traditional" and first.generator == second.generator):
        return False
    words = first.statement.split(), second.statement.split()
    return difflib.SequenceMatcher(None, *words, autojunk=False).ratio() >= _PAIR_SIMILARITY


def _main(arguments: Sequence[str]) -> None:
    try:
        if len(arguments) != 3 or arguments[1] != "composition":
            raise InputError("say 'composition FILE', the file WSC+.csv or one in its layout")
        printed = json_files.read(ASSETS / "published.json")["numbers"]
        shares = {number["metric"]: number["printed"] for number in printed if number["place"] == "Table 2"}
        print(f"{'':<24}{'items':>8}{'%':>8}{'paper (Table 2)':>18}")
        for name, counts in composition(read(arguments[2])).items():
            for kind, count in counts.items():
                share = f"{100 * count / sum(counts.values()):.1f}"
                print(f"{name + ' ' + kind:<24}{count:>8,}{share:>8}{shares.get(f'share/{kind}', ''):>18}")
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    app.run(_main)
