"""Blind comparison of the images of two models by people (Krojer et al. 2023, Appendix B).

    comparison.json              the two sides, and a secret seed that decides sides and order
    labels/<name>.jsonl          a person's clicks (`judging`): a pair's code, and left, right or equal
    results.json                 `finish`
    judges/<name>.jsonl          automatic judges, apart from people (`judges`)

A pair is the two images of one prompt and one seed. A person's page is given the prompt, codes of pairs and the images'
pixels alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import os
import pathlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import PIL.Image

from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.contrib.people import judging, preference
from winobench.metrics import agreement
from winobench.runs.image_records import ImageRecord, is_whole
from winobench.runs.image_runs import read_images
from winobench.web import Server

CHOICES = LEFT, RIGHT, EQUAL = "left", "right", "equal"
DESCRIPTION, LABELS, RESULTS = "comparison.json", "labels", "results.json"

PAPER = {"first": 33, "second": 60, "equal": 115}
"""Appendix B: Stable Diffusion, its HardNeg LoRA, ties. One author, 104 DrawBench prompts, two seeds."""

_FORMAT = 1
_CHOICES = (
    judging.Choice(LEFT, "Left", "blue"),
    judging.Choice(EQUAL, "Equal", "amber"),
    judging.Choice(RIGHT, "Right", "blue"),
)


@dataclasses.dataclass(frozen=True)
class Side:
    """The images of one model in one run."""

    run: pathlib.Path
    model: str

    def __str__(self) -> str:
        return f"{self.model} in {self.run}"


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two images of one prompt and seed, of the first and of the second side."""

    records: tuple[ImageRecord, ImageRecord]
    paths: tuple[pathlib.Path, pathlib.Path]

    @property
    def key(self) -> str:
        """Tells the pair from the others: the prompt's id and text, and the seed."""
        prompt = self.records[0].prompt
        return files.digest([prompt.id, prompt.text, self.records[0].seed])


def sides(words: Sequence[str]) -> tuple[Side, Side]:
    """The command line's sides: two runs, ``RUN:MODEL`` where a run has several models, or one run of two."""
    named = [side for word in words for side in _sides(word)]
    if len(named) != 2 or named[0] == named[1]:
        raise InputError(
            f"a comparison is between two models, not {len(named)}: name two runs of images, each with one model, or"
            " RUN:MODEL where a run has several"
        )
    return named[0], named[1]


def _sides(word: str) -> list[Side]:
    path, model = pathlib.Path(files.user_path(word)), ""
    if ":" in word and not os.path.isdir(path):
        folder, _, model = word.rpartition(":")
        path = pathlib.Path(files.user_path(folder))
    run = read_images(path)
    models = [run.model(model)] if model else run.models
    return [Side(path.resolve(), one.label) for one in models]


def make_pairs(first: Side, second: Side) -> list[Pair]:
    """The pairs of two sides, in the order of prompts and seeds."""
    records = [_records(side) for side in (first, second)]
    pairs = [
        Pair((record, other), (first.run / record.file, second.run / other.file))
        for key, record in records[0].items()
        if (other := records[1].get(key)) is not None
    ]
    if not pairs:
        raise InputError(f"{first} and {second} have no prompt and seed in common: generate both with the same ones")
    for pair in pairs:
        for side, record in zip((first, second), pair.records, strict=True):
            if not is_whole(side.run, record):
                raise InputError(
                    f"the image {side.run / record.file} is lost or changed: the run's own command generates it again"
                )
    return pairs


def _records(side: Side) -> dict[tuple[str, str, int], ImageRecord]:
    found = [record for record in read_images(side.run).records if record.model == side.model]
    return {(record.prompt.id, record.prompt.text, record.seed): record for record in found}


class Comparison:
    """A comparison in its own folder. The second side is hoped to be better, such as a fine-tuned model."""

    def __init__(self, folder: str | os.PathLike, first: Side, second: Side):
        """Begins a comparison, or continues with the one that is there."""
        self.folder = pathlib.Path(folder)
        self.first, self.second = first, second
        self.pairs = make_pairs(first, second)
        self._seed = self._settle()

    def _settle(self) -> str:
        """The secret seed. It is on disk, with the compared models, before a page is shown."""
        described = {
            "format": _FORMAT,
            "first": _described(self.first, [pair.records[0] for pair in self.pairs]),
            "second": _described(self.second, [pair.records[1] for pair in self.pairs]),
        }
        path = self.folder / DESCRIPTION
        with files.writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            # Two people may begin at the same moment: the one whose file is there first decides.
            with files.locked(self.folder, f"another process begins the comparison in {self.folder}: try again"):
                if not path.exists():
                    files.write_json(path, {**described, "seed": secrets.token_hex(16)})
        known = json_files.read_object(path)
        seed = known.get("seed")
        if {name: known.get(name) for name in described} != described or not isinstance(seed, str):
            raise InputError(f"{self.folder} holds the comparison of other images: name another --workdir")
        return seed

    def rows_for(self, rater: str) -> list[tuple[str, Pair, bool]]:
        """(code, pair, whether the second side stands left), in the order in which a person sees them."""
        hashed = [(hashlib.sha256(f"{self._seed} {rater} {pair.key}".encode()).digest(), pair) for pair in self.pairs]
        rows = [(drawn[:12].hex(), pair, bool(drawn[-1] & 1)) for drawn, pair in hashed]
        return sorted(rows, key=lambda row: row[0])

    @contextlib.contextmanager
    def serve(self, rater: str, port: int | None = None) -> Iterable[tuple[Server, judging.Labels]]:
        """A running server for one person's page, and where the clicks go."""
        rows = self.rows_for(rater)
        items = [{"id": code, "prompt": pair.records[0].prompt.text} for code, pair, _ in rows]
        paths = {
            f"{code}-{position}": pair.paths[int(position == LEFT) if swapped else int(position == RIGHT)]
            for code, pair, swapped in rows
            for position in (LEFT, RIGHT)
        }

        def image(name: str) -> bytes | None:
            return pixels_alone(paths[name]) if name in paths else None

        with judging.Labels(self.folder / LABELS, rater, CHOICES) as labels:
            page = judging.Page(page_html(rater), items, labels, image)
            with judging.serve(page, port) as server:
                yield server, labels

    def outcomes(self) -> dict[str, dict[str, int]]:
        """Person -> key of a pair -> `preference.FIRST`, `preference.SECOND` or `preference.EQUAL`."""
        return {
            rater: {
                pair.key: _outcome(labels[code], left) for code, pair, left in self.rows_for(rater) if code in labels
            }
            for rater, labels in judging.read_labels(self.folder / LABELS, CHOICES).items()
        }

    def finish(self) -> dict[str, Any]:
        """Sums up the labels, writes ``results.json``, and returns its content.

        "raters" and "categories" {name: preference}, "all" (the majority of each pair's raters), "agreement" (Fleiss'
        kappa over pairs that all have judged; None for one person), "left" (pairs left to judge, by name) and others.
        """
        outcomes = {rater: labels for rater, labels in self.outcomes().items() if labels}
        if not outcomes:
            raise InputError(f"nobody has judged a pair in {self.folder}: give --rater=NAME first")
        keys = [pair.key for pair in self.pairs]
        votes = {key: [labels[key] for labels in outcomes.values() if key in labels] for key in keys}
        voted = {key: preference.majority(votes_of_pair) for key, votes_of_pair in votes.items() if votes_of_pair}
        results = {
            "first": str(self.first),
            "second": str(self.second),
            "pairs": len(self.pairs),
            "no_image": {"first": self._lacking(self.first), "second": self._lacking(self.second)},
            "raters": {rater: self.summary(labels) for rater, labels in outcomes.items()},
            "all": self.summary(voted),
            "categories": self.by_category(voted),
            "agreement": self._agreement(outcomes),
            "left": {rater: len(self.pairs) - len(labels) for rater, labels in outcomes.items()},
            "paper": PAPER,
        }
        with files.writing(self.folder):
            files.write_json(self.folder / RESULTS, results)
        return results

    def summary(self, outcomes: Mapping[str, int]) -> dict[str, Any]:
        """A `Preference` of outcomes by pair, clustered by prompt, as JSON values."""
        pairs = [pair for pair in self.pairs if pair.key in outcomes]
        prompts = [pair.records[0].prompt.text for pair in pairs]
        found = preference.summarize([outcomes[pair.key] for pair in pairs], prompts)
        share = None if found.share is None else found.share._asdict()
        return {**dataclasses.asdict(found), "share": share}

    def _lacking(self, side: Side) -> int:
        """The number of images that a side lacks for good. Each would make a pair."""
        return sum(image.model == side.model for image in read_images(side.run).missing)

    def by_category(self, outcomes: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """The same for the pairs of each category of prompts."""
        grouped: dict[str, dict[str, int]] = {}
        for pair in self.pairs:
            if pair.key in outcomes:
                grouped.setdefault(pair.records[0].prompt.category, {})[pair.key] = outcomes[pair.key]
        return {category: self.summary(found) for category, found in grouped.items() if category}

    def _agreement(self, outcomes: Mapping[str, Mapping[str, int]]) -> dict[str, Any] | None:
        common = [pair.key for pair in self.pairs if all(pair.key in labels for labels in outcomes.values())]
        if len(outcomes) < 2 or not common:
            return None
        signs = (preference.FIRST, preference.EQUAL, preference.SECOND)
        counts = np.array([[sum(o[key] == sign for o in outcomes.values()) for sign in signs] for key in common])
        return {
            **agreement.fleiss_kappa(counts)._asdict(),
            "same": {
                f"{first}, {other}": float(np.mean([outcomes[first][key] == outcomes[other][key] for key in common]))
                for first, other in itertools.combinations(outcomes, 2)
            },
        }


def judgements(run: str | os.PathLike) -> dict[str, dict[str, str]]:
    """An image's path within its run -> person -> ``better than MODEL``, ``worse than MODEL`` or ``equal to MODEL``.

    From the comparisons in folders next to the run's, of which `finish` has ended the blindness.
    """
    run = pathlib.Path(run).resolve()
    by_file: dict[str, dict[str, str]] = {}
    for folder in sorted(path.parent for path in run.parent.glob(f"*/{RESULTS}")):
        try:
            compared = _finished(folder, run)
            outcomes = {} if compared is None else compared.outcomes()
        except (InputError, OSError):  # of other images, or of a run that is gone
            continue
        for rater, by_pair in outcomes.items():
            for pair in compared.pairs:
                for index, side in enumerate((compared.first, compared.second)):
                    if side.run == run and pair.key in by_pair:
                        other = (compared.second, compared.first)[index].model
                        said = _in_words(by_pair[pair.key], (preference.FIRST, preference.SECOND)[index])
                        person = by_file.setdefault(pair.records[index].file, {})
                        person[rater] = "; ".join(filter(None, (person.get(rater), f"{said} {other}")))
    return by_file


def _finished(folder: pathlib.Path, run: pathlib.Path) -> Comparison | None:
    """The comparison in a folder, if it is finished and has a side in the run. The other side is next to the run."""
    if not (folder / DESCRIPTION).is_file():
        return None
    results = json_files.read_object(folder / RESULTS)
    named = [str(results.get(name)).partition(" in ") for name in ("first", "second")]
    first, second = (Side(run.parent / pathlib.Path(path).name, model) for model, _, path in named)
    return Comparison(folder, first, second) if run in (first.run, second.run) else None


def _in_words(outcome: int, own: int) -> str:
    return "equal to" if outcome == preference.EQUAL else "better than" if outcome == own else "worse than"


def page_html(rater: str) -> str:
    """The page. It has the person's name alone until it asks its server."""
    return judging.render(
        __package__, "compare.html.jinja", title="Which shows the text better?", person=rater, choices=_CHOICES
    )


def pixels_alone(path: pathlib.Path) -> bytes:
    """An image's pixels as a PNG file without anything else that the file may say, such as who generated it."""
    with PIL.Image.open(path) as image:
        alone = PIL.Image.fromarray(np.asarray(image.convert("RGB")))
    buffer = io.BytesIO()
    alone.save(buffer, "PNG")
    return buffer.getvalue()


def _outcome(label: str, second_is_left: bool) -> int:
    if label == EQUAL:
        return preference.EQUAL
    return preference.SECOND if (label == LEFT) == second_is_left else preference.FIRST


def _described(side: Side, records: Iterable[ImageRecord]) -> dict[str, Any]:
    """A side by its content, as the folder may be moved."""
    return {"model": side.model, "pictures": files.digest([record.sha256 for record in records])}
