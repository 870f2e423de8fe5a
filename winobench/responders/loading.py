"""A model's name to the responder that it is: a language model, a text encoder, or recorded answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from winobench.base import registry
from winobench.base.errors import InputError
from winobench.base.registry import HOSTED, LANGUAGE_MODEL, PLUGGED_IN, RECORDED, ModelRef
from winobench.runs.requests import Responder
from winobench.scorers import loading as scorers

_OF_TEXTS = {
    "decoder": frozenset({"generation", "options"}),
    "t5": frozenset({"generation", "options"}),
    "bert": frozenset({"entailment"}),
    "clip": frozenset({"similarity"}),
}
ANSWERS: dict[str, frozenset[str]] = {
    **{kind: frozenset({"picture_match"}) for kind in scorers.SCORERS if kind != HOSTED},
    "vqa_score": frozenset({"picture_match", "picture_text", "picture_options", "picture_starts"}),
    **_OF_TEXTS,
}
"""Kind of checkpoint -> kinds of requests that it answers. Scorers answer about images, others about texts."""


def load_responder(
    model: str | ModelRef,
    dtype: str = "float32",
    *,
    revision: str | None = None,
    allow_pickle: bool = False,
    batch_size: int | None = None,
    int8: bool = False,
    model_parallel: int = 1,
    chat_template: str = "auto",
    seed: int = 0,
    hosted: Mapping[str, Any] | None = None,
    about_pictures: bool = False,
    sampling: Mapping[str, Any] | None = None,
) -> Responder:
    """Loads a model that answers questions.

    Args:
      model: a name in `winobench.base.registry.LANGUAGE_MODELS` or of a plugged-in model, a folder or a hub id in
        transformers' layout (LLaMA, Qwen3, LLaVA, T5, BERT after NLI training, CLIP), the name of a CLIP in
        `registry.MODELS`, the name of a hosted model such as ``openai:MODEL`` (see `winobench.responders.hosted`), or
        ``recorded:FILE.csv`` (see `winobench.responders.recorded`). Or what `resolve` made of it.
      dtype: ``float32`` or ``bfloat16``.
      revision: branch, tag or commit of a hub id.
      allow_pickle: whether ``.bin`` files may be read, by a restricted unpickler.
      batch_size: requests at once on each device. Chosen by their length when None.
      int8: whether dense layers have weights of 8 bits.
      model_parallel: devices that share one copy of the parameters.
      chat_template: one of `winobench.responders.prompts.TEMPLATES`.
      seed: of sampled texts.
      hosted: options of `winobench.responders.hosted.HostedModel`. Those that are None are left out.
      about_pictures: whether a vision-language model is to answer about images, by what it was made for: a CLIP, a BLIP
        or a diffusion model states which text matches. Those of VQAScore also write. A text-only model and a
        hosted one are loaded as otherwise.
      sampling: ``num_samples`` and ``timesteps`` of a scorer that has samples.

    Raises:
      InputError: the model does not exist, it answers no questions, or an option is not for its kind.
    """
    ref = resolve(model, about_pictures=about_pictures, revision=revision)
    if ref.kind == RECORDED:
        from winobench.responders import recorded

        return recorded.RecordedModel(ref.name)
    if ref.kind == HOSTED:
        from winobench.responders import hosted as hosted_models

        given = {option: value for option, value in (hosted or {}).items() if value is not None}
        return hosted_models.HostedModel(ref.name, **given)
    if ref.kind == PLUGGED_IN:
        return _plugged_in_responder(ref.name, about_pictures, seed, sampling)
    how = {"allow_pickle": allow_pickle, "batch_size": batch_size}
    if ref.kind in ("decoder", "t5", "vqa_score"):
        from winobench import parallel

        mesh = None if model_parallel == 1 else parallel.make_mesh(model_parallel=model_parallel)
        how |= {"mesh": mesh, "int8": int8, "revision": ref.revision, "seed": seed}
        if ref.kind == "vqa_score":
            from winobench.responders.vision_language import VisionLanguageModel

            return VisionLanguageModel.from_pretrained(ref.checkpoint, dtype, **how)
        from winobench.responders.language_model import LanguageModel

        return LanguageModel.from_pretrained(ref.source, dtype, chat_template=chat_template, **how)
    judges = ref.kind in scorers.SCORERS
    refused = {"int8": int8}
    if not judges:
        refused |= {"model_parallel": model_parallel != 1, "chat_template": chat_template != "auto"}
    for option, is_given in refused.items():
        if is_given:
            raise InputError(
                f"{option} is an option of models that write, but {ref.name!r} does not: leave it out",
                code="option-of-others",
            )
    if judges:
        return _matcher(scorers.load_scorer(ref, dtype, model_parallel=model_parallel, **how), seed, sampling)
    from winobench.responders import text_encoders

    encoder = text_encoders.NliEncoder if ref.kind == "bert" else text_encoders.ClipText
    return encoder.from_pretrained(ref.source, dtype, revision=ref.revision, **how)


def files_state(model: ModelRef) -> str | None:
    """`Source.state` of a checkpoint that answers questions."""
    from winobench.checkpoints import sources

    return sources.resolve(model.source, revision=model.revision).state()


def resolve(model: str | ModelRef, *, about_pictures: bool = False, revision: str | None = None) -> ModelRef:
    """As `registry.resolve`, with small files: one of ``ANSWERS``, ``HOSTED``, ``RECORDED`` or ``PLUGGED_IN``."""
    ref = check_responder_name(model, about_pictures=about_pictures, revision=revision)
    if not ref.is_checkpoint or ref.kind in _OF_TEXTS:
        return ref
    if about_pictures and _sees(ref):
        return scorers.resolve(ref)
    from winobench.checkpoints import language_models

    return dataclasses.replace(ref, kind=language_models.language_model_kind(ref.source, ref.revision))


def check_responder_name(
    model: str | ModelRef, *, about_pictures: bool = False, revision: str | None = None
) -> ModelRef:
    """Refuses a name that cannot be of a model that answers questions. Otherwise as `resolve`, but reads no file."""
    ref = registry.resolve(model, revision)
    if ref.kind == HOSTED:
        from winobench.responders.hosted import settings

        settings.split(ref.name)
    scores_only = ref.name in registry.MODELS and ref.name not in registry.LANGUAGE_MODELS
    if scores_only and ref.released.scorer != "contrastive" and not about_pictures:
        from winobench.responders.hosted import model_names

        raise InputError(
            f"{ref.name!r} is a model of images, which answers no questions: name a language model, such as one of"
            f" {', '.join(registry.LANGUAGE_MODELS)}, or {model_names()} or recorded:FILE.csv",
            code="wrong-kind-of-model",
        )
    return ref


def answered_kinds(
    model: str | ModelRef, *, about_pictures: bool = False, revision: str | None = None
) -> frozenset[str] | None:
    """The kinds of requests that a model answers. None where only the loaded model shows that. See `resolve`."""
    return ANSWERS.get(resolve(model, about_pictures=about_pictures, revision=revision).kind)


def _sees(ref: ModelRef) -> bool:
    if ref.kind is not None:
        return ref.kind != LANGUAGE_MODEL
    from winobench.checkpoints import sources, vision_language

    config = sources.resolve(ref.source, revision=ref.revision).find("config.json")
    return config is None or not vision_language.is_text_only(sources.read_json(config).get("model_type"))


def _plugged_in_responder(name: str, about_pictures: bool, seed: int, sampling: Mapping[str, Any] | None) -> Responder:
    model = registry.make_plugged_in(name)
    if isinstance(model, Responder):
        return model
    if about_pictures:
        return _matcher(model, seed, sampling)
    raise InputError(
        f"{name!r} is plugged in as a scorer of images, which answers no questions: name another model",
        code="wrong-kind-of-model",
    )


def _matcher(scorer: Any, seed: int, sampling: Mapping[str, Any] | None) -> Responder:
    """Any scorer of images and texts as a responder of the kind ``picture_match``."""
    from winobench.responders.matching import Matcher

    return Matcher(scorer, seed=seed, **{name: value for name, value in (sampling or {}).items() if value is not None})
