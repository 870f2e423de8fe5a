"""Plans of scorers that read an image and a text together: their image encoder and their scoring of pairs.

The encoder fills a table with the state of each image, which all texts share. The other program scores pairs of a row
of that table and a text.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from winobench import parallel
from winobench.base import memory
from winobench.contrib.planning import work
from winobench.contrib.planning.plan import Duration, Job, Load, Plan, of_all_blocks, without_size
from winobench.contrib.planning.programs import Compiled, Program, bytes_there, one_row, rows_like
from winobench.engine import tables
from winobench.scorers import pairs

IMAGE, PAIR = "image", "pair"
_WHOLE = PartitionSpec()


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of shapes on a mesh."""

    mesh: Mesh
    params: list[jax.ShapeDtypeStruct]  # at their places
    image_function: Any  # the images' encoder: parameters and pixels -> states
    image: Any  # an image from the processor: a pytree of arrays
    text: Any  # a text as a row of the table of texts: a pytree of arrays
    # Scores pairs of two tables. The last argument is int32 [2, pairs], rows of both.
    lower_pairs: Callable[[Any, Any, Any], jax.stages.Lowered]
    image_spec: PartitionSpec = _WHOLE  # a device's part of the table of images


@dataclasses.dataclass(frozen=True)
class Scorer:
    """A scorer on some devices, not yet compiled."""

    weights: int  # bytes of the parameters on a device
    rows: int  # of the table of images
    row: int  # bytes of one of them on a device
    texts: int  # bytes of the table of questions, which is on every device
    copies: int  # of the parameters, each of which processes separate images and pairs
    sharing: int  # devices of each copy
    images: Program
    pairs: Program

    @property
    def table(self) -> int:
        return self.rows * self.row + self.texts

    def needed(self, noun: str, items: int, own: int = 0) -> int:
        """Bytes on a device, at most, while a program runs and its results are stored (see `plan.Needed`)."""
        there = self.weights + self.table
        if noun != IMAGE:
            return there + own
        encoded = items * self.row
        # Each device gets the results of all (`winobench.parallel.held_by_all`), and joins them to one array.
        handed = encoded * self.copies * (self.copies > 1 or self.sharing > 1)
        joined = handed * (self.sharing == 1)
        return there + encoded + max(own, handed + joined)

    def load(self, model: str, images: Compiled | None, pairs: Compiled | None) -> Load:
        programs = [program for program in (images, pairs) if program]
        needed = [self.needed(program.noun, program.items, program.own) for program in programs]
        total = max(needed or [self.needed(IMAGE, 1)])
        shown = {"weights": self.weights, f"tables, {self.rows} images": self.table}
        shown |= {f"temporaries, {program.name}": program.temporaries for program in programs}
        shown["at most, with images on their way into the table"] = total
        row = {"share a copy": f"{self.sharing}"}
        for program in programs if images and pairs else ():
            rate = self.per_second(program)
            row[f"{program.noun}s at once"] = f"{program.items * self.copies}"
            row[f"{program.noun}s/s"] = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        return Load(model, (images, pairs), total, shown, row)

    def per_second(self, program: Compiled) -> float:
        """Images or pairs of all devices together, estimated."""
        return program.items * self.copies / program.seconds


def make_scorer(
    network: Network,
    batch: int,
    blocks: tuple[int, ...] = (),
    few: Sequence[tuple[tuple[int, ...], Network]] = (),
) -> Scorer:
    """A scorer on devices that need not be available. ``few``: numbers of blocks, and networks that have them."""
    mesh, (pixels, text) = network.mesh, jax.tree.map(one_row, (network.image, network.text))
    copies = parallel.data_parallelism(mesh)
    image = jax.eval_shape(network.image_function, network.params, pixels)
    rows, text_rows = (pairs.usual_rows(row, batch * copies, mesh) for row in (image, text))
    table = rows_like(image, rows, NamedSharding(mesh, network.image_spec))

    def lower_images(network: Network, items: int) -> jax.stages.Lowered:
        rows = rows_like(pixels, items * copies, parallel.split_axis(mesh))
        return tables.lower_encoder(network.image_function, mesh, network.params, rows)

    def lower_pairs(network: Network, items: int) -> jax.stages.Lowered:
        index = jax.ShapeDtypeStruct((2, items * copies), np.int32, sharding=parallel.split_axis(mesh, axis=1))
        return network.lower_pairs(table, rows_like(text, text_rows, parallel.replicated(mesh)), index)

    def program(name: str, noun: str, items: int, lower: Callable[[Network, int], jax.stages.Lowered]) -> Program:
        of_few = tuple((counts, functools.partial(lower, smaller)) for counts, smaller in few)
        return Program(name, noun, items, functools.partial(lower, network), blocks if few else (), of_few)

    return Scorer(
        weights=bytes_there(network.params),
        rows=rows,
        row=sum(bytes_there(leaf) // rows for leaf in jax.tree.leaves(table)),
        texts=text_rows * memory.array_bytes(text),
        copies=copies,
        sharing=mesh.size // copies,
        images=program("image encoder", IMAGE, pairs.images_at_once(rows, mesh), lower_images),
        pairs=program("scoring of pairs", PAIR, batch, lower_pairs),
    )


def make_plan(
    job: Job,
    title: str,
    ways: Sequence[int],
    make: Callable[[Mesh], Scorer],
    about: str,
    total: work.Total | None = None,
) -> Plan:
    """Plans a scorer on the fewest devices that hold the model together, for the config's tasks or this work.

    Images and pairs at once are halved until they fit, as in the scorer.

    Args:
      title: what the plan's numbers are of.
      ways: numbers of devices that may share a copy of the parameters, the smallest first.
      make: the scorer on a mesh.
      about: a note on the lengths of texts.
    """
    config = job.config
    for parts in ways:
        scorer = make(parallel.make_mesh(job.target.devices, model_parallel=parts))
        images = job.halved(scorer.images, scorer.needed)
        pairs = job.halved(scorer.pairs, scorer.needed) if images else None
        if pairs:
            break
    load = scorer.load(config.model, images, pairs)
    total = total or work.total(work.names(config.tasks), 1, 1, config.limit)
    content = {"model": config.model, "copies": scorer.copies, "model_parallel": parts, "weights": scorer.weights}
    content |= {"table": scorer.table, "rows": scorer.rows}
    for name, program in (("images", images), ("pairs", pairs)):
        content[name] = program and program.as_json() | {"per_second": scorer.per_second(program)}
    return job.plan(
        f"{title}, memory of a device, all else of all devices together",
        [load],
        functools.partial(_duration, scorer, images, pairs, total, job) if pairs else None,
        [*without_size(total.unknown), *_notes(scorer, [images, pairs], about, total, job)],
        content,
    )


def _duration(scorer: Scorer, images: Compiled, pairs: Compiled, total: work.Total, job: Job, devices: int) -> Duration:
    copies = job.copies(devices, scorer.sharing)
    # A step has pairs of no more images than the table.
    filled = min(1.0, scorer.rows * total.passes / max(total.images, 1) / (pairs.items * copies))
    stored = scorer.weights * scorer.sharing + job.stored(total.images, devices)
    parts = {
        "seeing": total.images * images.seconds / images.items / copies,
        "scoring": total.passes * pairs.seconds / pairs.items / copies / filled,
        "loading": stored / job.assumed.storage_rate,
        "compiling": images.compile_seconds + pairs.compile_seconds,
    }
    return Duration(devices, parts)


def _notes(scorer: Scorer, programs: Sequence[Compiled | None], about: str, total: work.Total, job: Job) -> list[str]:
    """Notes on assumptions, and on options to try where nothing fits."""
    text = job.target.text
    if not all(programs):
        less = "" if job.config.dtype == "bfloat16" else "--dtype=bfloat16, "
        takes = f"{scorer.weights / 1e9:.1f} GB and the tables {scorer.table / 1e9:.1f} of {job.usable / 1e9:.1f}"
        more = f"try {less}more devices or devices with more memory"
        return [f"{text}: weights take {takes}, and the rest does not fit next to them: {more}"]
    notes = []
    if scorer.sharing != job.config.model_parallel:
        notes.append(f"{text} needs --model_parallel={scorer.sharing} at least, for which this plan is")
    notes += [note for program in programs for note in of_all_blocks(text, program)]
    pairs = f"{total.images:,} images, each encoded once, and at most {total.passes:,} pairs"
    return [
        *notes,
        f"{about}: the longest decides",
        f"hours are for {pairs}, by the tasks' published sizes, with {job.storage}",
    ]
