"""A model's name to the responder that it is: a language model, a text encoder, or recorded answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from winobench.base import registry
from winobench.base.errors import InputError
from winobench.base.registry import HOSTED, PLUGGED_IN, RECORDED, ModelRef
from winobench.runs.requests import SEVERAL, ImageTurn, Responder
from winobench.scorers import loading
from winobench.scorers.loading import FILES, IMAGES, TEXTS, WEIGHTS, Kind

_WRITES = WEIGHTS | {"int8", "seed"}
_LANGUAGE_MODEL = Kind(
    "winobench.responders.language_model:LanguageModel",
    takes=_WRITES | {"chat_template"},
    answers=frozenset({"generation", "options"}),
)
_ENCODER: dict[str, Any] = {"takes": FILES, "ignores": frozenset({"seed"})}
RESPONDERS: dict[str, Kind] = {
    "decoder": _LANGUAGE_MODEL,
    "t5": _LANGUAGE_MODEL,
    "bert": Kind("winobench.responders.text_encoders:NliEncoder", answers=frozenset({"entailment"}), **_ENCODER),
    "clip": Kind("winobench.responders.text_encoders:ClipText", answers=frozenset({"similarity"}), **_ENCODER),
    "vqa_score": Kind(
        "winobench.responders.vision_language:VisionLanguageModel",
        takes=_WRITES | {"max_pixels"},
        ignores=frozenset({"chat_template"}),
        answers=SEVERAL | {"picture_match", "picture_text", "picture_turn", "picture_options", "picture_starts"},
    ),
    "image_likelihood": Kind(
        "image_answers",
        takes=WEIGHTS | {"seed"},
        ignores=frozenset({"chat_template"}),
        answers=frozenset({"picture_match", "picture_text", "picture_options", "picture_starts"}),
    ),
}
"""Kind of checkpoint -> the responder's class. Scorers of other kinds answer by way of a `matching.Matcher`."""

ANSWERS = {
    name: kind.answers for name, kind in {**loading.SCORERS, **RESPONDERS}.items() if name not in (HOSTED, PLUGGED_IN)
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
    max_pixels: int | None = None,
    chat_template: str = "auto",
    seed: int = 0,
    hosted: Mapping[str, Any] | None = None,
    about_images: bool = False,
    sampling: Mapping[str, Any] | None = None,
) -> Responder:
    """Loads a model that answers questions.

    Args:
      model: a name in `winobench.base.registry.LANGUAGE_MODELS` or of a plugged-in model, a folder or a hub id in
        transformers' layout (LLaMA, Qwen2, Qwen3, LLaVA, T5, BERT after NLI training, CLIP), the name of a CLIP in
        `registry.MODELS`, the name of a hosted model such as ``openai:MODEL`` (see `winobench.responders.hosted`), or
        ``recorded:FILE.csv`` (see `winobench.responders.recorded`). Or what `resolve` made of it.
      dtype: ``float32`` or ``bfloat16``.
      revision: branch, tag or commit of a hub id.
      allow_pickle: whether ``.bin`` files may be read, by a restricted unpickler.
      batch_size: requests at once on each device. Chosen by their length when None.
      int8: whether dense layers have weights of 8 bits.
      model_parallel: devices that share one copy of the parameters.
      max_pixels: of vision-language models for images of any shape: see `winobench.VQAScore.from_pretrained`.
      chat_template: one of `winobench.responders.prompts.TEMPLATES`.
      seed: of sampled texts.
      hosted: options of `winobench.responders.hosted.HostedModel`. Those that are None are left out.
      about_images: whether a vision-language model is to answer about images, by its kind: a CLIP, a BLIP
        or a diffusion model states which text matches. Those of VQAScore also write. A text-only model and a
        hosted one are loaded as otherwise.
      sampling: ``num_samples`` and ``timesteps`` of a scorer that has samples.

    Raises:
      InputError: the model does not exist, it answers no questions, or an option is not for its kind.
    """
    ref = loading.resolve(model, IMAGES if about_images else TEXTS, revision)
    if ref.kind not in RESPONDERS:
        loading.taken(ref, Kind(""), {"max_pixels": max_pixels})
    if ref.kind == RECORDED:
        from winobench.responders import recorded

        return recorded.RecordedModel(ref.name)
    if ref.kind == HOSTED:
        from winobench.responders import hosted as hosted_models

        return hosted_models.HostedModel(ref.name, **_given(hosted))
    if ref.kind == PLUGGED_IN:
        responder = registry.make_plugged_in(ref.name)
        if isinstance(responder, Responder):
            return responder
        if about_images:
            return _matcher(responder, seed, sampling)
        raise InputError(
            f"{ref.name!r} is plugged in as a scorer of images, which answers no questions: name another model",
            code="wrong-kind-of-model",
        )
    given = {"allow_pickle": allow_pickle, "batch_size": batch_size, "model_parallel": model_parallel, "int8": int8}
    given["max_pixels"] = max_pixels
    if ref.kind in RESPONDERS:
        return loading.load(ref, RESPONDERS[ref.kind], dtype, given | {"chat_template": chat_template, "seed": seed})
    return _matcher(loading.load(ref, loading.SCORERS[ref.kind or ""], dtype, given), seed, sampling)


def files_state(model: ModelRef) -> str | None:
    """`Source.state` of a checkpoint that answers questions."""
    from winobench.checkpoints import sources

    return sources.resolve(model.source, revision=model.revision).state()


def answered_kinds(model: str | ModelRef, wants: str = IMAGES) -> frozenset[str] | None:
    """The kinds of requests that a model answers. None where only the loaded model shows that."""
    ref = loading.resolve(model, wants)
    if ref.kind not in ("vqa_score", "image_likelihood"):
        return ANSWERS.get(ref.kind or "")
    from winobench.checkpoints import sources, vision_language

    source = sources.resolve(ref.source, revision=ref.revision)
    if (config := source.find("config.json")) is None:  # offline, or a pipeline such as GLM-Image
        return frozenset() if source.find("model_index.json") else ANSWERS[ref.kind]
    if ref.kind == "image_likelihood":  # of which Janus alone reads images
        values = sources.read_json(config)
        reads = values.get("model_type") == "janus" and "vision_model" not in values.get("untrained", ())
        return ANSWERS[ref.kind] if reads else frozenset()
    form = vision_language.network_class(source).form
    unable = set() if form.between else SEVERAL
    return ANSWERS[ref.kind] - unable - (set() if form.turns else {ImageTurn.kind})


def check_max_pixels(model: str | ModelRef, max_pixels: int | None) -> None:
    """Refuses a bound of pixels that a model which answers about images does not take, by small files."""
    if max_pixels is None:
        return
    ref = loading.resolve(model, IMAGES)
    loading.taken(ref, RESPONDERS.get(ref.kind or "", Kind("")), {"max_pixels": max_pixels})
    from winobench.checkpoints import processor_files, sources, vision_language

    source = sources.resolve(ref.source, revision=ref.revision)
    if source.find("config.json") is not None:  # else offline
        family = vision_language.network_class(source).image_processor
        processor_files.read_image_processor(source, family, max_pixels)


def _matcher(scorer: Any, seed: int, sampling: Mapping[str, Any] | None) -> Responder:
    """Any scorer of images and texts as a responder of the kind ``image_match``."""
    from winobench.responders.matching import Matcher

    return Matcher(scorer, seed=seed, **_given(sampling))


def _given(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (options or {}).items() if value is not None}
