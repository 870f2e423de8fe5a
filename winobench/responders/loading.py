"""A model's name to the responder that it is: a language model, a text encoder, or recorded answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from winobench.base import options, registry
from winobench.base.errors import InputError

if TYPE_CHECKING:
    from winobench.runs.requests import Responder


def load_responder(
    name: str,
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
      name: a name in `winobench.base.registry.LANGUAGE_MODELS` or of a plugged-in model, a folder or a hub id in
        transformers' layout (LLaMA, Qwen3, LLaVA, T5, BERT after NLI training, CLIP), the name of a CLIP in
        `registry.MODELS`, ``openai:MODEL`` or ``anthropic:MODEL`` (see `winobench.responders.hosted`), or
        ``recorded:FILE.csv`` (see `winobench.responders.recorded`).
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
        or a diffusion model states which text matches. Those of VQAScore also write. One without eyes, and a
        hosted one, is loaded as otherwise.
      sampling: see `winobench.responders.image_judges.load`.

    Raises:
      InputError: there is no such model, it answers no questions, or an option is not for its kind.
    """
    check_responder_name(name, about_pictures=about_pictures)
    from winobench.responders import hosted as hosted_models
    from winobench.responders import recorded

    if recorded.is_recorded(name):
        return recorded.RecordedModel(name)
    if hosted_models.is_hosted(name):
        given = {option: value for option, value in (hosted or {}).items() if value is not None}
        return hosted_models.HostedModel(name, **given)
    if name in registry.plugged_in():
        return _plugged_in_responder(name, about_pictures, seed=seed, sampling=sampling)
    if about_pictures:
        from winobench.responders import image_judges

        judge = image_judges.load(
            name,
            dtype,
            revision=revision,
            allow_pickle=allow_pickle,
            batch_size=batch_size,
            int8=int8,
            model_parallel=model_parallel,
            seed=seed,
            sampling=sampling,
        )
        if judge is not None:
            return judge
    from winobench import parallel
    from winobench.checkpoints import language_models

    source = registry.model_source(name)
    kind = language_models.language_model_kind(source, revision)
    if kind in ("decoder", "t5"):
        from winobench.responders.language_model import LanguageModel

        return LanguageModel.from_pretrained(
            source,
            dtype,
            mesh=None if model_parallel == 1 else parallel.make_mesh(model_parallel=model_parallel),
            int8=int8,
            batch_size=batch_size,
            revision=revision,
            allow_pickle=allow_pickle,
            chat_template=chat_template,
            seed=seed,
        )
    refused = {"int8": int8, "model_parallel": model_parallel != 1, "chat_template": chat_template != "auto"}
    for option, is_given in refused.items():
        if is_given:
            raise InputError(
                f"{option} is an option of models that write, but {name!r} is none: leave it out",
                code="option-of-others",
            )
    from winobench.responders import text_encoders

    encoder = text_encoders.NliEncoder if kind == "bert" else text_encoders.ClipText
    return encoder.from_pretrained(source, dtype, batch_size=batch_size, revision=revision, allow_pickle=allow_pickle)


def answered_kinds(name: str, *, about_pictures: bool = False, revision: str | None = None) -> frozenset[str] | None:
    """What a model will answer, from small files alone; None where that is known once it is loaded.

    Args:
      name, about_pictures, revision: see `load_responder`.

    Raises:
      InputError: there is no such model, or its kind is not known.
    """
    check_responder_name(name, about_pictures=about_pictures)
    from winobench.responders import hosted, recorded

    if hosted.is_hosted(name) or recorded.is_recorded(name) or name in registry.plugged_in():
        return None
    if about_pictures:
        from winobench.responders import image_judges

        if seen := image_judges.kinds(name, revision):
            return seen
    from winobench.checkpoints import language_models

    kind = language_models.language_model_kind(registry.model_source(name), revision)
    return {"bert": frozenset({"entailment"}), "clip": frozenset({"similarity"})}.get(
        kind, frozenset({"generation", "options"})
    )


def check_responder_name(name: str, *, about_pictures: bool = False) -> None:
    """Refuses a name that cannot be of a model that answers questions. Loads nothing.

    Args:
      name: see `load_responder`.
      about_pictures: as there.

    Raises:
      InputError: says why, and what can be named.
    """
    if not isinstance(name, str):
        raise InputError(f"a model that answers questions has a name, not {options.shown(name)}", code="wrong-type")
    from winobench.responders.hosted import APIS, settings

    prefixes = (*APIS, "recorded")  # of models that are not on this machine
    if name.partition(":")[0] in APIS and ":" in name:
        settings.split(name)
        return
    if name.startswith("recorded:"):
        return
    model = registry.MODELS.get(name) if name not in registry.LANGUAGE_MODELS else None
    if model is not None and model.scorer != "contrastive" and not about_pictures:
        raise InputError(
            f"{name!r} is a model of images, which answers no questions: name a language model, such as one of"
            f" {', '.join(registry.LANGUAGE_MODELS)}, or openai:MODEL, anthropic:MODEL or recorded:FILE.csv",
            code="wrong-kind-of-model",
        )
    if ":" in name and not os.path.exists(name):
        raise InputError(
            f"model {name!r} is none: before a colon stands one of {', '.join(prefixes)}, as in openai:gpt-4o-mini"
            " or recorded:FILE.csv",
            code="unknown-api",
        )
    registry.model_source(name)


def _plugged_in_responder(name: str, about_pictures: bool, **how: Any) -> Responder:
    from winobench.runs.requests import Responder

    model = registry.make_plugged_in(name)
    if not isinstance(model, Responder) and about_pictures:
        from winobench.responders import image_judges

        return image_judges.as_responder(model, **how)
    if not isinstance(model, Responder):
        raise InputError(
            f"{name!r} is plugged in as a scorer of images, which answers no questions: name another model",
            code="wrong-kind-of-model",
        )
    return model
