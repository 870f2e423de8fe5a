"""A model's name to the scorer of images and texts that it is, and to those that other packages plug in."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench.base import options, registry
from winobench.base.errors import InputError
from winobench.base.registry import HOSTED, LANGUAGE_MODEL, PLUGGED_IN, RECORDED, ModelRef

if TYPE_CHECKING:
    from winobench.scorers.base import SampledScorer, Scorer


@dataclasses.dataclass(frozen=True)
class Kind:
    path: str
    name: str
    model_types: tuple[str, ...] | str = ()
    file: str | None = None

    def types(self) -> tuple[str, ...]:
        if not isinstance(self.model_types, str):
            return self.model_types
        module, _, name = self.model_types.partition(":")
        return tuple(getattr(importlib.import_module(module), name))

    def files(self) -> str:
        return ", ".join(filter(None, ("config.json" if self.model_types else None, self.file)))


SCORERS: dict[str, Kind] = {
    "diffusion_itm": Kind(
        "winobench.scorers.diffusion_itm:DiffusionITM", "diffusion pipeline", file="model_index.json"
    ),
    "contrastive": Kind(
        "winobench.scorers.contrastive:Contrastive",
        "CLIP or SigLIP",
        # The scorer refuses the last one with a better sentence.
        ("clip", "siglip", "siglip2"),
        "open_clip_config.json",
    ),
    "itm_head": Kind("winobench.scorers.itm_head:ItmHead", "BLIP", ("blip",)),
    "vqa_score": Kind(
        "winobench.scorers.vqa_score:VQAScore",
        "vision-language model",
        "winobench.checkpoints.vision_language:NETWORKS",
    ),
    HOSTED: Kind("winobench.responders.vqa_score:HostedVQAScore", "hosted model"),
}


def load_scorer(
    model: str | ModelRef,
    dtype: str = "float32",
    *,
    variant: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    batch_size: int | str | None = None,
    model_parallel: int = 1,
    max_pixels: int | None = None,
    diffusion: dict[str, Any] | None = None,
    hosted: dict[str, Any] | None = None,
) -> Scorer | SampledScorer:
    """Loads a model and makes it a scorer.

    Args:
      model: a name in `registry.MODELS` or of a plugged-in scorer, a folder, a hub id, or the name of a hosted model,
        such as ``openai:MODEL``. Or what `resolve` made of it.
      dtype: ``float32`` or ``bfloat16``.
      variant: of the weight files, such as ``fp16``.
      revision: branch, tag or commit of a hub id, where ``model`` is a name.
      allow_pickle: whether ``.bin`` files may be read, by a restricted unpickler.
      batch_size: of the scorer. Chosen for the kind of device when None. Diffusion models also take ``search``.
      model_parallel: devices of this process that share one copy of the parameters; 1 gives each its own.
      max_pixels: of vision-language models images of any shape: see `winobench.VQAScore.from_pretrained`.
      diffusion: options that only diffusion models have, such as ``lora`` and ``lora_scale``. Those that are None are
        left out.
      hosted: options of a hosted model (`winobench.responders.hosted.HostedModel`), of no meaning for others.

    Raises:
      InputError: the model does not exist, its kind is not known, or an option is for another kind.
    """
    allow_pickle = options.flag().check("allow_pickle", allow_pickle)
    a_dict = options.instance("a dict of options", dict).or_none()
    hosted = a_dict.check("hosted", hosted, "wrong-type")
    diffusion = a_dict.check("diffusion", diffusion, "wrong-type")
    model_parallel = options.DEVICES.check("model_parallel", model_parallel)
    given = {option: value for option, value in (diffusion or {}).items() if value is not None}
    ref = resolve(model, revision)
    _check_options(ref, given, max_pixels, variant=variant, model_parallel=model_parallel)
    if ref.kind == PLUGGED_IN:
        return registry.make_plugged_in(ref.name)
    if ref.kind == HOSTED:
        given["api"], model_parallel = hosted, 1
    keywords = {**(ref.released.options if ref.released is not None else {}), **given}
    if max_pixels is not None:
        keywords["max_pixels"] = max_pixels
    if model_parallel != 1:
        import jax

        from winobench import parallel

        keywords["mesh"] = parallel.make_mesh(jax.local_devices(), model_parallel=model_parallel)
    module, _, cls = SCORERS[ref.kind].path.partition(":")
    return getattr(importlib.import_module(module), cls).from_pretrained(
        ref.checkpoint,
        dtype,
        variant=variant,
        revision=ref.revision,
        allow_pickle=allow_pickle,
        batch_size=batch_size,
        **keywords,
    )


_LONGEST_VARIANT = 100  # it is a part of a file's name


def resolve(model: str | ModelRef, revision: str | None = None) -> ModelRef:
    """Resolves a model that scores images, by small files. Its kind is one of ``SCORERS``, or ``PLUGGED_IN``."""
    ref = registry.resolve(model, revision)
    if ref.kind in (LANGUAGE_MODEL, RECORDED):
        raise InputError(
            f"{ref.name!r} is a language model, which sees no images: judge it with --config=winoviz or"
            " --config=wscplus",
            code="wrong-kind-of-model",
        )
    return ref if ref.kind else dataclasses.replace(ref, kind=checkpoint_kind(ref.source, ref.revision))


def check_scorer(
    model: str | ModelRef,
    dtype: str = "float32",
    *,
    variant: str | None = None,
    revision: str | None = None,
    model_parallel: int = 1,
    max_pixels: int | None = None,
    diffusion: Mapping[str, Any] | None = None,
    timesteps: str | Sequence[int] | None = None,
    of_samples: Mapping[str, Any] | None = None,
    deeply: bool = True,
) -> ModelRef:
    """Checks a model's options by small files. ``of_samples``: an evaluation's options for scorers with noise."""
    options.DTYPE.check("dtype", dtype)
    given = {option: value for option, value in (diffusion or {}).items() if value is not None}
    ref = resolve(model, revision)
    _check_options(ref, given, max_pixels, variant=variant, model_parallel=model_parallel)
    if ref.kind not in ("diffusion_itm", PLUGGED_IN):
        _refuse(ref.name, dict(of_samples or {}))
    elif ref.kind == "diffusion_itm" and deeply:
        _check_pipeline(ref, given, timesteps)
    return ref


def _check_pipeline(ref: ModelRef, given: Mapping[str, Any], timesteps: str | Sequence[int] | None) -> None:
    import jax

    from winobench.diffusion import families, folders

    description = families.read_description(
        ref.source,
        revision=ref.revision,
        settings=given.get("pipeline_options"),
        backend=given.get("backend", families.AUTO),
    )
    total = description.schedule.num_train_timesteps
    chosen = given.get("timestep_range")
    if chosen is not None and chosen != options.ALL:
        options.span(total).check(f"timestep_range of {ref.name!r}", chosen)
    if timesteps is not None and not isinstance(timesteps, str):
        one = options.NOISE_LEVEL if description.schedule.is_continuous else options.whole(0, total - 1)
        options.items(one).check(f"timesteps for {ref.name!r}", list(timesteps))
    if (size := given.get("image_size")) is not None:
        denoiser = description.configs[description.family.DENOISER]
        factor = description.autoencoder_config.downsampling * description.family.latents_a_side(denoiser)
        if size % factor:
            raise InputError(
                f"image_size is {size}, but {ref.name!r} needs a multiple of {factor}", code="not-a-multiple"
            )
        folders.check_encoding(description.autoencoder_config, size, 1, jax.local_devices()[0])


def _check_options(ref: ModelRef, given: dict[str, Any], max_pixels: int | None, **others: Any) -> None:
    options.text(_LONGEST_VARIANT).or_none().check("variant", others["variant"])
    if max_pixels is not None and ref.kind != "vqa_score":
        raise InputError(
            f"max_pixels is an option of vision-language models, but {ref.name!r} is none: leave it out",
            code="option-of-others",
        )
    if ref.kind == PLUGGED_IN:
        others |= {"revision": ref.revision, "model_parallel": others["model_parallel"] != 1}
        _refuse(ref.name, given | {option: value for option, value in others.items() if value})
    elif ref.kind != "diffusion_itm":
        _refuse(ref.name, given)


def checkpoint_kind(source: str, revision: str | None = None) -> str:
    """Which of ``SCORERS`` a folder or hub repository is for."""
    from winobench.checkpoints import sources

    place = sources.resolve(source, revision=revision)
    for name, kind in SCORERS.items():
        if kind.file is not None and place.find(kind.file) is not None:
            return name
    config = place.find("config.json")
    model_type = sources.read_json(config).get("model_type") if config is not None else None
    for name, kind in SCORERS.items():
        if model_type in kind.types():
            return name
    hint = place.hint()
    if config is None and hint:
        raise InputError(f"model_index.json of {place} is not at hand: {hint}", code="hub-not-reached")
    place.refuse_without_config()
    if config is not None:
        from winobench.checkpoints import vision_language

        vision_language.refuse_text_only(config, model_type)
    found = f"its config.json is of a {model_type!r}" if config is not None else "it has none of their files"
    *others, last = (f"{kind.name} ({kind.files()})" for kind in SCORERS.values() if kind.files())
    raise InputError(
        f"{place} is not a {', '.join(others)} or {last}: {found}. Name another model", code="unknown-kind-of-model"
    )


def _refuse(name: str, options: dict[str, Any]) -> None:
    if options:
        raise InputError(
            f"{next(iter(options))} is an option of diffusion models, but {name!r} is none: leave it out",
            code="option-of-others",
        )
