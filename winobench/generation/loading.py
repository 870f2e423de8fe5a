"""Finds the pipelines and LoRAs that names refer to.

What cannot generate is refused before any weights are read.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench.base import extensions, options, registry
from winobench.base.errors import InputError
from winobench.base.files import digest
from winobench.generation.generate import Generator, Settings
from winobench.scorers import loading as scorers

if TYPE_CHECKING:
    from winobench.diffusion.pipeline import Pipeline

_GENERATION = "token_generation"  # the entry point of models that predict tokens


def make_generators(
    models: Sequence[str],
    loras: Sequence[str | None] = (None,),
    *,
    settings: Settings | None = None,
    dtype: str = "float32",
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    lora_scale: float = 1.0,
    embeddings: Sequence[str] | None = None,
    pipeline_options: Mapping[str, Any] | None = None,
    encoders: str = "resident",
    backend: str = "auto",
    hosted: Mapping[str, Any] | None = None,
    model_parallel: int = 1,
) -> list[Generator]:
    """The pipelines and hosted models that generate images.

    LoRAs are as many as models, or one for all of them, or several for one model. ``dtype`` is the denoiser's: texts
    are encoded and images decoded in float32, as in scoring. Encoders that are ``staged`` and not ``resident`` are
    copied to the devices for each batch: the same images with less memory. ``hosted`` are options of hosted models
    (`winobench.responders.hosted.settings.ImageSettings`). Such models are refused when it is None. ``model_parallel``:
    devices of this process that share one copy of a model that predicts tokens.
    """
    lora_scale = options.SCALE.check("lora_scale", lora_scale)
    if lora_scale != 1 and not any(loras):
        raise InputError(f"lora_scale is {lora_scale!r}, but no LoRA is named: name one (lora), or leave it out")
    generated_by = pairs(models, loras)
    if hosted is None and (remote := next(filter(registry.api_of, models), None)):
        raise InputError(
            f"{remote!r} is behind an API, without weights here: name a diffusion model", code="wrong-kind-of-model"
        )
    settings = settings or Settings()
    refs = {model: scorers.resolve(model, revision=revision) for model in dict.fromkeys(models)}
    of_pipelines: dict[str, Any] = {"pipeline_options": dict(pipeline_options or {}), "backend": backend}
    more = {**of_pipelines, "embeddings": embeddings, "encoders": encoders}
    for ref in refs.values():
        if ref.kind != scorers.TOKENS:
            _check(ref, settings, dtype, variant, **of_pipelines)
            check_alone(ref, model_parallel)
    _check_tokens(refs, generated_by, settings, dtype, variant, more)
    named = list(dict.fromkeys(lora for _, lora in generated_by if lora is not None))
    adapters = _adapters(refs, generated_by, backend=backend, allow_pickle=allow_pickle)
    lora_labels = dict(zip(named, registry.model_labels(named, registry.lora_label), strict=True))
    own = registry.model_labels([*refs], lambda name: registry.model_label(refs[name].title))
    labels = dict(zip(refs, own, strict=True))
    words = [
        extensions.find(extensions.PARTS, "textual_inversions").read_word(path, allow_pickle=allow_pickle)
        for path in embeddings or ()
    ]
    more = {"variant": variant, "revision": revision, "pipeline_options": pipeline_options, "embeddings": embeddings}
    generators = []
    for model, lora in generated_by:
        if (ref := refs[model]).kind == registry.HOSTED:
            generators.append(_hosted(ref, labels[model], settings, hosted or {}))
            continue
        if ref.kind == scorers.TOKENS:
            generators.append(_of_tokens(ref, labels[model], settings, dtype, variant, model_parallel))
            continue
        load = functools.partial(
            load_pipeline,
            ref,
            dtype,
            adapters=None if lora is None else adapters.get((model, lora)),
            lora_scale=lora_scale,
            words=words,
            variant=variant,
            on_host=encoders == "staged",
            backend=backend,
            allow_pickle=allow_pickle,
            **dict(pipeline_options or {}),
        )
        label, name, of_lora = labels[model], labels[model] if ref.is_folder else model, None
        if lora is not None:
            of_lora = {"name": lora_labels[lora], "sha256": adapters[model, lora].sha256, "scale": lora_scale}
            scale = "" if lora_scale == 1 else f" x {lora_scale:g}"
            label, name = f"{label}+{lora_labels[lora]}", f"{name} + {lora_labels[lora]}{scale}"
        named_more = {key: value for key, value in more.items() if value}
        files = functools.partial(_files, ref, [backend, allow_pickle, [word.digest() for word in words]])
        generators.append(Generator(label, name, load, dtype, of_lora, named_more, files))
    return generators


def _adapters(
    refs: Mapping[str, registry.ModelRef], generated_by: Sequence[tuple[str, str | None]], **how: Any
) -> dict[tuple[str, str], Any]:
    """The LoRAs of models, by both names."""
    from winobench.diffusion import families  # late: names that are wrong are answered at once

    return {
        (model, lora): families.read_lora(refs[model].checkpoint, lora, revision=refs[model].revision, **how)
        for model, lora in generated_by
        if lora is not None
    }


def _hosted(ref: registry.ModelRef, label: str, settings: Settings, given: Mapping[str, Any]) -> Generator:
    """A model behind an API, whose client is set up at once."""
    given, side = {name: value for name, value in given.items() if value is not None}, settings.image_size
    if side is not None and given.setdefault("size", f"{side}x{side}") != f"{side}x{side}":
        raise InputError(f"image_size is {side}, but size is {given['size']!r}: give one of them", code="bad-value")
    model = extensions.find(extensions.PARTS, "hosted_images")(ref.name, **given)
    return Generator(label, ref.title, lambda: model, files=lambda: digest(model.fingerprint()), hosted=model)


def _of_tokens(
    ref: registry.ModelRef, label: str, settings: Settings, dtype: str, variant: str | None, model_parallel: int
) -> Generator:
    """A model that predicts the tokens of an image."""
    settings = settings.of_tokens()
    kind = dataclasses.replace(scorers.SCORERS[ref.kind or ""], path=_GENERATION)
    how = {"image_size": settings.image_size, "variant": variant, "model_parallel": model_parallel}
    load = functools.partial(scorers.load, ref, kind, dtype, how)
    more = {name: value for name, value in {"variant": variant, "revision": ref.revision}.items() if value}
    name, files = label if ref.is_folder else ref.name, functools.partial(_files, ref, [])
    return Generator(label, name, load, dtype, None, more, files, settings=settings, sharing=model_parallel)


def _files(ref: registry.ModelRef, how: Any) -> str | None:
    """The state of a pipeline's files, and how it is made of them. Its LoRA's content is part of the identity."""
    from winobench.checkpoints import sources

    state = sources.resolve(ref.source, revision=ref.revision).state()
    return None if state is None else digest([state, how])


def load_pipeline(
    ref: registry.ModelRef,
    dtype: str,
    *,
    adapters: Any = None,
    lora_scale: float = 1.0,
    words: Sequence[Any] = (),
    **keywords: Any,
) -> Pipeline:
    """A pipeline with its LoRA added to the weights, and with learned words. Others as `Pipeline.from_pretrained`."""
    from winobench.diffusion import families

    # As the scorers load it, so that a model is the same one, by its fingerprint, when it generates and when it judges.
    keywords |= {"encoder_dtype": "float32", "revision": ref.revision}
    if adapters is None:
        pipeline = families.load_pipeline(ref.checkpoint, dtype, **keywords)
    else:
        pipeline, _ = families.load_with_lora(ref.checkpoint, dtype, adapters, scale=lora_scale, **keywords)
    for word in words:
        extensions.find(extensions.PARTS, "textual_inversions").add_word(pipeline, word)
    return pipeline


def pairs(models: Sequence[str], loras: Sequence[str | None]) -> list[tuple[str, str | None]]:
    """Pairs of model and LoRA."""
    if not models or not loras:
        raise InputError("no model is named: name at least one")
    if len(models) > 1 and len(loras) > 1 and len(models) != len(loras):
        raise InputError(
            f"{len(models)} models and {len(loras)} LoRAs do not fit: name one LoRA, or none, for each model, or one"
            " for all"
        )
    number = max(len(models), len(loras))
    models = list(models) * number if len(models) == 1 else models
    loras = list(loras) * number if len(loras) == 1 else loras
    chosen = list(zip(models, loras, strict=True))
    for pair in chosen:
        if chosen.count(pair) > 1:
            raise InputError(f"the model {pair[0]!r} is named twice{' with this LoRA' * bool(pair[1])}: name it once")
        if pair[1] is not None and registry.api_of(pair[0]):
            raise InputError(
                f"lora is for diffusion models, so that it has no effect on {pair[0]!r}: leave it out, or write none"
                " for this model",
                code="option-of-others",
            )
    return chosen


def _check(
    ref: registry.ModelRef,
    settings: Settings,
    dtype: str,
    variant: str | None,
    pipeline_options: Mapping[str, Any],
    backend: str,
) -> None:
    """Refuses a model that does not generate images, or not with these options, without reading its weights."""
    if ref.kind == registry.HOSTED:
        more = {"pipeline_options": pipeline_options or None}
        scorers.taken(ref, scorers.SCORERS[ref.kind], {"variant": variant, scorers.DIFFUSION: more})
        return
    if ref.kind != scorers.PIPELINE:
        raise InputError(f"{ref.name!r} judges images, but generates none: name a diffusion model")
    diffusion = {"image_size": settings.image_size, "pipeline_options": pipeline_options, "backend": backend}
    scorers.check_scorer(ref, dtype, variant=variant, diffusion=diffusion)
    from winobench.diffusion import families

    description = families.read_description(ref.source, revision=ref.revision, backend=backend)
    description.family.check_sampler(settings.sampler, description.schedule)
    if settings.num_steps is not None:
        total = description.schedule.num_train_timesteps
        options.whole(1, total).check(f"num_steps for {ref.name!r}", settings.num_steps)


def check_alone(ref: registry.ModelRef, model_parallel: int) -> None:
    """Refuses devices that share a copy of a model, where each device has all of it."""
    if model_parallel != 1:
        message = (
            f"model_parallel is {model_parallel!r}, but each device has all networks of {ref.name!r}: leave it out"
        )
        raise InputError(message, code="option-of-others")


def _check_tokens(
    refs: Mapping[str, registry.ModelRef],
    generated_by: Sequence[tuple[str, str | None]],
    settings: Settings,
    dtype: str,
    variant: str | None,
    of_pipelines: Mapping[str, Any],
) -> None:
    """The same of all models that predict tokens. ``of_pipelines``: options that only diffusion models have."""
    usual = {"backend": "auto", "encoders": "resident"}
    given = {name: value or None for name, value in of_pipelines.items() if value != usual.get(name)}
    if all(ref.kind != scorers.PIPELINE for ref in refs.values()):  # otherwise they are for that model
        given |= {"num_steps": settings.num_steps, "sampler": settings.sampler}
    for model, lora in generated_by:
        if (ref := refs[model]).kind == scorers.TOKENS:
            of_diffusion, size = {**given, "lora": lora}, {"image_size": settings.image_size}
            generation = extensions.find(extensions.PARTS, _GENERATION)
            generation.check_source(ref.checkpoint, ref.revision, negative_prompt=settings.negative_prompt)
            scorers.check_scorer(ref, dtype, variant=variant, diffusion=of_diffusion, likelihood=size)
