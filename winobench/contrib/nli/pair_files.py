"""Pairs for natural language inference: SNLI (Bowman et al., 2015) and ANLI (Nie et al., 2020), as published.

- SNLI, https://nlp.stanford.edu/projects/snli/snli_1.0.zip: ``snli_1.0_train.jsonl``, ``snli_1.0_dev.jsonl``. The
  ``gold_label`` is ``-`` where the annotators did not agree: left out.
- ANLI, https://dl.fbaipublicfiles.com/anli/anli_v1.0.zip: ``R1/train.jsonl``, ``R1/dev.jsonl``, and of R2 and R3.

They may lie in the folder itself or in the archives' folders, ``snli_1.0/`` and ``anli_v1.0/``. Without a folder they
are fetched from the hub, where ``stanfordnlp/snli`` and ``facebook/anli`` hold the same rows as Parquet files.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from winobench.base import hub, json_files
from winobench.base.errors import InputError
from winobench.base.files import user_path

ENTAILMENT, NEUTRAL, CONTRADICTION = "entailment", "neutral", "contradiction"
SETS = ("snli", "anli")
SPLITS = ("train", "dev")

_ROUNDS = ("R1", "R2", "R3")
# Labels in files -> ours, empty where the annotators of SNLI did not agree.
_ANLI_LABELS = {"e": ENTAILMENT, "n": NEUTRAL, "c": CONTRADICTION}
_SNLI_LABELS = {ENTAILMENT: ENTAILMENT, NEUTRAL: NEUTRAL, CONTRADICTION: CONTRADICTION, "-": ""}
_HUB_LABELS = {0: ENTAILMENT, 1: NEUTRAL, 2: CONTRADICTION, -1: ""}
_HUB = {"snli": "stanfordnlp/snli", "anli": "facebook/anli"}


class Pair(NamedTuple):
    """A premise, a hypothesis, and how they relate."""

    premise: str  # a sentence, or several
    hypothesis: str
    label: str  # ``entailment``, ``neutral`` or ``contradiction``
    part: str  # ``snli``, ``anli_r1``, ``anli_r2`` or ``anli_r3``


def read_pairs(folder: str | os.PathLike | None, sets: Sequence[str], split: str, labels: Sequence[str]) -> list[Pair]:
    """Reads the pairs of some sets, in the order of the files."""
    if not sets or (unknown := [name for name in sets if name not in SETS]):
        raise InputError(
            f"the NLI sets are {', '.join(SETS)}, not {', '.join(unknown) if sets else 'none of them'}",
            code="unknown-name",
        )
    files = _hub_files(sets, split) if folder is None else _local_files(pathlib.Path(user_path(folder)), sets, split)
    pairs = [pair for part, path in files for pair in _read(part, path) if pair.label in labels]
    if not pairs:
        raise InputError(
            f"{folder or 'the hub'} holds no pair of the split {split} that is labelled {' or '.join(labels)}: get the"
            " files again",
            code="no-examples",
        )
    return pairs


def _local_files(folder: pathlib.Path, sets: Sequence[str], split: str) -> list[tuple[str, pathlib.Path]]:
    wanted = {}
    if "snli" in sets:
        wanted["snli"] = ("snli_1.0", f"snli_1.0_{split}.jsonl")
    if "anli" in sets:
        wanted |= {f"anli_{each.lower()}": ("anli_v1.0", f"{each}/{split}.jsonl") for each in _ROUNDS}
    found, missing = [], []
    for part, (archive, name) in wanted.items():
        paths = [path for path in (folder / name, folder / archive / name) if path.is_file()]
        found += [(part, path) for path in paths[:1]]
        missing += [] if paths else [name]
    if missing:
        raise InputError(
            f"{folder} has no {', '.join(missing)}: unpack snli_1.0.zip (nlp.stanford.edu/projects/snli) and"
            " anli_v1.0.zip (dl.fbaipublicfiles.com/anli) there, or leave a set out",
            code="missing-files",
        )
    return found


def _hub_files(sets: Sequence[str], split: str) -> list[tuple[str, pathlib.Path]]:
    wanted = [("snli", "snli", {"train": "train", "dev": "validation"}[split])] if "snli" in sets else []
    if "anli" in sets:
        wanted += [(f"anli_{each.lower()}", "anli", f"{split}_{each.lower()}") for each in _ROUNDS]
    return [(part, _fetched(_HUB[name], f"plain_text/{stem}-00000-of-00001.parquet")) for part, name, stem in wanted]


def _fetched(repository: str, name: str) -> pathlib.Path:
    try:
        return pathlib.Path(hub.download(repository, name, repo_type="dataset"))
    except Exception as error:  # of every transport, the hub or the disk of the cache
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{name} of the hub's data set {repository} cannot be fetched ({reason}): get the archives that"
            " winobench.contrib.nli.pair_files names, unpack them, and name their folder (config.data.folder)",
            code="cannot-download",
        ) from error


def _read(part: str, path: pathlib.Path) -> Iterator[Pair]:
    rows = _parquet_rows(path) if path.suffix == ".parquet" else json_files.read_lines(path, "get it again")
    for number, row in rows:
        pair = _pair(part, row)
        if pair is None:
            raise InputError(
                f"{path}: row {number} is not a pair with a label of {part.split('_')[0].upper()}", code="damaged-table"
            )
        if pair.label:
            yield pair


def _parquet_rows(path: pathlib.Path) -> Iterator[tuple[int, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} cannot be read as Parquet ({error}): get it again", code="damaged-table") from error
    yield from enumerate(rows, 1)


def _pair(part: str, row: Any) -> Pair | None:
    """A row as a pair, with an empty label where it has none; None where it is another kind of row."""
    if not isinstance(row, Mapping):
        return None
    if "premise" in row:  # the hub's
        names, labels = ("premise", "hypothesis", "label"), _HUB_LABELS
    elif part == "snli":
        names, labels = ("sentence1", "sentence2", "gold_label"), _SNLI_LABELS
    else:
        names, labels = ("context", "hypothesis", "label"), _ANLI_LABELS
    *texts, label = map(row.get, names)
    label = labels.get(label) if isinstance(label, str | int) else None
    if label is None or not all(isinstance(text, str) for text in texts):
        return None
    return Pair(*texts, label, part)
