"""Plans of generating images: a diffusion model's text encoders, sampler loop and decoder."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh, SingleDeviceSharding

from winobench import parallel
from winobench.base import memory, options, random_numbers, registry
from winobench.base.errors import InputError
from winobench.contrib.planning import abstract, few_blocks, token_models
from winobench.contrib.planning.plan import DEVICES_PER_HOST, Duration, Job, Load, Plan, of_all_blocks
from winobench.contrib.planning.programs import TEXT, Compiled, Program, bytes_there, placed, rows_like
from winobench.contrib.planning.topologies import Target
from winobench.diffusion import pure_functions, samplers
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.pure_functions import ImageDecoding, LatentGeneration, Rows, Shared
from winobench.generation import loading
from winobench.prompts import named_sets
from winobench.scorers import loading as scorers

if TYPE_CHECKING:
    from configs.images import Settings

# The noun of the programs that make images. Files have this word.
IMAGE = "image"
# Sizes of the published sets, whose files need not be available for a plan.
_PUBLISHED = {"geneval": 553, "partiprompts": 1_632, "drawbench": 104}


@dataclasses.dataclass(frozen=True)
class Generator:
    """One model on the first device of a process, which has the text encoders next to the rest."""

    weights: dict[str, int]  # bytes of parameters there, by network
    # Images on each device -> the sampler's loop, the decoder, and the text encoders for all of the process's devices.
    # The encoders are left out where the loop's network has few blocks.
    programs: Callable[[int], tuple[Program, ...]]
    others: Callable[[int], int]  # images on each device -> bytes of inputs and results
    encodings: int  # runs of the text encoders for a batch: one more for the empty text where guidance needs it
    sharing: int  # devices of the process
    staged: bool = False  # whether text encoders and denoiser are never there together
    model_parallel: int = 1  # devices that share one copy of the parameters

    def resident(self, noun: str) -> int:
        """Bytes of parameters on the device while a program runs, by the noun of its items."""
        away = ("denoiser" if noun == TEXT else "text encoders") if self.staged else None
        return sum(number for name, number in self.weights.items() if name != away)


@dataclasses.dataclass(frozen=True)
class Fit:
    """A model's programs that fit together."""

    model: str
    loras: int  # how many it generates with, one after the other. No LoRA counts as one
    generator: Generator
    batch: int  # images on each device at once, or on those that share a copy; 0 if not even one fits
    programs: tuple[Compiled, ...]  # the loop, the decoder and the text encoders, if these are not left out

    @property
    def total(self) -> int:
        """Bytes on a device, at most."""
        resident = self.generator.resident
        needed = [resident(each.noun) + each.own for each in self.programs]
        return self.generator.others(self.batch) + max(*needed, resident(IMAGE), resident(TEXT))

    def encoding_seconds(self, devices: int) -> float:
        """Estimated seconds of a batch's texts, where one device encodes the texts of so many devices."""
        generator = self.generator
        return sum(generator.encodings * texts.seconds * devices / generator.sharing for texts in self.programs[2:])

    @property
    def seconds(self) -> float:
        """Estimated seconds of a batch from its prompts to its images. It must fit."""
        loop, decoder = self.programs[:2]
        return loop.seconds + decoder.seconds + self.encoding_seconds(self.generator.sharing)

    @property
    def images_per_second(self) -> float:
        """Images of a device, estimated. They must fit."""
        return self.batch / self.seconds / self.generator.model_parallel

    def each_image(self, name: str) -> float:
        """The sum of ``operations`` or ``bytes`` over the programs, for an image."""
        share = [1.0, 1.0, self.generator.encodings / self.generator.sharing]
        return sum(getattr(each, name) * part for each, part in zip(self.programs, share, strict=False)) / self.batch

    def load(self) -> Load:
        generator, row = self.generator, {}
        if self.batch:
            row = {"at once": f"{self.batch}", "TFLOP": f"{self.each_image('operations') / 1e12:.1f}"}
            row |= {"GB": f"{self.each_image('bytes') / 1e9:.1f}", "s": f"{self.seconds / self.batch:.3g}"}
            row["images/s"] = f"{self.images_per_second:.3g}"
        shown = {**generator.weights, "texts, latents, images": generator.others(self.batch)}
        shown["temporaries, at most"] = max((each.own for each in self.programs), default=0)
        shown["at most, encoders or denoiser" if generator.staged else "sum"] = self.total
        return Load(self.model, self.programs, self.total, shown, row)

    def as_json(self) -> dict[str, Any]:
        loop, decoder, texts = [program.as_json() for program in self.programs] + [None] * (3 - len(self.programs))
        generator = self.generator
        content = {"model": self.model, "loras": self.loras, "weights": generator.weights}
        content |= {"others": generator.others(self.batch), "batch": self.batch, "sharing": generator.sharing}
        content |= {"encodings": generator.encodings, "loop": loop, "decoder": decoder, "texts": texts}
        content |= {"staged": generator.staged, "model_parallel": generator.model_parallel, "total": self.total}
        if self.batch:
            content["seconds_per_image"] = self.seconds / self.batch
            content["images_per_second"] = self.images_per_second
        return content


def make_plan(job: Job) -> Plan:
    """Plans a run of generated images. Halves the images at once until they fit."""
    config = job.config
    prompts, source = _count(config)
    images = prompts * len(config.seeds)
    names = options.comma_separated(config.model), options.comma_separated(config.lora or "none")
    models = [model for model, _ in loading.pairs(*names)]
    ways = {model: _ways(job, model) for model in dict.fromkeys(models)}  # refusals come before compiling
    fits = [_fitted(job, model, models.count(model), made) for model, made in ways.items()]
    notes = [note for fitted in fits for note in _notes(fitted, job)]
    has_room = all(fitted.batch for fitted in fits)
    if has_room:
        of = f"{prompts:,} prompts, {source}, with {len(config.seeds)} seeds"
        notes.append(f"{images:,} images a model: {of}; {job.storage}; writing the files is not in the time")
    content = {"images": images, "generators": [fitted.as_json() for fitted in fits]}
    about = "TFLOP, GB moved and seconds of an image, images/s of a device"
    duration = functools.partial(_duration, fits, images, job) if has_room else None
    return job.plan(about, [fitted.load() for fitted in fits], duration, notes, content)


def _ways(job: Job, model: str) -> Iterator[Generator]:
    """Ways to generate with a model. Refuses what cannot be planned at once."""
    ref, devices = scorers.resolve(model, revision=job.config.revision), _of_one_process(job.target)
    if ref.kind == scorers.TOKENS:
        return _of_tokens(job, ref, devices)
    loading.check_alone(ref, job.config.model_parallel)
    return iter([_read_generator(job.config.of_diffusion(), model, parallel.make_mesh(devices), job.few)])


def _fitted(job: Job, model: str, loras: int, ways: Iterator[Generator]) -> Fit:
    """The first way to generate with a model that fits, or the last one."""
    for generator in ways:
        batch, programs = fit(generator, job)
        if batch:
            break
    return Fit(model, loras, generator, batch, programs)


def _of_tokens(job: Job, ref: registry.ModelRef, devices: Sequence[jax.Device]) -> Iterator[Generator]:
    """A model that predicts tokens, with more and more devices that share one copy."""
    config = job.config
    if "," not in config.model:
        of_diffusion = {name: getattr(config, name) for name in ("num_steps", "sampler", "lora")}
        scorers.taken(ref, scorers.SCORERS[scorers.TOKENS], {scorers.DIFFUSION: of_diffusion})
    whole, shallow = token_models.read(job, ref.checkpoint, ref.revision)
    family = whole.network.family
    negative = math.ceil(len(config.negative_prompt or family.NEGATIVE or "") / job.assumed.characters_a_token)

    def made(mesh: Mesh) -> Generator:
        loop, *of_few = (
            model.generation(mesh, config.guidance_scale, max(job.assumed.text_tokens, negative))
            for model in (whole, *(few for _, few in shallow))
        )
        params, (_, row), (decode, codes) = loop
        lowered = [functools.partial(_lower, sample, mesh, params, row) for params, (sample, row), _ in (loop, *of_few)]
        few = tuple((counts, lower) for (counts, _), lower in zip(shallow, lowered[1:], strict=True))
        lower_decoder = functools.partial(_lower, decode, mesh, params, codes)

        def programs(items: int) -> tuple[Program, ...]:
            name, blocks = f"loop of {family.length:,} tokens", whole.blocks if few else ()
            loop = Program(name, IMAGE, items, lowered[0], blocks, few)
            return loop, Program("decoder", IMAGE, items, lower_decoder)

        def bytes_of_rows(items: int) -> int:
            return items * (memory.array_bytes((row, codes)) + 3 * family.sides[0] ** 2)

        sharing = mesh.size // parallel.data_parallelism(mesh)
        weights = {"network": bytes_there(params)}
        return Generator(weights, programs, bytes_of_rows, 0, len(devices), model_parallel=sharing)

    ways = job.ways_to_share(whole.heads, len(devices))
    return (made(parallel.make_mesh(devices, model_parallel=parts)) for parts in ways)


def _read_generator(config: Settings, model: str, mesh: Mesh, few: bool) -> Generator:
    if not abstract.is_pipeline(model):
        raise InputError(
            f"{model!r} judges images, but generates none: name a diffusion model", code="wrong-kind-of-model"
        )
    pipeline = abstract.read_pipeline(config, model)
    if pipeline.backend is not None:
        raise InputError(
            f"{model} runs by torch, whose own loop generates images: plan its scoring instead",
            code="unsupported-option",
        )
    most = pipeline.schedule.num_train_timesteps
    return make_generator(
        pipeline,
        mesh,
        num_steps=options.whole(1, most).check(f"num_steps for {model!r}", config.num_steps),
        guidance_scale=config.guidance_scale,
        sampler=config.sampler,
        image_size=config.image_size,
        staged=config.encoders == "staged",
        shallow=abstract.shallow(pipeline) if few else (),
    )


def _of_one_process(target: Target) -> list[jax.Device]:
    """The devices that generate together: each process has its own images."""
    first = [each for each in target.devices if each.process_index == target.devices[0].process_index]
    return first[: DEVICES_PER_HOST[target.accelerator.platform]]


def _count(config: Settings) -> tuple[int, str]:
    """Number of prompts, and its source."""
    name, _, file = config.prompts.partition(":")
    if name in _PUBLISHED and not file and not config.categories:
        return min(_PUBLISHED[name], config.limit or _PUBLISHED[name]), "by the set's published size"
    found = named_sets.read_prompts(
        config.prompts, limit=config.limit, categories=options.comma_separated(config.categories or "")
    )
    return len(found), "counted"


def _duration(fits: Sequence[Fit], images: int, job: Job, devices: int) -> Duration:
    parts = dict.fromkeys(("texts", "generation", "decoding", "loading", "compiling"), 0.0)
    for fitted in fits:
        loop, decoder, *_ = fitted.programs
        together = min(devices, fitted.generator.sharing)
        copies = job.copies(together, fitted.generator.model_parallel)
        of_a_process = math.ceil(images / math.ceil(devices / together))
        batches = fitted.loras * math.ceil(of_a_process / (fitted.batch * copies))
        parts["texts"] += batches * fitted.encoding_seconds(together)
        parts["generation"] += batches * loop.seconds
        parts["decoding"] += batches * decoder.seconds
        stored = sum(fitted.generator.weights.values()) * fitted.generator.model_parallel
        parts["loading"] += fitted.loras * stored / job.assumed.storage_rate
        parts["compiling"] += sum(program.compile_seconds for program in fitted.programs)
    return Duration(devices, parts)


def _notes(fitted: Fit, job: Job) -> list[str]:
    """Notes on extrapolated programs, and on options to try where something does not fit."""
    config, staged, text = job.config, fitted.generator.staged, job.target.text
    weights = max(map(fitted.generator.resident, (IMAGE, TEXT)))
    if not fitted.batch:
        takes = "not even one image fits next to" if weights <= job.usable else "no room for"
        less = "" if config.dtype == "bfloat16" else "--dtype=bfloat16 or "
        if fitted.generator.encodings:
            less += "" if staged else "--encoders=staged or "
            less += (
                "devices with more memory (one has all networks; --model_parallel is for models that predict tokens)"
            )
        else:
            less += "more devices or devices with more memory"
        of_all = f"{weights / 1e9:.1f} GB of weights of {fitted.model} in {job.usable / 1e9:.1f}"
        return [f"{text}: {takes} {of_all}: take {less}"]
    left_out = ". Text encoders are not compiled" if fitted.generator.encodings else ""
    notes = of_all_blocks(text, fitted.programs[0], left_out)
    if (parts := fitted.generator.model_parallel) != config.model_parallel:
        notes.append(f"{text} needs --model_parallel={parts} at least for {fitted.model}, for which this plan is")
    if fitted.batch < config.batch_size:
        notes.append(f"{text} needs --batch_size={fitted.batch} for {fitted.model}")
    return notes


def make_generator(
    pipeline: Pipeline,
    mesh: Mesh,
    *,
    num_steps: int,
    guidance_scale: float,
    sampler: str | None = None,
    image_size: int | None = None,
    staged: bool = False,
    shallow: Sequence[tuple[tuple[int, ...], Pipeline]] = (),
) -> Generator:
    """The programs of `Pipeline.generate` for images from noise alone."""
    size = pipeline.check_image_size(image_size)
    guided, scale = pipeline.guided(guidance_scale)
    chosen = samplers.find_sampler(sampler, pipeline.schedule)
    text_function, text_params = guided.text_function()
    image_function, image_params = pipeline.image_function()
    ids = jax.tree.map(np.asarray, guided.tokenize([""], image_size=size))
    keys = jax.eval_shape(lambda: jax.random.key_data(random_numbers.seed_key(0)))
    plan = chosen.plan(pipeline.schedule_at(size), num_steps, evenly=pipeline.EVEN_LEVELS)
    # Shapes for one image.
    states = jax.eval_shape(text_function, text_params, ids)
    latents = jax.ShapeDtypeStruct((1, *pipeline.latent_shape(size)), np.float32)
    image = jax.ShapeDtypeStruct((1, size, size, 3), np.uint8)
    row = Rows(latents, states, None, jax.ShapeDtypeStruct((1, *keys.shape), keys.dtype) if chosen.is_random else None)
    empty = states if scale != 1 else None

    def loop(pipeline: Pipeline) -> Callable[[int], jax.stages.Lowered]:
        function, params = pipeline.denoiser_function()
        whole = parallel.replicated(mesh)
        steps = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole), plan)
        shared = Shared(_placed(params, mesh), steps, rows_like(empty, 1, whole), scale)
        return functools.partial(_lower, LatentGeneration(chosen, function), mesh, shared, row)

    decode = ImageDecoding(image_function.family, image_function.structure)
    lower_loop = loop(pipeline)
    lower_decoder = functools.partial(_lower, decode, mesh, _placed(image_params, mesh), latents)
    lower_texts = functools.partial(_lower_texts, text_function, text_params, ids, mesh)
    blocks = few_blocks.block_counts(pipeline.denoiser.config) if shallow else ()
    of_few = tuple((counts, loop(few)) for counts, few in shallow)

    def programs(items: int) -> tuple[Program, ...]:
        return (
            Program(f"loop of {len(plan.numbers)} steps", IMAGE, items, lower_loop, blocks, of_few),
            Program("decoder", IMAGE, items, lower_decoder),
            *([] if shallow else [Program("text encoders", TEXT, items * mesh.size, lower_texts)]),
        )

    def bytes_of_rows(items: int) -> int:
        """Bytes of noise, texts, latents and images on the first device, where the rows of all devices begin."""
        before = 0 if mesh.size == 1 else mesh.size * memory.array_bytes(row)
        return items * (before + memory.array_bytes((row, latents, image))) + memory.array_bytes(empty)

    networks = {"denoiser": pipeline.denoiser_function()[1], "autoencoder": image_params, "text encoders": text_params}
    weights = {name: memory.array_bytes(params) for name, params in networks.items()}
    return Generator(weights, programs, bytes_of_rows, 2 if scale != 1 else 1, mesh.size, staged)


def fit(generator: Generator, job: Job) -> tuple[int, tuple[Compiled, ...]]:
    """Images at once on each device, halved until they fit, and all programs; 0 and () if none fit."""
    batch = job.config.batch_size
    while batch:

        def needed(noun: str, items: int, own: int, batch: int = batch) -> int:
            return generator.resident(noun) + generator.others(batch) + own

        # Text encoders need memory where their program is left out, too. The loop takes longest to compile.
        has_room = all(needed(noun, batch, 0) <= job.usable for noun in (IMAGE, TEXT))
        results: list[Compiled] = []
        for program in reversed(generator.programs(batch)):
            result = job.fitting(program, needed) if has_room else None
            if result is None:
                break
            results.insert(0, result)
        else:
            return batch, tuple(results)
        batch //= 2
    return 0, ()


def _placed(params: Any, mesh: Mesh) -> Any:
    return placed(params, parallel.parameter_shardings(params, mesh))


def _lower(function: Any, mesh: Mesh, shared: Any, row: Any, items: int) -> jax.stages.Lowered:
    rows = rows_like(row, items * parallel.data_parallelism(mesh), parallel.split_axis(mesh))
    return pure_functions.call_on_rows.lower(function, mesh, shared, rows)


def _lower_texts(
    encode: Callable[..., Any], params: dict[str, list[Any]], ids: Any, mesh: Mesh, items: int
) -> jax.stages.Lowered:
    # On the first device alone, without a mesh, as `Pipeline.encode_texts`.
    first = SingleDeviceSharding(mesh.devices.flat[0])
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=first), params)

    def of_all(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((items, *leaf.shape[1:]), leaf.dtype, sharding=first)

    return pure_functions.call.lower(encode, params, jax.tree.map(of_all, ids))
