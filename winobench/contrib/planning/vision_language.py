"""Plans of VQAScore with a vision-language model: its image encoder and its scoring of pairs.

The encoder fills a table with the state of each image, which all questions about it share. The other program scores
pairs of a row of that table and a question.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from winobench import parallel
from winobench.base import memory
from winobench.checkpoints import language_models, models, sources
from winobench.checkpoints import vision_language as checkpoints
from winobench.contrib.planning import asking, few_blocks, released_vision_language, work
from winobench.contrib.planning.plan import Duration, Job, Load, Plan, of_all_blocks, without_size
from winobench.contrib.planning.programs import Compiled, Program, bytes_there, placed, rows_like
from winobench.data.patches import PatchProcessor
from winobench.data.processors import ImageProcessor
from winobench.engine import tables
from winobench.models import functional, vision_language
from winobench.models.blip_2_config import (
    Blip2QFormerConfig,
    Blip2VisionConfig,
    InstructBlipQFormerConfig,
    InstructBlipVisionConfig,
)
from winobench.models.config import NetworkConfig
from winobench.models.decoder_config import DecoderConfig
from winobench.models.llava import LlavaVisionConfig
from winobench.models.opt_config import OPTConfig
from winobench.models.t5_config import T5Config
from winobench.models.vision_language import PromptForm, VisionLanguageNetwork
from winobench.scorers import pairs, vqa_score

IMAGE, PAIR = "image", "pair"
_BLIPS = (Blip2VisionConfig, Blip2QFormerConfig, InstructBlipVisionConfig, InstructBlipQFormerConfig)
# Config of a part -> the fields with the number of its layers, which are all alike.
_DEPTHS: dict[type[NetworkConfig], tuple[str, ...]] = {
    **dict.fromkeys((*_BLIPS, LlavaVisionConfig, DecoderConfig, OPTConfig), ("num_hidden_layers",)),
    T5Config: ("num_layers", "num_decoder_layers"),
}
# Which tokens answer makes no difference. A word and the end are two.
_ANSWER = (0, 0)


@dataclasses.dataclass(frozen=True)
class Question:
    before: int  # tokens that the language model reads before the image
    behind: int  # tokens after it, or of the whole question where the image comes before all of it, with padding

    @classmethod
    def of(cls, form: PromptForm, characters: float, text_tokens: int) -> Question:
        """VQAScore's question, by characters for each token and the tokens of the longest text."""
        before, named, behind = form.question.rpartition(form.image_token)
        tokens = math.ceil((len(behind) - len("{}")) / characters) + text_tokens
        width = min(math.ceil(tokens / pairs.TEXT_STEP) * pairs.TEXT_STEP, form.text_tokens)
        return cls(math.ceil(len(before) / characters) if named else 0, width)


@dataclasses.dataclass(frozen=True)
class Scorer:
    """A `VQAScore` on some devices, not yet compiled."""

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


def make_plan(job: Job, total: work.Total | None = None) -> Plan:
    """Plans VQAScore on the fewest devices that hold the model together, for the config's tasks or this work.

    Images and pairs at once are halved until they fit, as in the scorer.
    """
    config, assumed = job.config, job.assumed
    network = read_config(config.model, revision=config.revision)
    question = Question.of(network_class(network).form_of(network), assumed.characters_a_token, assumed.text_tokens)
    counts = few_blocks.shallow_counts(block_counts(network)) if job.few else ()
    shallow = [(few, with_block_counts(network, few)) for few in counts]
    for parts in job.ways_to_share(asking.heads_of(network.text_config)):
        mesh = parallel.make_mesh(job.target.devices, model_parallel=parts)
        scorer = make_scorer(network, mesh, question, dtype=config.dtype, batch_size=job.batch_size, shallow=shallow)
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
        "VQAScore, memory of a device, all else of all devices together",
        [load],
        functools.partial(_duration, scorer, images, pairs, total, job) if pairs else None,
        [*without_size(total.unknown), *_notes(scorer, [images, pairs], question, total, job)],
        content,
    )


def read_config(source: str, *, revision: str | None = None) -> NetworkConfig:
    """The shape of a vision-language model, by its config alone."""
    known = released_vision_language.vision_language_config(source) if revision is None else None
    if known is not None:
        return known
    found = sources.resolve(source, revision=revision)
    return models.read_config(checkpoints.network_class(found), found)


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


def _notes(
    scorer: Scorer, programs: Sequence[Compiled | None], question: Question, total: work.Total, job: Job
) -> list[str]:
    """Notes on assumptions, and on options to try where nothing fits."""
    text, assumed = job.target.text, job.assumed
    if not all(programs):
        less = "" if job.config.dtype == "bfloat16" else "--dtype=bfloat16, "
        takes = f"{scorer.weights / 1e9:.1f} GB and the tables {scorer.table / 1e9:.1f} of {job.usable / 1e9:.1f}"
        more = f"try {less}more devices or devices with more memory"
        return [f"{text}: weights take {takes}, and the rest does not fit next to them: {more}"]
    notes = []
    if scorer.sharing != job.config.model_parallel:
        notes.append(f"{text} needs --model_parallel={scorer.sharing} at least, for which this plan is")
    notes += [note for program in programs for note in of_all_blocks(text, program)]
    length = f"{assumed.characters_a_token:g} characters each around texts of {assumed.text_tokens} tokens"
    pairs = f"{total.images:,} images, each encoded once, and at most {total.passes:,} pairs"
    return [
        *notes,
        f"questions of {question.behind} tokens, {question.before} more before the image, {length} (assumptions): the"
        " longest decides",
        f"hours are for {pairs}, by the tasks' published sizes, with {job.storage}",
    ]


@dataclasses.dataclass(frozen=True)
class _Network:
    structure: functional.Structure
    params: list[jax.ShapeDtypeStruct]
    processor: ImageProcessor | PatchProcessor

    @classmethod
    def of(cls, config: NetworkConfig, mesh: Mesh, dtype: str) -> _Network:
        graph, state = nnx.split(language_models.abstract_network(network_class(config), config, dtype))
        arrays = placed(state, vision_language.parameter_shardings(state, mesh))
        params, tree = jax.tree.flatten(arrays)
        return cls(functional.Structure(graph, tree), params, _processor(config.vision_config))

    def module(self) -> VisionLanguageNetwork:
        return self.structure.module(self.params)

    def image_function(self, question: Question) -> Any:
        return vqa_score.image_function(self.structure, self.processor, (0,) * question.before)

    def pixels(self) -> Any:
        """An image from the processor, as shapes [1, ...]."""
        return jax.tree.map(lambda array: jax.ShapeDtypeStruct((1, *array.shape), array.dtype), self.processor.blank)

    def text_row(self, question: Question) -> tuple[jax.ShapeDtypeStruct, ...]:
        """A question as a row of the table of texts."""
        return (jax.ShapeDtypeStruct((1, question.behind + 1), np.int32),) * (1 + self.module().reads_text)

    def table(self, question: Question, rows: int, mesh: Mesh) -> Any:
        """The table of images at its place."""
        spec = self.module().image_spec(mesh.shape.get(parallel.MODEL_AXIS, 1))
        return rows_like(self.state(question), rows, NamedSharding(mesh, spec))

    def state(self, question: Question) -> Any:
        """The state of an image, as shapes [1, ...]."""
        return jax.eval_shape(self.image_function(question), self.params, self.pixels())


def weight_bytes(config: NetworkConfig, mesh: Mesh, dtype: str) -> int:
    """Bytes of the parameters on a device."""
    return bytes_there(_Network.of(config, mesh, dtype).params)


def network_class(config: NetworkConfig) -> type[VisionLanguageNetwork]:
    return next(cls for cls in checkpoints.NETWORKS.values() if cls.config_class is type(config))


def block_counts(config: NetworkConfig) -> tuple[int, ...]:
    """Counts the layers of each part of a network. A Q-Former counts in periods from one cross-attention to the next.

    Empty for a network with a part whose layers are not alike.
    """
    parts = [part for _, part in _parts(config)]
    if any(type(part) not in _DEPTHS for part in parts):
        return ()
    return tuple(getattr(part, _DEPTHS[type(part)][0]) // _period(part) for part in parts)


def with_block_counts(config: NetworkConfig, counts: Sequence[int]) -> NetworkConfig:
    """The same network with other numbers of layers, as `block_counts` counts them."""
    changed = {}
    for (name, part), count in zip(_parts(config), counts, strict=True):
        depths = dict.fromkeys(_DEPTHS[type(part)], count * _period(part))
        changed[name] = dataclasses.replace(part, **depths)
    return dataclasses.replace(config, **changed)


def _parts(config: NetworkConfig) -> list[tuple[str, NetworkConfig]]:
    found = ((field.name, getattr(config, field.name)) for field in dataclasses.fields(config))
    return [(name, part) for name, part in found if isinstance(part, NetworkConfig)]


def _period(part: NetworkConfig) -> int:
    return getattr(part, "cross_attention_frequency", 1)


def make_scorer(
    config: NetworkConfig,
    mesh: Mesh,
    question: Question,
    *,
    dtype: str = "float32",
    batch_size: int | None = None,
    shallow: Sequence[tuple[tuple[int, ...], NetworkConfig]] = (),
) -> Scorer:
    """A `VQAScore` of shapes on devices that need not be available."""
    batch = batch_size or pairs.PAIRS.on(mesh)
    network = _Network.of(config, mesh, dtype)
    few = [(counts, _Network.of(smaller, mesh, dtype)) for counts, smaller in shallow]
    image, text = network.state(question), network.text_row(question)
    rows, text_rows = (pairs.usual_rows(row, batch * parallel.data_parallelism(mesh), mesh) for row in (image, text))
    table = network.table(question, rows, mesh)

    def program(
        name: str, noun: str, items: int, lower: Callable[[_Network, Question, Mesh, int], jax.stages.Lowered]
    ) -> Program:
        whole = functools.partial(lower, network, question, mesh)
        of_few = tuple((counts, functools.partial(lower, smaller, question, mesh)) for counts, smaller in few)
        return Program(name, noun, items, whole, block_counts(config) if few else (), of_few)

    return Scorer(
        weights=bytes_there(network.params),
        rows=rows,
        row=sum(bytes_there(leaf) // rows for leaf in jax.tree.leaves(table)),
        texts=text_rows * memory.array_bytes(text),
        copies=parallel.data_parallelism(mesh),
        sharing=mesh.size // parallel.data_parallelism(mesh),
        images=program("image encoder", IMAGE, pairs.images_at_once(rows, mesh), _lower_images),
        pairs=program("scoring of pairs", PAIR, batch, functools.partial(_lower_pairs, rows, text_rows)),
    )


def _processor(tower: NetworkConfig) -> ImageProcessor | PatchProcessor:
    """A vision tower's processor: to the one size that it has positions for, or to patches of any."""
    if size := getattr(tower, "image_size", None):
        return ImageProcessor(resize=(size, size))
    return PatchProcessor(tower.patch_size, tower.temporal_patch_size, tower.spatial_merge_size)


def _lower_images(network: _Network, question: Question, mesh: Mesh, items: int) -> jax.stages.Lowered:
    total = items * parallel.data_parallelism(mesh)
    pixels = rows_like(network.pixels(), total, parallel.split_axis(mesh))
    return tables.lower_encoder(network.image_function(question), mesh, network.params, pixels)


def _lower_pairs(
    rows: int, text_rows: int, network: _Network, question: Question, mesh: Mesh, items: int
) -> jax.stages.Lowered:
    total = items * parallel.data_parallelism(mesh)
    return vqa_score.lower_step(
        network.structure,
        (_ANSWER,),
        mesh,
        vqa_score.image_shapes(network.structure, network.params, *network.image_function(question).settings),
        network.params,
        network.table(question, rows, mesh),
        rows_like(network.text_row(question), text_rows, parallel.replicated(mesh)),
        jax.ShapeDtypeStruct((2, total), np.int32, sharding=parallel.split_axis(mesh, axis=1)),
    )
