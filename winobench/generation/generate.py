"""Generates a set of prompts with one or several models, image by image on disk, and resumes.

The noise of an image depends on its seed and number alone: with any number of processes, it is the same image, up to
rounding.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import gc
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from winobench import parallel
from winobench.base import json_files, options
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.base.texts import checked_list
from winobench.diffusion import samplers
from winobench.models import snapshots
from winobench.prompts.prompt_files import Prompt, digest
from winobench.runs import image_records, image_runs, lifecycle, provenance
from winobench.runs import records as run_folders

if TYPE_CHECKING:
    import numpy as np


_MOST_LABELS = 3  # of a default folder's name


@dataclasses.dataclass(frozen=True)
class Settings:
    """How images are generated: arguments of `Pipeline.generate`, each model's own where None."""

    num_steps: int | None = None  # 50 of diffusion models
    guidance_scale: float | None = None  # 7.5 of diffusion models. 1 or less for none
    sampler: str | None = None
    image_size: int | None = None
    negative_prompt: str | None = None

    def of_diffusion(self) -> Settings:
        """The settings of diffusion models, where these have None."""
        own: dict[str, Any] = {"num_steps": 50, "guidance_scale": 7.5}
        return dataclasses.replace(self, **{name: value for name, value in own.items() if getattr(self, name) is None})

    def of_tokens(self) -> Settings:
        """Without the values that only a diffusion model's sampler has."""
        return dataclasses.replace(self, num_steps=None, sampler=None)

    def described(self) -> dict[str, Any]:
        """As JSON values, as runs before there were negative prompts have them."""
        optional = {"negative_prompt"} if self.num_steps is not None else {*vars(self)}
        return {name: value for name, value in vars(self).items() if name not in optional or value is not None}


@dataclasses.dataclass(frozen=True)
class Generator:
    """A model that is to generate."""

    label: str  # a folder's name, which differs from the run's other labels
    name: str
    # Makes a `Pipeline` with its LoRA, or another object that generates, once, when the models before it are done.
    load: Callable[[], Any]
    dtype: str = "float32"
    lora: Mapping[str, Any] | None = None  # name, sha256, scale
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # such as ``revision``, as JSON values
    files: Callable[[], str | None] = lambda: None  # `Source.state` of all that ``load`` reads; None where unknown
    hosted: Any = None  # the part ``hosted_images``: a model behind an API, which is there without ``load``
    settings: Settings | None = None  # instead of the run's, of a model that is not a diffusion model
    sharing: int = 1  # devices that share one copy of the parameters

    def identity(self) -> dict[str, Any]:
        """Its part of a run's identity. Its fingerprint comes once it is loaded."""
        if self.hosted is not None:
            return {"name": self.name, "lora": None, "api": self.hosted.fingerprint()}
        lora = None if self.lora is None else dict(self.lora)
        settings = {} if self.settings is None else {"settings": self.settings.described()}
        return {"name": self.name, "dtype": self.dtype, "lora": lora, **settings, **self.more}


def generate_images(
    generators: Sequence[Generator],
    prompts: Sequence[Prompt],
    workdir: str | os.PathLike[str] | None = None,
    *,
    seeds: Sequence[int] = (0,),
    settings: Settings = Settings(),
    batch_size: int = 8,
    overwrite: bool = False,
    progress: bool = True,
    name: str = "images",
    config: Mapping[str, Any] | None = None,
    label: str | None = None,
    ask_again: bool = False,
) -> image_runs.Images:
    """Generates the missing images of a run: one for each model, seed and prompt.

    A call with the same arguments continues an interrupted one, and reports lost and damaged images that it repeats.

    Args:
      generators: the models. Loaded one after the other.
      prompts: image number n is of ``prompts[n]``.
      workdir: the run's folder; ``runs/<name>-<models>-<hash>`` by default.
      seeds: of the noise. An image each.
      settings: how they are generated.
      batch_size: images that each device generates at once, or devices that share one copy of a model together.
      overwrite: delete another run in ``workdir`` instead of refusing the folder.
      progress: show images, images a second and the time left.
      name: begins the default folder's name.
      config: recorded as it is.
      label: what the viewer calls the run, its models by default. Another label resumes the same run.
      ask_again: also request images that a hosted model has refused to make. They stay missing otherwise.

    Returns: the finished run, in each process.

    Raises:
      InputError: an argument is not as described, a model does not fit its settings or has changed, the folder is
        another run's or cannot be written, or another process failed or was lost. A hosted model refuses every call, or
        calls have failed that may pass another time.
    """
    for argument, values, kind in (("generators", generators, Generator), ("prompts", prompts, Prompt)):
        for value in checked_list(argument, values):
            options.instance(f"a {kind.__name__}", kind).check(f"one of {argument}", value, "wrong-type")
    options.instance("a Settings of winobench.generation.generate", Settings).check("settings", settings, "wrong-type")
    options.instance("a dict", Mapping).or_none().check("config", config, "wrong-type")
    name, generators, prompts = options.text().check("name", name), list(generators), list(prompts)
    seeds = options.items(options.SEED, 1).check("seeds", seeds)
    batch_size = options.BATCH_SIZE.check("batch_size", batch_size)
    for what, words in (("seeds", [str(seed) for seed in seeds]), ("labels", [each.label for each in generators])):
        if len(set(words)) < len(words):
            raise InputError(f"the {what} {', '.join(words)} name one twice: name each once")
    _refuse_edits(generators, prompts)
    settings = settings.of_diffusion()
    identity = _identity(generators, prompts, seeds, settings)
    shows = progress and parallel.is_main_process()
    with contextlib.closing(_folder(generators, workdir, name, identity)) as folder:
        description = {"kind": image_runs.KIND, "layout": image_runs.LAYOUT} | lifecycle.described(
            identity,
            kind=image_runs.KIND,
            model=", ".join(generator.name for generator in generators),
            config=None if config is None else dict(config),
            versions={**provenance.software(), "device": provenance.devices()},
            name=options.text().or_none().check("label", label),
        )
        can_rest = not overwrite and not ask_again
        if parallel.broadcast_from_host0(lambda: can_rest and _is_finished(folder, description, generators)):
            if shows:
                progress_bars.say(f"finished before: all images are in {folder.path}")
            return image_runs.read_images(folder.path)
        description["drawn"] = {} if overwrite else _generated_before(folder)
        parallel.broadcast_from_host0(lambda: folder.open(description, overwrite=overwrite))
        with lifecycle.recording(folder, description, folder.has_records):
            if shows:
                progress_bars.say(f"images in {folder.path}")
            parallel.broadcast_from_host0(lambda: image_records.write_prompts(folder.path, prompts))
            run = _Run(folder, description, prompts, seeds, settings, batch_size, progress, ask_again)
            for generator in generators:
                run.generate(generator)
                gc.collect()  # circles hold a pipeline, and the next one needs its memory
    return image_runs.read_images(folder.path)


def _refuse_edits(generators: Sequence[Generator], prompts: Sequence[Prompt]) -> None:
    editing = next((prompt for prompt in prompts if prompt.source_sha256), None)
    pipeline = next((generator.name for generator in generators if generator.hosted is None), None)
    if editing is not None and pipeline is not None:
        raise InputError(
            f"prompt {editing.id} edits an image, and {pipeline} makes images of texts alone: name a hosted model"
            " (openai:MODEL), or edit the images with another program, and bring them by winobench collect",
            code="wrong-kind-of-model",
        )


def _identity(
    generators: Sequence[Generator], prompts: Sequence[Prompt], seeds: Sequence[int], settings: Settings
) -> dict[str, Any]:
    is_used = any(generator.hosted is None and generator.settings is None for generator in generators)
    return {
        "prompts": {"sha256": digest(prompts), "count": len(prompts)},
        "seeds": list(seeds),
        "settings": settings.described() if is_used else {},
        "models": {generator.label: generator.identity() for generator in generators},
    }


def _folder(
    generators: Sequence[Generator], workdir: str | os.PathLike[str] | None, name: str, identity: Mapping[str, Any]
) -> run_folders.RunFolder:
    name = "-".join([name, *(generator.label for generator in generators[:_MOST_LABELS])])
    return lifecycle.folder_for(workdir, name, identity, image_records.GENERATED)


@dataclasses.dataclass(frozen=True)
class _Run:
    folder: run_folders.RunFolder
    description: dict[str, Any]
    prompts: Sequence[Prompt]
    seeds: Sequence[int]
    settings: Settings
    batch_size: int
    progress: bool
    ask_again: bool

    def generate(self, generator: Generator) -> None:
        """Generates the missing images of one model. Each process makes its part."""
        files = generator.files()  # before they are read, so that no later change is missed
        if generator.hosted is not None:
            make = functools.partial(generator.hosted.generate_missing, self.prompts, self.folder.path)
            drawn = self._settle(generator, generator.hosted.described(), files)
        else:
            pipeline, settings = snapshots.snapshot(generator.load()), generator.settings or self.settings
            at_once = self.batch_size * len(jax.local_devices()) // generator.sharing
            make = functools.partial(self._generate_missing, pipeline, settings, at_once)
            drawn = self._settle(generator, self._described(generator, pipeline, settings), files)
        ranges = parallel.broadcast_from_host0(lambda: self._missing(generator))
        missing = [(seed, number) for seed, first, end in ranges for number in range(first, end)]
        mine = missing[parallel.process_slice(len(missing), parallel.process_number(), parallel.num_processes())]
        fields = {"model": generator.label, "fingerprint": drawn["fingerprint"], "settings": drawn["settings"]}
        fields["lora"] = None if generator.lora is None else dict(generator.lora)
        parallel.all_gather_object(lambda: self._make(make, generator, mine, fields))

    def _make(
        self,
        make: Callable[..., None],
        generator: Generator,
        places: Sequence[tuple[int, int]],
        fields: Mapping[str, Any],
    ) -> None:
        """Makes the images of these seeds and numbers, and shows how many there are."""
        if not places:
            return
        shows = self.progress and parallel.is_main_process()
        label = f"generating with {generator.name}"
        with (
            progress_bars.counting(len(places), label=label, unit="images", enabled=shows) as advance,
            image_records.ImageStore(self.folder.path, parallel.process_number()) as store,
        ):
            make(places, fields, store, advance)

    def _described(self, generator: Generator, pipeline: Any, settings: Settings) -> dict[str, Any]:
        """The fingerprint and settings of a loaded pipeline."""
        size = pipeline.check_image_size(settings.image_size)
        negative = _negative_prompt(settings)
        if negative:
            pipeline.check_negative_prompt(guidance_scale=settings.guidance_scale, **negative)
        own = pipeline.generation_identity(settings.guidance_scale, settings.sampler, size)
        if "sampler" not in own:
            own = {"sampler": self._sampler(generator, pipeline, settings.sampler), **own}
        settings_of_images = {**settings.described(), "image_size": size, "dtype": generator.dtype, **own}
        return {"fingerprint": pipeline.fingerprint, "settings": settings_of_images}

    def _sampler(self, generator: Generator, pipeline: Any, name: str | None) -> str:
        """The name of the sampler of winobench that the pipeline generates with."""
        chosen = samplers.find_sampler(name, pipeline.schedule)
        sampler = next(known for known, kind in samplers.SAMPLERS.items() if kind is chosen)
        shows = self.progress and parallel.is_main_process()
        if shows and name is None and not samplers.has_own(pipeline.schedule):
            named = pipeline.schedule.scheduler_class
            progress_bars.say(f"{generator.name} names {named}, which is not offered: {sampler} is used instead")
        return sampler

    def _settle(self, generator: Generator, drawn: dict[str, Any], files: str | None) -> dict[str, Any]:
        """Records the fingerprint and settings of a model. Refuses another model than before."""
        first, *others = parallel.all_gather_object(lambda: drawn)
        if any(other != first for other in others):
            raise InputError(f"the processes have loaded different models {generator.name!r}: start all alike")
        before = self.description["drawn"].get(generator.label)
        if before is not None and {name: before.get(name) for name in drawn} != drawn:
            raise InputError(
                f"the model {generator.name!r} is not the one that has generated in {self.folder.path} (fingerprint or"
                " settings differ): choose another --workdir, or --overwrite to delete its images and start again",
                code="another-run",
            )
        self.description["drawn"][generator.label] = drawn | {"files": files}
        if parallel.is_main_process():
            self.folder.describe(self.description)
        return drawn

    def _missing(self, generator: Generator) -> list[list[int]]:
        """Missing images of a model, as ranges (seed, first number, end)."""
        written = image_records.read_records(self.folder.path)
        ranges: list[list[int]] = []
        lost = []
        for seed, number in itertools.product(self.seeds, range(len(self.prompts))):
            record = written.get((generator.label, seed, number))
            if not _is_missing(self.folder, record, self.ask_again):
                continue
            if isinstance(record, image_records.ImageRecord):
                lost.append(record.file)
            if ranges and ranges[-1][0] == seed and ranges[-1][2] == number:
                ranges[-1][2] += 1
            else:
                ranges.append([seed, number, number + 1])
        if lost:
            are = "image is" if len(lost) == 1 else "images are"
            progress_bars.say(f"{len(lost):,} {are} lost or damaged and generated again, such as {lost[0]}")
        return ranges

    def _generate_missing(
        self,
        pipeline: Any,
        settings: Settings,
        at_once: int,
        places: Sequence[tuple[int, int]],
        fields: Mapping[str, Any],
        store: image_records.ImageStore,
        advance: Callable[[int], Any],
    ) -> None:
        """Generates the images of these seeds and numbers. While some are generated, those before them are written."""
        with concurrent.futures.ThreadPoolExecutor(1) as writer:
            writing: concurrent.futures.Future[Any] | None = None
            for start in range(0, len(places), at_once):
                batch = places[start : start + at_once]
                images = self._generate(pipeline, settings, at_once, batch)
                if writing is not None:
                    writing.result()
                lines = [{**fields, "prompt": self.prompts[number], "seed": s, "number": number} for s, number in batch]
                writing = writer.submit(store.add, list(images), lines)
                advance(len(batch))
                parallel.check_first_process()
            if writing is not None:
                writing.result()

    def _generate(
        self, pipeline: Any, settings: Settings, at_once: int, places: Sequence[tuple[int, int]]
    ) -> np.ndarray:
        return pipeline.generate(
            [self.prompts[number].given for _, number in places],
            num_steps=settings.num_steps,
            guidance_scale=settings.guidance_scale,
            sampler=settings.sampler,
            seed=[seed for seed, _ in places],
            numbers=[number for _, number in places],
            batch_size=at_once,
            image_size=settings.image_size,
            **_negative_prompt(settings),
        )


def _negative_prompt(settings: Settings) -> dict[str, str]:
    """The keyword of `ImageGeneration.generate`, where there is one."""
    text = settings.negative_prompt
    return {} if text is None else {"negative_prompt": text}


def _is_missing(
    folder: run_folders.RunFolder,
    record: image_records.ImageRecord | image_records.MissingImage | None,
    ask_again: bool,
) -> bool:
    if isinstance(record, image_records.MissingImage):
        return ask_again
    return record is None or not image_records.is_whole(folder.path, record)


def estimate(
    generators: Sequence[Generator],
    prompts: Sequence[Prompt],
    workdir: str | os.PathLike[str] | None = None,
    *,
    seeds: Sequence[int] = (0,),
    settings: Settings = Settings(),
    name: str = "images",
    overwrite: bool = False,
    ask_again: bool = False,
) -> dict[str, dict[str, Any]]:
    """Label -> number of missing images, with tokens, price and seconds of a hosted model, as far as is known.

    All are missing where ``overwrite`` would delete those that are there.
    """
    _refuse_edits(generators, prompts)
    identity = _identity(generators, prompts, seeds, settings.of_diffusion())
    planned = {}
    with contextlib.closing(_folder(generators, workdir, name, identity)) as folder:
        if not overwrite:
            folder.check(identity)
        written = {} if overwrite else image_records.read_records(folder.path)
        for generator in generators:
            places = [(generator.label, *place) for place in itertools.product(seeds, range(len(prompts)))]
            missing = {place for place in places if _is_missing(folder, written.get(place), ask_again)}
            planned[generator.label] = {"images": len(places), "missing": len(missing)}
            if generator.hosted is not None:
                made = [written[place] for place in places if place in written and place not in missing]
                planned[generator.label] |= generator.hosted.estimate(made, len(missing))
    return planned


def _is_finished(
    folder: run_folders.RunFolder, description: Mapping[str, Any], generators: Sequence[Generator]
) -> bool:
    """Whether a run of this description, whose models have the same files, has all images unchanged."""
    # Images do not depend on the rest of a command: another one may need the same.
    told = {name: value for name, value in description.items() if name != "config"}
    if (recorded := lifecycle.finished_config(folder, told)) is None:
        return False
    try:
        for generator in generators:
            files = generator.files()
            if files is None or recorded["drawn"][generator.label]["files"] != files:
                return False
        run = image_runs.read_images(folder.path)
    except (OSError, InputError, LookupError, TypeError):  # lost images are generated again
        return False
    if not all(image_records.is_whole(folder.path, record) for record in run.records):
        return False
    lifecycle.rename(folder, recorded, description)
    return True


def _generated_before(folder: run_folders.RunFolder) -> dict[str, Any]:
    """Entries of the folder's config about models with images here. `RunFolder.open` checks whose config it is."""
    try:
        return dict(json_files.load(folder.config_path)["drawn"])
    except (OSError, InputError, KeyError, TypeError, ValueError):
        return {}
