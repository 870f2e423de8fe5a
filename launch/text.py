"""Judges language models on text benchmarks. What winobench eval does where the config has a protocol."""

from __future__ import annotations

import functools
import os
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from winobench.base import json_files, near_names, options, registry
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.runs import settings
from winobench.runs.requests import Later

from . import configuration, premise_pictures
from .overrides import named_values, split

if TYPE_CHECKING:
    import ml_collections

    from winobench.base.registry import ModelRef
    from winobench.runs.requests import Responder
    from winobench.tasks.questions import TextTask

# Exit status of runs without a task's data, with failed calls, or with answers that were cut off.
INCOMPLETE = 2


def main(
    config: ml_collections.ConfigDict,
    *,
    spec: str,
    workdir: str | None,
    overwrite: bool,
    reuse: bool,
    log: str = "",
) -> list[str]:
    about_pictures = bool(config.get("pictures") or config.get("drawer"))
    # Every config that asks models has wscplus's fields. Fields about images come with winoviz.
    example = configuration.load("winoviz" if about_pictures else "wscplus")
    configuration.require(config, configuration.flat(example))
    # Late, so that --help and --list_tasks answer at once.
    from winobench.evaluation import protocols, questions
    from winobench.report import table
    from winobench.responders import loading
    from winobench.runs import endings

    # Cheap checks come before images are generated and models are loaded.
    models = [
        loading.check_responder_name(name, about_pictures=about_pictures, revision=config.revision)
        for name in split(config.model) or [config.model]
    ]
    tasks = choose_tasks(config.tasks, config.data_dir)
    has = protocols.Available(about_pictures, bool(config.get("captioner")))
    checked = [_check_model(config, model, tasks, has) for model in models]
    api = _api_options(config)
    pictures = captioner = None
    if about_pictures and _needs_pictures(config, tasks):
        premise_pictures.check_drawer(config)
        pictures = premise_pictures.find(config, tasks, spec=spec, workdir=workdir, overwrite=overwrite)
    labels = registry.model_labels([model.name for model in models], model_label)
    runs, incomplete = [], []
    print_count(_without_data(config.tasks, config.data_dir))
    for (model, about_images), label in zip(checked, labels, strict=True):
        responder = _later(config, model, api, about_pictures=about_images)
        asked = _as_recorded(tasks, model)
        names = protocols.names(config.protocol, asked, responder.kinds, has)
        for protocol in names:
            if len(models) > 1 or len(names) > 1:
                print(", ".join([f"model {model.name}", *([f"protocol {protocol}"] if protocol else [])]), flush=True)
            chosen = [protocols.choose(task, protocol, responder.kinds, has) for task in asked]
            if captioner is None and any(one.needs == "captions" for one in chosen):
                # The revision is the model's, not the captioner's.
                captioner = _later(config, registry.resolve(config.captioner), api, about_pictures=True)
            parts = [label] * (len(models) > 1) + [str(protocol)] * (len(names) > 1)
            results = questions.evaluate_questions(
                responder,
                asked,
                os.path.join(workdir, *parts) if workdir else None,
                settings.Asking(config.data_dir, config.limit, protocol),
                settings.Recording(
                    overwrite=overwrite,
                    reuse=reuse,
                    name="-".join([spec, label, *([protocol] if protocol else [])]),
                    model=display_name(model.name),
                    config=configuration.plain(config) | {"model": model.name, "protocol": protocol},
                    log=log,
                ),
                pictures,
                captioner,
            )
            table.print_results(results)
            print(_spent_line(results))
            runs.append(results["workdir"])
            failure = questions.failure_line(results)
            incomplete += [*filter(None, [failure]), *results["failed"]]
            if results["failed_calls"]:
                print(failure, file=sys.stderr)
            if unfinished := endings.incomplete_lines(results):
                print(*unfinished, "the same command asks for incomplete answers again", sep="\n", file=sys.stderr)
                incomplete += unfinished
    print_runs(runs)
    if incomplete:
        sys.exit(INCOMPLETE)
    return runs


def choose_tasks(text: str, data_dir: str | None) -> list[TextTask]:
    """The named tasks. A name such as ``winoviz_*`` means all tasks that begin so and whose data are there."""
    from winobench.evaluation import evaluate

    names: list[str] = []
    for word in split(text):
        meant = _meant(word, data_dir)
        ready = [name for name, way in meant.items() if way is None]
        if word.endswith("*") and not ready:
            ways = "; ".join(dict.fromkeys(meant.values()))
            raise InputError(
                f"of the tasks {word!r} none has its data{f' ({ways})' if ways else ''}: name others.",
                code="data-not-ready",
            )
        names += ready if word.endswith("*") else [word]
    from winobench.tasks import TEXT_TASKS

    return evaluate.choose_tasks(list(dict.fromkeys(names)), data_dir, TEXT_TASKS)


def _check_model(
    config: ml_collections.ConfigDict, model: ModelRef, tasks: Sequence[TextTask], has: Any
) -> tuple[ModelRef, bool]:
    """Checks a model and the captioner for the protocols, by small files: the model, and whether it sees images."""
    from winobench.evaluation import protocols
    from winobench.responders import loading
    from winobench.runs.requests import KINDS, PictureText

    everything = frozenset(KINDS)
    names = protocols.names(config.protocol, tasks, everything, has)
    asked = [protocols.choose(task, name, everything, has) for task in tasks for name in names]
    if not has.pictures:
        return model, False
    is_open = config.protocol in (None, protocols.ALL)
    sees = is_open or any(protocol.needs == "pictures" for protocol in asked)
    model = loading.resolve(model, about_pictures=sees)
    answers = loading.answered_kinds(model, about_pictures=sees)
    if model.kind in (registry.HOSTED, registry.RECORDED):  # the key, the address or the file are checked, too
        answers = load_responder(config, model, about_pictures=sees).kinds
    if answers is not None:
        names = protocols.names(config.protocol, tasks, answers, has)
        chosen = [protocols.choose(task, name, answers, has) for task in tasks for name in names]
        if any(one.needs == "captions" for one in chosen):
            written = loading.answered_kinds(config.captioner, about_pictures=True)
            if written is not None and PictureText.kind not in written:
                raise InputError(
                    f"--config.captioner={config.captioner} writes no texts about images: name one that does, such as"
                    " blip2-flan-t5-xl",
                    code="wrong-kind-of-model",
                )
    return model, sees


def _needs_pictures(config: ml_collections.ConfigDict, tasks: Sequence[TextTask]) -> bool:
    """Whether a protocol is about images: those that are not named are, where there are any."""
    from winobench.evaluation import protocols

    names = protocols.names(config.protocol, tasks, frozenset()) if config.protocol != protocols.ALL else [None]
    return any(name is None or task.protocols[name].needs for task in tasks for name in names)


def load_responder(
    config: ml_collections.ConfigDict,
    model: str | ModelRef,
    api: dict[str, Any] | None = None,
    *,
    about_pictures: bool = False,
) -> Responder:
    """Loads a model with the config's options, as `winobench.responders.loading.load_responder`."""
    from winobench.responders import loading

    names = ("revision", "allow_pickle", "batch_size", "int8", "model_parallel", "chat_template", "seed")
    return loading.load_responder(
        model,
        config.dtype,
        hosted=_api_options(config) if api is None else api,
        about_pictures=about_pictures,
        sampling=_sampling(config) if about_pictures else None,
        **{name: config[name] for name in names},
    )


def _later(
    config: ml_collections.ConfigDict, model: ModelRef, api: dict[str, Any], *, about_pictures: bool
) -> Responder | Later:
    """A model that is loaded when it is needed. One that answers elsewhere is there at once."""
    from winobench.responders import loading

    load = functools.cache(lambda: load_responder(config, model, api, about_pictures=about_pictures))
    kinds = loading.answered_kinds(model, about_pictures=about_pictures)
    if kinds is None or not model.is_checkpoint:
        return load()
    return Later(kinds, loading.files_state(model), load)


def _sampling(config: ml_collections.ConfigDict) -> dict[str, Any]:
    timesteps = options.read_timesteps(config.sampling.timesteps)
    listed = timesteps is not None and not isinstance(timesteps, str)
    return {"num_samples": len(timesteps) if listed else config.sampling.num_samples, "timesteps": timesteps}


def model_label(model: str) -> str:
    """A short form of a model's name that can be part of a file's name, without a hosted model's server."""
    return registry.model_label(display_name(model))


def display_name(model: str) -> str:
    """A model's name in reports: its name or hub id, the last part of a folder's or file's path, or the API's name."""
    prefix, _, rest = model.partition(":")
    if prefix == registry.RECORDED:
        return pathlib.Path(rest).stem
    if registry.api_of(model):
        return registry.resolve(model).title
    folder = pathlib.Path(user_path(model))
    if not folder.is_dir():
        return model
    folder = folder.absolute()
    # winobench train --config=nli exports to the folder ``model`` of its run.
    return registry.model_label((folder.parent if folder.name == "model" else folder).name)


def hosted_options(config: ml_collections.ConfigDict, model: str | ModelRef) -> dict[str, Any] | None:
    """The config's options of a hosted model; None for another one."""
    return _api_options(config) if registry.resolve(model).kind == registry.HOSTED else None


def _spent_line(results: dict[str, Any]) -> str:
    parts = [f"{results['requests']:,} requests, {results['asked']:,} of them made now"]
    tokens = results["tokens"] or {}
    if tokens.get("input") is not None:
        parts.append(f"{tokens['input']:,} tokens read, {tokens.get('output') or 0:,} written")
    if results["cost"] is not None:
        parts.append(f"${results['cost']:,.2f}" if results["cost"] >= 0.01 else f"${results['cost']:.4f}")
    return "; ".join(parts)


def _as_recorded(tasks: Sequence[TextTask], model: ModelRef) -> list[TextTask]:
    """The tasks, with the questions that a published result file brings."""
    if model.kind != registry.RECORDED:
        return list(tasks)
    from winobench.tasks import wscplus

    own = wscplus.of_results(pathlib.Path(user_path(model.name.partition(":")[2])))
    return [own if own is not None and task.name == own.name else task for task in tasks]


def print_count(number: int) -> None:
    """Says how many tasks are not evaluated, and where their data are from."""
    if number:
        tasks = "1 task is" if number == 1 else f"{number} tasks are"
        print(f"{tasks} not evaluated, without data here: winobench eval --list_tasks", flush=True)


def print_runs(runs: Sequence[str]) -> None:
    """The last lines: where the results are, and what makes a page of them."""
    print(*(f"results: {os.path.join(run, 'results.json')}" for run in runs), sep="\n")
    print(f"for figures, comparisons and examples: winobench report {' '.join(map(shlex.quote, runs))}")


def _without_data(text: str, data_dir: str | None) -> int:
    """How many of the tasks that a star means have no data here."""
    return sum(way is not None for word in split(text) for way in _meant(word, data_dir).values())


def _meant(word: str, data_dir: str | None) -> dict[str, str | None]:
    """The tasks that a word with a star at its end means, and how to get their data; None if they are there."""
    from winobench.tasks import TEXT_TASKS

    found = [task for task in TEXT_TASKS.values() if word.endswith("*") and task.name.startswith(word[:-1])]
    return {task.name: task.ready(data_dir) for task in found}


def named_api_options(given: str | None, model: str) -> dict[str, Any] | None:
    """The options of a hosted model from ``name=value`` with commas. Each is read as by ``--config.api``."""
    if given is None:
        return None
    if not registry.api_of(model):
        raise InputError(f"--api has no effect on {options.quote(model)}: leave it out", code="no-effect")
    known = configuration.load("wscplus").api
    values = named_values("--api", given)
    for name in values:
        if name not in known:
            hint = near_names.did_you_mean(name, known, f"it has {', '.join(known)}.")
            raise InputError(f"--api has no option {options.quote(name)}: {hint}", code="unknown-field")
    fields = {"model": model, **{f"api.{name}": value for name, value in values.items()}}
    try:
        return _api_options(configuration.load("wscplus", fields.items()))
    except InputError as error:
        raise InputError(str(error).replace("--config.api.", "--api="), code=error.code) from None


def _api_options(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The options of hosted models, as their class has them."""
    given = dict(config.api.items())
    text, price = given.pop("extra_body"), given.pop("price")
    if given["max_tokens_field"] == "auto":
        del given["max_tokens_field"]
    if text is not None:
        given["extra_body"] = json_files.parse(text)
    if price is not None:
        prices = tuple(map(float, price))
        given["prices"] = {display_name(model): prices for model in split(config.model) if ":" in model}
    return given
