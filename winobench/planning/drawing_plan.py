"""What a run of pictures takes of some devices: each model's memory and programs, pictures a second, hours, dollars."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError
from winobench.generation import loading
from winobench.planning import abstract, drawing, few_blocks
from winobench.planning.compiling import Compiled, compile_program
from winobench.planning.drawing import Drawing
from winobench.planning.estimate import DEVICES_PER_HOST, Assumptions, InParts
from winobench.planning.programs import TEXT, Program
from winobench.planning.topologies import Target
from winobench.prompts import named_sets as sets

if TYPE_CHECKING:
    import jax
    import ml_collections

# Of the named sets that are read from a file, which need not be available for a plan.
_PUBLISHED = {"geneval": 553, "partiprompts": 1_632, "drawbench": 104}


@dataclasses.dataclass(frozen=True)
class DrawingDuration(InParts):
    """Seconds of a run of images, in parts that do not overlap. But for ``compiling`` none has been measured.

    Attributes:
      devices: how many there are.
      texts: encoding prompts, at the estimated rate, like the next two.
      drawing: the samplers' loops.
      decoding: latents to images.
      loading: weights, at the assumed rate of storage.
      compiling: all programs, as long as it took on this machine. Next to nothing where the persistent compilation
        cache has them.
    """

    devices: int
    texts: float
    drawing: float
    decoding: float
    loading: float
    compiling: float


@dataclasses.dataclass(frozen=True)
class Drawer:
    """What one model takes.

    Attributes:
      model: its name.
      loras: how many LoRAs it draws with, of which none is one, one after the other.
      weights: bytes on the first device of a process, which has the text encoders next to the rest, by network.
      others: bytes there of what goes in and comes out.
      batch: images on each device at once; 0 if not even one fits.
      sharing: devices of a process, whose texts are encoded together.
      encodings: runs of the text encoders for a batch.
      loop, decoder: programs; None if they do not fit.
      texts: the text encoders; None as well where they are left out.
      staged: whether text encoders and denoiser are never there together.
    """

    model: str
    loras: int
    weights: dict[str, int]
    others: int
    batch: int
    sharing: int
    encodings: int
    loop: Compiled | None = None
    decoder: Compiled | None = None
    texts: Compiled | None = None
    staged: bool = False

    @property
    def programs(self) -> tuple[Compiled, ...]:
        """Those that there are, the loop first."""
        return tuple(filter(None, (self.loop, self.decoder, self.texts)))

    @property
    def temporaries(self) -> int:
        """Bytes of the program that needs most."""
        return max((each.temporaries + each.code for each in self.programs), default=0)

    @property
    def total(self) -> int:
        """Bytes on a device, at most."""
        needed = [
            drawing.beside(self.weights, each.noun, staged=self.staged) + each.temporaries + each.code
            for each in self.programs
        ]
        least = (drawing.beside(self.weights, noun, staged=self.staged) for noun in ("picture", TEXT))
        return self.others + max(*needed, *least)

    @property
    def seconds(self) -> float:
        """Estimated, of a batch from its prompts to its pictures; it must fit."""
        return self.loop.seconds + self.decoder.seconds + self.encoding_seconds(self.sharing)

    @property
    def pictures_per_second(self) -> float:
        """Of one device, estimated."""
        return self.batch / self.seconds

    def encoding_seconds(self, devices: int) -> float:
        """Estimated, of a batch's texts where so many devices are of a process: one of them encodes for all."""
        return self.encodings * self.texts.seconds * devices / self.sharing if self.texts else 0.0

    def each_picture(self, name: str) -> float:
        """Of a picture: the sum of ``operations`` or ``bytes`` over the programs."""
        share = {id(self.texts): self.encodings / self.sharing}
        return sum(getattr(each, name) * share.get(id(each), 1.0) for each in self.programs) / self.batch


@dataclasses.dataclass(frozen=True)
class DrawingPlan:
    """What a config takes on one kind of device.

    Attributes:
      target: e.g. ``v5e:2x2``.
      usable: bytes of a device that programs can use.
      images: of each model with each of its LoRAs.
      drawers: the models, which draw one after the other.
      durations: for each number of devices. None if a model does not fit.
      price: dollars per device and hour; None if nobody said.
      notes: what the numbers rest on.
    """

    target: str
    usable: int
    pictures: int
    drawers: tuple[Drawer, ...]
    durations: tuple[DrawingDuration, ...]
    price: float | None
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes on a device, at most."""
        return max(each.total for each in self.drawers)

    @property
    def fits(self) -> bool:
        """Whether all models do."""
        return all(each.batch for each in self.drawers)

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values, with what is computed from it."""
        content = dataclasses.asdict(self)
        for each, written in zip(self.drawers, content["drawers"], strict=True):
            written["total"] = each.total
            if each.batch:
                written["seconds_per_picture"] = each.seconds / each.batch
                written["pictures_per_second"] = each.pictures_per_second
        for duration, written in zip(self.durations, content["durations"], strict=True):
            written["total"], written["with_cache"] = duration.total, duration.with_cache
        return content | {"total": self.total, "fits": self.fits}


def make_plan(
    config: ml_collections.ConfigDict,
    target: Target,
    devices: Sequence[int],
    price: float | None,
    assumed: Assumptions,
    few: bool,
    say: Callable[[str], None],
) -> DrawingPlan:
    """Plans a run of images for some devices. Arguments as of `winobench.planning.plans.make_plan`.

    Where as many images at once as the config asks for do not fit, half as many are tried, and so on.

    Raises:
      InputError: a model does not draw, or not with these settings. There is no such set of prompts.
    """
    prompts, source = _count(config)
    pictures = prompts * len(config.seeds)
    pairs = loading.pairs(_words(config.model), _words(config.lora or "none"))
    models = [model for model, _ in pairs]
    mesh = parallel.make_mesh(_of_one_process(target))
    usable = target.accelerator.usable_memory

    def compiled(program: Program) -> Compiled | None:
        say(f"{target.text}: compiling the {program.name}, {program.items} x {program.noun}")
        return compile_program(program, target)

    made = {model: programs(config, model, mesh, few) for model in dict.fromkeys(models)}
    drawers, notes = [], []
    for model, found in made.items():
        batch, results = drawing.fit(found, config.batch_size, usable, compiled)
        fields = (model, models.count(model), found.weights, found.others(batch), batch, mesh.size, found.encodings)
        drawers.append(Drawer(*fields, *results, staged=found.staged))
        notes += _notes(drawers[-1], config, target)
    durations = ()
    if all(each.batch for each in drawers):
        numbers = devices or (len(target.devices),)
        durations = tuple(_duration(drawers, pictures, number, target, assumed) for number in numbers)
        notes.append(
            f"{pictures:,} pictures a model: {prompts:,} prompts, {source}, with {len(config.seeds)} seeds; storage of"
            f" {assumed.storage_rate / 1e9:g} GB/s a host (an assumption); writing the files is not in the time"
        )
    return DrawingPlan(target.text, usable, pictures, tuple(drawers), durations, price, tuple(notes))


def programs(config: ml_collections.ConfigDict, model: str, mesh: jax.sharding.Mesh, few: bool = False) -> Drawing:
    """What a model will have on a process's devices, and run there.

    Args:
      config: from ``configs/pictures.py``.
      model: one of its models.
      mesh: the devices, which need not be available.
      few: see `winobench.planning.plans.make_plan`.

    Raises:
      InputError: it does not draw, or not with these settings.
    """
    if not abstract.is_pipeline(model):
        raise InputError(
            f"{model!r} judges pictures, but draws none: name a diffusion model", code="wrong-kind-of-model"
        )
    settings = options.settings().or_none().check("--config.pipeline_options", config.pipeline_options)
    description = abstract.read_description(model, revision=config.revision, settings=settings)
    most = description.schedule.num_train_timesteps
    num_steps = options.whole(1, most).check(f"num_steps for {model!r}", config.num_steps)
    pipeline = abstract.make_pipeline(description, config.dtype)
    whole = description.denoiser_config
    counts = few_blocks.shallow_counts(few_blocks.block_counts(whole)) if few else ()
    return drawing.drawing(
        pipeline,
        mesh,
        num_steps=num_steps,
        guidance_scale=config.guidance_scale,
        sampler=config.sampler,
        image_size=config.image_size,
        staged=config.encoders == "staged",
        shallow=[(each, abstract.with_denoiser(pipeline, whole.with_block_counts(*each))) for each in counts],
    )


def _of_one_process(target: Target) -> list[jax.Device]:
    """The devices that draw together: each process has pictures of its own."""
    first = [each for each in target.devices if each.process_index == target.devices[0].process_index]
    return first[: DEVICES_PER_HOST[target.accelerator.platform]]


def _count(config: ml_collections.ConfigDict) -> tuple[int, str]:
    """Number of prompts, and what it rests on."""
    name, _, file = config.prompts.partition(":")
    if name in _PUBLISHED and not file and not config.categories:
        return min(_PUBLISHED[name], config.limit or _PUBLISHED[name]), "by the set's published size"
    found = sets.read_prompts(config.prompts, limit=config.limit, categories=_words(config.categories or ""))
    return len(found), "counted"


def _words(text: str) -> list[str]:
    return [word for word in map(str.strip, text.split(",")) if word]


def _duration(
    drawers: Sequence[Drawer], pictures: int, devices: int, target: Target, assumed: Assumptions
) -> DrawingDuration:
    """How long all models take on some devices of a kind, each process its part of the pictures."""
    parts = dict.fromkeys(("texts", "drawing", "decoding", "loading", "compiling"), 0.0)
    for each in drawers:
        together = min(devices, each.sharing)
        of_a_process = math.ceil(pictures / math.ceil(devices / together))
        batches = each.loras * math.ceil(of_a_process / (each.batch * together))
        parts["texts"] += batches * each.encoding_seconds(together)
        parts["drawing"] += batches * each.loop.seconds
        parts["decoding"] += batches * each.decoder.seconds
        parts["loading"] += each.loras * sum(each.weights.values()) / assumed.storage_rate
        parts["compiling"] += sum(program.compile_seconds for program in each.programs)
    return DrawingDuration(devices, **parts)


def _notes(drawer: Drawer, config: ml_collections.ConfigDict, target: Target) -> list[str]:
    """How a model's numbers were made, where they are not the compiler's word for all, and what to do about them."""
    nouns, there = ("picture", TEXT), target.accelerator.usable_memory
    weights = max(drawing.beside(drawer.weights, noun, staged=drawer.staged) for noun in nouns)
    notes = []
    if not drawer.batch:
        takes = "not even one picture fits beside" if weights <= there else "there is no room for"
        less = "" if config.dtype == "bfloat16" else "--config.dtype=bfloat16 or "
        less += "" if drawer.staged else "--config.encoders=staged or "
        notes.append(
            f"{target.text}: {takes} {weights / 1e9:.1f} GB of weights of {drawer.model} in {there / 1e9:.1f}: take"
            f" {less}devices with more memory (one has all networks; --config.model_parallel is for scoring)"
        )
    elif drawer.batch < config.batch_size:
        notes.append(f"{target.text} needs --config.batch_size={drawer.batch} for {drawer.model}")
    if drawer.loop and drawer.loop.blocks:
        kinds = " + ".join(map(str, drawer.loop.blocks))
        notes.append(
            f"{target.text}: the loop of all {kinds} blocks is extrapolated from few; text encoders are not compiled"
        )
    return notes
