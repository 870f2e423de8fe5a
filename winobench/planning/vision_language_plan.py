"""What VQAScore takes of some devices: memory of a language model that sees, its two programs, hours and dollars."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from winobench import parallel
from winobench.base.errors import InputError
from winobench.checkpoints import models, sources
from winobench.checkpoints import vision_language as checkpoints
from winobench.models import released_vision_language
from winobench.models.config import NetworkConfig
from winobench.planning import few_blocks, language, vision_language, work
from winobench.planning.compiling import Compiled, compile_program
from winobench.planning.estimate import DEVICES_PER_HOST, Assumptions, InParts
from winobench.planning.programs import Program
from winobench.planning.topologies import Target
from winobench.planning.vision_language import Asked, Viewer

if TYPE_CHECKING:
    import ml_collections


@dataclasses.dataclass(frozen=True)
class VisionLanguageDuration(InParts):
    """Seconds of an evaluation, in parts that do not overlap. But for ``compiling`` none has been measured.

    Attributes:
      devices: how many there are.
      seeing: images, at the estimated rate.
      scoring: pairs, at the estimated rate.
      loading: weights and images, at the assumed rate of storage.
      compiling: both programs, as long as it took on this machine. Next to nothing where the persistent compilation
        cache has them.
    """

    devices: int
    seeing: float
    scoring: float
    loading: float
    compiling: float


@dataclasses.dataclass(frozen=True)
class VisionLanguagePlan:
    """What a config takes on one kind of device.

    Attributes:
      target: e.g. ``h100:1``.
      model: its name.
      copies: of the parameters, each of which works on images and pairs of its own.
      model_parallel: devices that share one copy.
      weights: bytes on a device.
      table: bytes on a device of what is kept of images, and of the questions.
      rows: images of which something is kept at once.
      total: bytes on a device, at most.
      usable: bytes of a device that programs can use.
      images: the program that sees; None if not even one image fits.
      pairs: the program that scores; None if not even one pair fits.
      durations: for each number of devices. None if something does not fit.
      price: dollars per device and hour; None if nobody said.
      notes: what the numbers rest on.
    """

    target: str
    model: str
    copies: int
    model_parallel: int
    weights: int
    table: int
    rows: int
    total: int
    usable: int
    images: Compiled | None
    pairs: Compiled | None
    durations: tuple[VisionLanguageDuration, ...]
    price: float | None
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether both programs do."""
        return None not in (self.images, self.pairs)

    def per_second(self, program: Compiled) -> float:
        """Images or pairs of all devices together, estimated."""
        return program.items * self.copies / program.seconds

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values, with what is computed from it."""
        content = dataclasses.asdict(self)
        for name in ("images", "pairs"):
            if program := getattr(self, name):
                content[name]["seconds"] = program.seconds
                content[name]["per_second"] = self.per_second(program)
        for duration, written in zip(self.durations, content["durations"], strict=True):
            written["total"], written["with_cache"] = duration.total, duration.with_cache
        return content | {"fits": self.fits}


def make_plan(
    config: ml_collections.ConfigDict,
    model: str,
    target: Target,
    devices: Sequence[int],
    price: float | None,
    assumed: Assumptions,
    few: bool,
    say: Callable[[str], None],
) -> VisionLanguagePlan:
    """Plans VQAScore for some devices. Arguments as of `winobench.planning.plans.make_plan`.

    Where one device does not hold what ``model_parallel=1`` puts on it, the smallest number of devices is looked for
    that do together. As in the scorer, images and pairs at once are halved until they fit.

    Raises:
      InputError: there is no such model, or a number of devices does not make up whole copies of it.
    """
    network = read_config(model, revision=config.revision)
    form = vision_language.network_class(network).form_of(network)
    asked = Asked.of(form, assumed.characters_a_token, assumed.text_tokens)
    counts = few_blocks.shallow_counts(vision_language.block_counts(network)) if few else ()
    shallow = [(each, vision_language.with_block_counts(network, each)) for each in counts]
    ways = [config.model_parallel]
    if config.model_parallel == 1:
        ways = language.ways_to_share(network.text_config, len(target.devices))
    for parts in ways:
        viewer = vision_language.make_viewer(
            network,
            parallel.make_mesh(target.devices, model_parallel=parts),
            asked,
            dtype=config.dtype,
            batch_size=config.batch_size if isinstance(config.batch_size, int) else None,
            shallow=shallow,
        )
        plan = _fitting(viewer, model, target, parts, price, say)
        if plan.fits:
            break
    total = work.total(work.names(config.tasks), 1, 1, config.limit)
    notes = _notes(plan, config, asked, total, assumed)
    if not plan.fits:
        return dataclasses.replace(plan, notes=notes)
    numbers = devices or (len(target.devices),)
    durations = tuple(_duration(plan, target, number, total, assumed) for number in numbers)
    return dataclasses.replace(plan, durations=durations, notes=notes)


def read_config(source: str, *, revision: str | None = None) -> NetworkConfig:
    """The shape of a vision-language model, by its config alone.

    Args:
      source: a name in `registry.MODELS`, of which the sizes of some are in the code, a folder, or a hub id.
      revision: branch, tag or commit of a hub id.

    Raises:
      InputError: it is none.
    """
    known = released_vision_language.vision_language_config(source) if revision is None else None
    if known is not None:
        return known
    found = sources.resolve(source, revision=revision)
    return models.read_config(checkpoints.network_class(found), found)


def _fitting(
    viewer: Viewer, model: str, target: Target, parts: int, price: float | None, say: Callable[[str], None]
) -> VisionLanguagePlan:
    """A plan with as many images and pairs at once as fit."""
    usable = target.accelerator.usable_memory

    def fitting(program: Program) -> Compiled | None:
        while program.items:
            if viewer.needed(program.noun, program.items) <= usable:
                say(f"{target.text}: compiling the {program.name}, {program.items} x {program.noun}")
                found = compile_program(program, target)
                if found and viewer.needed(found.noun, found.items, found.temporaries + found.code) <= usable:
                    return found
            program = program.halved()
        return None

    images = fitting(viewer.images)
    pairs = fitting(viewer.pairs) if images else None
    needed = [
        viewer.needed(each.noun, each.items, each.temporaries + each.code) for each in (images, pairs) if each
    ] or [viewer.needed(viewer.images.noun, 1)]
    return VisionLanguagePlan(
        target=target.text,
        model=model,
        copies=viewer.copies,
        model_parallel=parts,
        weights=viewer.weights,
        table=viewer.table,
        rows=viewer.rows,
        total=max(needed),
        usable=usable,
        images=images,
        pairs=pairs,
        durations=(),
        price=price,
    )


def _duration(
    plan: VisionLanguagePlan, target: Target, devices: int, total: work.Total, assumed: Assumptions
) -> VisionLanguageDuration:
    if devices % plan.model_parallel:
        raise InputError(
            f"--devices has {devices}, but {plan.model_parallel} devices share one copy of the model on"
            f" {plan.target}: name multiples of it"
        )
    copies = devices // plan.model_parallel
    # A step has pairs of no more images than the table.
    filled = min(1.0, plan.rows * total.passes / max(total.images, 1) / (plan.pairs.items * copies))
    hosts = math.ceil(devices / DEVICES_PER_HOST[target.accelerator.platform])
    # Every host reads all weights, and its share of the images.
    stored = plan.weights * plan.model_parallel + total.images * assumed.bytes_per_image / hosts
    return VisionLanguageDuration(
        devices=devices,
        seeing=total.images * plan.images.seconds / plan.images.items / copies,
        scoring=total.passes * plan.pairs.seconds / plan.pairs.items / copies / filled,
        loading=stored / assumed.storage_rate,
        compiling=plan.images.compile_seconds + plan.pairs.compile_seconds,
    )


def _notes(
    plan: VisionLanguagePlan,
    config: ml_collections.ConfigDict,
    asked: Asked,
    total: work.Total,
    assumed: Assumptions,
) -> tuple[str, ...]:
    """What the numbers rest on, and what to do where nothing fits."""
    notes = [f"tasks of unknown size are left out: {', '.join(total.unknown)}"] if total.unknown else []
    if not plan.fits:
        less = "" if config.dtype == "bfloat16" else "--config.dtype=bfloat16, "
        notes.append(
            f"{plan.target}: weights take {plan.weights / 1e9:.1f} GB and the tables {plan.table / 1e9:.1f} of"
            f" {plan.usable / 1e9:.1f}, and the rest does not fit beside them: try {less}more devices or such with more"
            " memory"
        )
        return tuple(notes)
    if plan.model_parallel != config.model_parallel:
        notes.append(
            f"{plan.target} needs --config.model_parallel={plan.model_parallel} at least, for which this plan is"
        )
    for each in (plan.images, plan.pairs):
        if each.blocks:
            kinds = " + ".join(map(str, each.blocks))
            notes.append(f"{plan.target}: the {each.name} of all {kinds} layers is extrapolated from few")
    notes.append(
        f"questions of {asked.behind} tokens, {asked.before} more before the image, {assumed.characters_a_token:g}"
        f" characters each around texts of {assumed.text_tokens} tokens (assumptions): the longest decides"
    )
    notes.append(
        f"hours are for {total.images:,} images, each seen once, and at most {total.passes:,} pairs, by the tasks'"
        f" published sizes, with storage of {assumed.storage_rate / 1e9:g} GB/s a host (an assumption)"
    )
    return tuple(notes)
