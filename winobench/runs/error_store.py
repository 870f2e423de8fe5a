"""The per-sample errors behind a run's scores."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from winobench.base import json_files, parquet_files
from winobench.base.errors import InputError
from winobench.base.texts import EMPTY_TEXT, text_hash
from winobench.data.images import GRAY_IMAGE, image_hash
from winobench.metrics import normalization
from winobench.metrics.sample_mean import PLAIN, SampleMean
from winobench.runs import error_parts
from winobench.runs.examples import Examples

# Recomputed scores may differ from stored ones by the order of a sum in float64, relative to the largest score.
_SAME_SCORE = 1e-9
# Metadata of a part. Parts that agree in all of it were scored in the same way.
SAME_SCORING = (b"winobench.scores", b"winobench.timesteps", b"winobench.error")


@dataclasses.dataclass(frozen=True)
class Batch:
    """Errors of those examples of a task that have the same number of images and texts."""

    rows: np.ndarray  # [n] int, which examples
    errors: Mapping[str, np.ndarray]  # term -> [n, images or 1, texts or 1, samples] float32
    terms: tuple[normalization.Term, ...] = (normalization.OWN,)
    mean: SampleMean = PLAIN

    @property
    def own(self) -> np.ndarray:
        """[n, images, texts, samples] float32 errors of the examples' pairs themselves."""
        return self.errors[normalization.OWN.name]


class ErrorStore:
    """Per-sample errors of (image, text) pairs that were scored in the same way."""

    def __init__(self, table: pa.Table):
        self._images, image_codes = parquet_files.encoded(table["image"])
        self._texts, text_codes = parquet_files.encoded(table["text"])
        errors = table["errors"].combine_chunks()
        offsets = errors.offsets.to_numpy()
        self._flat = errors.values.to_numpy(zero_copy_only=False)
        keys = image_codes * max(1, len(self._texts)) + text_codes
        order = np.argsort(keys, kind="stable")  # stable: where a sample was scored twice, the later part counts
        self._keys = keys[order]
        self._starts = offsets[:-1][order].astype(np.int64)
        self._lengths = np.diff(offsets)[order].astype(np.int64)
        self._first = table["first_sample"].to_numpy()[order].astype(np.int64)

    def pairs(
        self, images: Sequence[str], texts: Sequence[str], num_samples: int | None = None, *, partly: bool = False
    ) -> np.ndarray | None:
        """Errors of pairs, [num_pairs, num_samples] float32; None where one of them was not scored.

        With ``partly``, samples that a race never computed are NaN.
        """
        image_codes = np.array([self._images.get(image, -1) for image in images], np.int64)
        text_codes = np.array([self._texts.get(text, -1) for text in texts], np.int64)
        if not len(image_codes) or image_codes.min() < 0 or text_codes.min() < 0:
            return None
        keys = image_codes * len(self._texts) + text_codes
        first, last = np.searchsorted(self._keys, keys, "left"), np.searchsorted(self._keys, keys, "right")
        counts = last - first
        if counts.min() == 0:
            return None
        pair = np.repeat(np.arange(len(keys)), counts)
        rows = parquet_files.ranges(first, counts)
        ends = self._first[rows] + self._lengths[rows]
        if num_samples is None:
            reach = np.zeros(len(keys), np.int64)
            np.maximum.at(reach, pair, ends)
            num_samples = int(reach.min())
        errors = np.full(len(keys) * num_samples, np.nan, np.float32)
        kept = np.minimum(ends, num_samples) - self._first[rows]
        inside = kept > 0
        pair, rows, kept = pair[inside], rows[inside], kept[inside]
        into = parquet_files.ranges(pair * num_samples + self._first[rows], kept)
        errors[into] = self._flat[parquet_files.ranges(self._starts[rows], kept)]
        return None if np.isnan(errors).any() and not partly else errors.reshape(len(keys), num_samples)

    def batches(self, examples: Examples, num_samples: int | None, mean: SampleMean = PLAIN) -> list[Batch] | None:
        """The errors behind the scores of examples; None where they are incomplete or give other scores."""
        batches = self._batches(examples, num_samples, mean)
        if batches is None:
            return None
        reproducing = [
            _reproducing(batch, np.stack([examples.scores[row] for row in batch.rows.tolist()]), examples.terms)
            for batch in batches
        ]
        whole = [batch for batch in reproducing if batch is not None]
        return whole if len(whole) == len(batches) else None

    def raced_batches(self, examples: Examples, num_samples: int) -> list[Batch] | None:
        """The errors of a race, NaN where it never computed a sample. Scores, which are of a race, are not compared."""
        batches = self._batches(examples, num_samples, PLAIN, partly=True)
        terms = tuple(normalization.TERMS[name] for name in examples.terms or (normalization.OWN.name,))
        if batches is None or any(term.name not in batch.errors for batch in batches for term in terms):
            return None
        return [dataclasses.replace(batch, terms=terms) for batch in batches]

    def _batches(
        self, examples: Examples, num_samples: int | None, mean: SampleMean, *, partly: bool = False
    ) -> list[Batch] | None:
        by_shape: dict[tuple[int, int], list[int]] = {}
        for row, matrix in enumerate(examples.scores):
            by_shape.setdefault(matrix.shape, []).append(row)
        hashes = {text: text_hash(text) for texts in set(examples.texts) for text in texts}
        batches = []
        for rows in by_shape.values():
            errors = self._errors_of_terms(examples, rows, hashes, num_samples, partly)
            if errors is None:
                return None
            batches.append(Batch(np.array(rows), errors, mean=mean))
        return batches

    def _errors_of_terms(
        self,
        examples: Examples,
        rows: Sequence[int],
        hashes: Mapping[str, str],
        num_samples: int | None,
        partly: bool,
    ) -> dict[str, np.ndarray] | None:
        """``Batch.errors`` of examples of one shape; None where errors of their pairs are incomplete."""
        empty_hash, gray_hash = text_hash(EMPTY_TEXT), image_hash(GRAY_IMAGE)
        errors_by_term: dict[str, np.ndarray] = {}
        for term in normalization.TERMS.values():
            images = [(gray_hash,) if term.of_gray_image else examples.images[row] for row in rows]
            texts = [
                (empty_hash,) if term.of_empty_text else [hashes[text] for text in examples.texts[row]] for row in rows
            ]
            wanted_pairs = [(image, text) for row in range(len(rows)) for image in images[row] for text in texts[row]]
            of_images, of_texts = ([pair[side] for pair in wanted_pairs] for side in (0, 1))
            errors = self.pairs(of_images, of_texts, num_samples, partly=partly)
            if errors is not None:
                num_samples = errors.shape[-1]
                errors_by_term[term.name] = errors.reshape(len(rows), len(images[0]), len(texts[0]), -1)
            elif term is normalization.OWN:
                return None
        return errors_by_term


def mean_scores(batch: Batch) -> np.ndarray:
    """[n, images, texts] float64 scores, higher = better, added in an evaluation's order, so that ties are the same."""
    return normalization.scores(batch.terms, batch.errors, batch.mean)


def read_error_stores(folder: pathlib.Path) -> list[ErrorStore]:
    """The parts in a run's ``errors`` folder, those that were scored in the same way together."""
    return [ErrorStore(table) for table in _read_tables(folder).values()]


def read_race_store(folder: pathlib.Path, timesteps: Sequence[float]) -> ErrorStore | None:
    """The parts in a run's ``errors`` folder of a race with these timesteps; None without any."""
    return race_store(_read_tables(folder), timesteps)


def race_store(tables: Mapping[tuple[bytes, ...], pa.Table], timesteps: Sequence[float]) -> ErrorStore | None:
    """The errors of a race with these timesteps, out of tables by `SAME_SCORING`; None without any.

    A race that learns its timesteps, or is resumed with others, uses again what earlier parts have of the same ones.
    """
    given = {scoring: json_files.parse(scoring[1] or b"[]") for scoring in tables}
    wanted = {(scores, error) for (scores, _, error), recorded in given.items() if recorded == list(timesteps)}
    parts = [
        _of_samples(table, given[scoring], timesteps)
        for scoring, table in tables.items()
        if (scoring[0], scoring[2]) in wanted
    ]
    return ErrorStore(pa.concat_tables(parts)) if parts else None


def _read_tables(folder: pathlib.Path) -> dict[tuple[bytes, ...], pa.Table]:
    """The parts in a folder, in tables by `SAME_SCORING`."""
    parts: dict[tuple[bytes, ...], list[pa.Table]] = {}
    for path in sorted(folder.glob("part-*.parquet")):
        try:
            table = error_parts.read_part(path)
        except (InputError, error_parts.DamagedPartError) as error:
            error_parts.refuse(path, error)
        scoring = tuple(table.schema.metadata.get(key, b"") for key in SAME_SCORING)
        parts.setdefault(scoring, []).append(table.replace_schema_metadata(None))
    return {scoring: pa.concat_tables(tables) for scoring, tables in parts.items()}


def _of_samples(table: pa.Table, timesteps: Sequence[float], wanted: Sequence[float]) -> pa.Table:
    """The errors of those samples that have the wanted timesteps, a row a sample where that is not all of them."""
    same = np.array([timestep == other for timestep, other in zip(timesteps, wanted, strict=False)], bool)
    same = np.append(same, np.zeros(max(0, len(timesteps) - len(same)), bool))
    if same.all():
        return table
    errors = table["errors"].combine_chunks()
    offsets = errors.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    samples = parquet_files.ranges(table["first_sample"].to_numpy().astype(np.int64), lengths)
    kept = np.flatnonzero(same[samples])
    rows = np.repeat(np.arange(table.num_rows), lengths)[kept]
    flat = errors.values.take(pa.array(parquet_files.ranges(offsets[:-1], lengths)[kept]))
    columns = {"first_sample": pa.array(samples[kept].astype(np.int32))}
    columns["errors"] = pa.ListArray.from_arrays(np.arange(len(kept) + 1, dtype=np.int32), flat)
    columns_by_name = {name: table[name].take(pa.array(rows)) for name in ("image", "text")} | columns
    return pa.table({name: columns_by_name[name] for name in table.column_names}, table.schema)


def _reproducing(batch: Batch, stored: np.ndarray, said: tuple[str, ...] | None) -> Batch | None:
    """The batch with the terms that give the stored scores; None where its errors do not give them at all."""
    others = [name for name in normalization.TERMS if name != normalization.OWN.name]
    choices = [
        (normalization.OWN.name, *itertools.compress(others, chosen))
        for chosen in itertools.product((False, True), repeat=len(others))
    ]
    for names in choices if said is None else (said,):
        if not batch.errors.keys() >= set(names):
            continue
        candidate = dataclasses.replace(batch, terms=tuple(normalization.TERMS[name] for name in names))
        # Relative to the errors, whose rounding this is: normalised scores are small differences of them.
        tolerance = _SAME_SCORE * max(1.0, float(np.abs(batch.own).max()))
        if np.allclose(mean_scores(candidate), stored, rtol=0, atol=tolerance):
            return candidate
    return None
