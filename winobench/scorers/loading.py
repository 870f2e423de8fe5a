"""A model's name to its kind, which small files settle, and to its scorer with the options that this kind takes."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from winobench.base import extensions, options, registry
from winobench.base.errors import InputError
from winobench.base.registry import HOSTED, LANGUAGE_MODEL, PLUGGED_IN, RECORDED, ModelRef

if TYPE_CHECKING:
    from winobench.scorers.base import SampledScorer, Scorer

SCORES, TEXTS, IMAGES = "scores", "texts", "images"
"""Uses of a model: scores of images and texts, answers about texts, or answers about images."""

DIFFUSION, SAMPLES, LIKELIHOOD, NORMALIZED = "diffusion", "samples", "likelihood", "normalized"
"""Groups of options: for diffusion models, for evaluations that sample noise, for models that predict tokens, and for
scores that are set against the score of the empty text."""


class Option(NamedTuple):
    """An option of models: the models that take it, in words, its values, and the value that means nothing."""

    owner: str
    allowed: options.Range | None = None
    usual: Any = None


_DICT = options.instance("a dict of options", dict).or_none()
OPTIONS: dict[str, Option] = {
    "variant": Option("models with weights", options.text(100).or_none()),  # a part of a file's name
    "revision": Option("models with weights"),
    "allow_pickle": Option("models with weights", options.flag(), False),
    "batch_size": Option("models with weights"),
    "model_parallel": Option("models that several devices can share", options.DEVICES, 1),
    "max_pixels": Option("vision-language models"),
    "int8": Option("models that write", options.flag(), False),
    "chat_template": Option("models that write", None, "auto"),
    DIFFUSION: Option("diffusion models", _DICT),
    SAMPLES: Option("diffusion models", _DICT),
    LIKELIHOOD: Option("models that predict the tokens of an image", _DICT),
    NORMALIZED: Option("models that generate images", _DICT),
    HOSTED: Option("hosted models", _DICT),
}
"""Name -> option or group of options. A class checks the values that are not checked here."""

FILES = frozenset({"revision", "allow_pickle", "batch_size"})
WEIGHTS = FILES | {"variant", "model_parallel"}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of models: its class, its name in messages, its files, its options, and the requests that it answers.

    ``path`` is of the form ``module:class``, or the name of an entry point of ``winobench.parts``.
    """

    path: str
    name: str = ""
    model_types: tuple[str, ...] | str = ()
    file: str | None = None
    pipelines: tuple[str, ...] = ()  # of diffusers, whose folders are of this kind
    takes: frozenset[str] = WEIGHTS  # options, groups, and single options of groups
    ignores: frozenset[str] = frozenset({HOSTED})  # may be given, but has no effect
    answers: frozenset[str] = frozenset({"picture_match"})

    def types(self) -> tuple[str, ...]:
        if not isinstance(self.model_types, str):
            return self.model_types
        module, _, name = self.model_types.partition(":")
        return tuple(getattr(importlib.import_module(module), name))

    def files(self) -> str:
        return ", ".join(filter(None, ("config.json" if self.model_types else None, self.file)))


PIPELINE, TOKENS = GENERATORS = ("diffusion_itm", "image_likelihood")
"""Keys of ``SCORERS`` whose models also generate images."""

SCORERS: dict[str, Kind] = {
    PIPELINE: Kind(
        "winobench.scorers.diffusion_itm:DiffusionITM",
        "diffusion pipeline",
        file="model_index.json",
        takes=WEIGHTS | {DIFFUSION, SAMPLES, NORMALIZED},
    ),
    TOKENS: Kind(
        "image_likelihood",
        "model that predicts the tokens of an image",
        # The last two are original layouts, which the scorer refuses.
        ("janus", "emu3", "glm_image", "multi_modality", "Emu3"),
        pipelines=("GlmImagePipeline",),
        takes=WEIGHTS | {LIKELIHOOD, NORMALIZED, "image_size"},
    ),
    "answers": Kind("answers_score", "model that answers questions about images", takes=WEIGHTS),
    "contrastive": Kind(
        "winobench.scorers.contrastive:Contrastive",
        "CLIP or SigLIP",
        # The scorer refuses the last one with a better sentence.
        ("clip", "siglip", "siglip2"),
        "open_clip_config.json",
        answers=frozenset({"picture_match", "picture_similarity"}),
    ),
    "itm_head": Kind("winobench.scorers.itm_head:ItmHead", "BLIP", ("blip",)),
    "vqa_score": Kind(
        "winobench.scorers.vqa_score:VQAScore",
        "vision-language model",
        "winobench.checkpoints.vision_language:NETWORKS",
        takes=WEIGHTS | {"max_pixels"},
    ),
    HOSTED: Kind(
        "winobench.responders.vqa_score:HostedVQAScore",
        "hosted model",
        takes=frozenset({HOSTED}),
        ignores=frozenset({"model_parallel"}),
    ),
    PLUGGED_IN: Kind(
        "", takes=frozenset({SAMPLES, NORMALIZED}), ignores=frozenset({HOSTED, "allow_pickle", "batch_size"})
    ),
}
"""Kind -> the scorer's class. Nothing here imports it."""


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
    likelihood: dict[str, Any] | None = None,
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
      likelihood: options of models that predict the tokens of an image, such as ``guidance``.
      hosted: options of a hosted model (`winobench.responders.hosted.HostedModel`), of no meaning for others.

    Raises:
      InputError: the model does not exist, its kind is not known, or an option is for another kind.
    """
    given: dict[str, Any] = {"variant": variant, "allow_pickle": allow_pickle, "batch_size": batch_size}
    given |= {"max_pixels": max_pixels}
    given |= {"model_parallel": model_parallel, DIFFUSION: diffusion, LIKELIHOOD: likelihood, HOSTED: hosted}
    ref, given = _by_answers(resolve(model, SCORES, revision), given)
    if ref.kind == PLUGGED_IN:
        taken(ref, SCORERS[ref.kind], given)
        return registry.make_plugged_in(ref.name)
    return load(ref, SCORERS[ref.kind or ""], dtype, given)


def _by_answers(ref: ModelRef, given: dict[str, Any]) -> tuple[ModelRef, dict[str, Any]]:
    """The model as one that answers questions where ``scored_by`` says so, and the other options."""
    likelihood = dict(_DICT.check(LIKELIHOOD, given.get(LIKELIHOOD), "wrong-type") or {})
    if ref.kind not in ("image_likelihood", "answers") or likelihood.pop("scored_by", None) != "answers":
        return ref, given
    if likelihood:
        raise InputError(
            f"scored_by is answers, but {min(likelihood)} is an option of the likelihood: leave one of them out",
            code="option-of-others",
        )
    return dataclasses.replace(ref, kind="answers"), {**given, LIKELIHOOD: {}}


def load(ref: ModelRef, kind: Kind, dtype: str, given: Mapping[str, Any]) -> Any:
    """Loads a model as the class of a kind. ``given`` are values of ``OPTIONS``, and further options of the class."""
    keywords = taken(ref, kind, given)
    if "model_parallel" in keywords:
        import jax

        from winobench import parallel

        keywords["mesh"] = parallel.make_mesh(jax.local_devices(), model_parallel=keywords.pop("model_parallel"))
    if HOSTED in keywords:
        keywords["api"] = keywords.pop(HOSTED)
    released = ref.released.options if ref.released is not None else {}
    cls = extensions.load(kind.path) if ":" in kind.path else extensions.find(extensions.PARTS, kind.path)
    return cls.from_pretrained(ref.checkpoint, dtype, **{**released, **keywords})


def taken(ref: ModelRef, kind: Kind, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options that a kind takes, but for usual values. Refuses options of other kinds."""
    keywords: dict[str, Any] = {}
    for name, value in {**given, "revision": ref.revision}.items():
        option = OPTIONS.get(name, Option(""))
        if option.allowed is not None:
            value = option.allowed.check(name, value, "wrong-type" if option.allowed is _DICT else "bad-value")
        if option.allowed is _DICT and name != HOSTED:
            values = {key: item for key, item in (value or {}).items() if item is not None}
        else:
            values = {} if value is None or value == option.usual else {name: value}
        if not values or name in kind.ignores:
            continue
        if name in OPTIONS and name not in kind.takes and (others := values.keys() - kind.takes):
            raise InputError(
                f"{min(others)} is an option of {option.owner}, but {ref.name!r} is none: leave it out",
                code="option-of-others",
            )
        keywords |= values
    return keywords


def resolve(model: str | ModelRef, wants: str = SCORES, revision: str | None = None) -> ModelRef:
    """Resolves a model's name by small files, and settles its kind for one of ``SCORES``, ``TEXTS`` and ``IMAGES``.

    The kind is one of ``SCORERS``, ``RECORDED``, or a kind of network of `winobench.checkpoints.language_models`.
    """
    ref = registry.resolve(model, revision)
    if wants == SCORES and ref.kind in (LANGUAGE_MODEL, RECORDED):
        raise InputError(
            f"{ref.name!r} is a language model, which is text-only: judge it with --config=winoviz or --config=wscplus",
            code="wrong-kind-of-model",
        )
    scores_only = ref.name in registry.MODELS and ref.name not in registry.LANGUAGE_MODELS
    if wants == TEXTS and scores_only and ref.released is not None and ref.released.scorer != "contrastive":
        raise InputError(
            f"{ref.name!r} is a model of images, which answers no questions: name a language model, such as one of"
            f" {', '.join([*registry.LANGUAGE_MODELS, *registry.forms_with_prefix()])}",
            code="wrong-kind-of-model",
        )
    is_settled = ref.kind not in (None, LANGUAGE_MODEL) and (wants != TEXTS or ref.kind not in SCORERS)
    if is_settled or not ref.is_checkpoint:
        return ref
    if wants == SCORES or (wants == IMAGES and _sees(ref)):
        return dataclasses.replace(ref, kind=checkpoint_kind(ref.source, ref.revision))
    from winobench.checkpoints import language_models

    return dataclasses.replace(ref, kind=language_models.language_model_kind(ref.source, ref.revision))


def _sees(ref: ModelRef) -> bool:
    if ref.kind == LANGUAGE_MODEL:
        return False
    from winobench.checkpoints import sources, vision_language

    config = sources.resolve(ref.source, revision=ref.revision).find("config.json")
    return config is None or not vision_language.is_text_only(sources.read_json(config).get("model_type"))


def check_scorer(
    model: str | ModelRef,
    dtype: str = "float32",
    *,
    revision: str | None = None,
    timesteps: str | Sequence[int] | None = None,
    deeply: bool = True,
    **given: Any,
) -> ModelRef:
    """Checks options of ``OPTIONS`` for a model by small files."""
    options.DTYPE.check("dtype", dtype)
    ref, given = _by_answers(resolve(model, SCORES, revision), given)
    kind = SCORERS[ref.kind or ""]
    keywords = taken(ref, kind, given)
    if ref.kind == PIPELINE and deeply:
        _check_pipeline(ref, keywords, timesteps)
    elif LIKELIHOOD in kind.takes and deeply:
        extensions.find(extensions.PARTS, kind.path).check(ref.checkpoint, **keywords)
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
        timestep = options.NOISE_LEVEL if description.schedule.is_continuous else options.whole(0, total - 1)
        options.items(timestep).check(f"timesteps for {ref.name!r}", list(timesteps))
    if (size := given.get("image_size")) is not None:
        denoiser = description.configs[description.family.DENOISER]
        factor = description.autoencoder_config.downsampling * description.family.latents_a_side(denoiser)
        if size % factor:
            raise InputError(
                f"image_size is {size}, but {ref.name!r} needs a multiple of {factor}", code="not-a-multiple"
            )
        folders.check_encoding(description.autoencoder_config, size, 1, jax.local_devices()[0])


def checkpoint_kind(source: str, revision: str | None = None) -> str:
    """Key of ``SCORERS`` for a folder or hub repository."""
    from winobench.checkpoints import sources

    folder = sources.resolve(source, revision=revision)
    index = folder.find("model_index.json")
    pipeline = sources.read_json(index).get("_class_name") if index is not None else None
    for name, kind in SCORERS.items():
        if isinstance(pipeline, str) and pipeline in kind.pipelines:
            return name
    for name, kind in SCORERS.items():
        if kind.file is not None and folder.find(kind.file) is not None:
            return name
    config = folder.find("config.json")
    model_type = sources.read_json(config).get("model_type") if config is not None else None
    for name, kind in SCORERS.items():
        if model_type in kind.types():
            return name
    hint = folder.hint()
    if config is None and hint:
        raise InputError(f"model_index.json of {folder} is not available: {hint}", code="hub-not-reached")
    folder.refuse_without_config()
    advice = ""
    if config is not None:
        from winobench.checkpoints import vision_language

        vision_language.refuse_text_only(config, model_type)
        sees = any("vision" in key or "image" in key for key in sources.read_json(config))
        advice = f", or, if it writes answers, {vision_language.BY_A_SERVER}" if sees else ""
    reason = f"its config.json is of a {model_type!r}" if config is not None else "it has none of their files"
    *others, last = (f"{kind.name} ({kind.files()})" for kind in SCORERS.values() if kind.files())
    raise InputError(
        f"{folder} is not a {', '.join(others)} or {last}: {reason}. Name another model{advice}",
        code="unknown-kind-of-model",
    )
