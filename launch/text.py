"""Judges language models on text benchmarks. What winobench eval does where the config has a protocol."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base import json_files, options, registry
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.runs import model_settings, settings
from winobench.runs.requests import KINDS, ImageText, LazyResponder

from . import configuration, output, premise_images
from .overrides import split

if TYPE_CHECKING:
    from configs.winoviz import Settings
    from winobench.base.registry import ModelRef
    from winobench.runs.requests import Responder
    from winobench.tasks.questions import Protocol, TextTask


# Exit status of runs without a task's data, with failed calls, or with answers that were cut off.
INCOMPLETE = 2


def main(config: Settings, workdir: str | None, recording: settings.Recording, *, paper: bool = False) -> list[str]:
    """Asks each of the config's models by its protocols. Returns the runs' folders. ``recording`` names the config.

    ``paper`` also prints the papers' numbers of people.
    """
    # Other configs than winoviz have no fields about images.
    about_images = bool(getattr(config, "images", None) or getattr(config, "generator", None))
    # Cheap checks come before images are generated and models are loaded.
    tasks = choose_tasks(config.tasks, config.data_dir)
    # Late, so that --help, --list_tasks and wrong names are answered at once.
    from winobench.base import caches, progress
    from winobench.evaluation import protocols, questions

    caches.keep_compiled()
    progress.say_what_compiles()
    has = protocols.Available(about_images, bool(getattr(config, "captioner", None)))
    jobs = [_job(config, model, tasks, has) for model in split(config.model) or [config.model]]
    images, captioner = None, functools.cache(lambda: _captioner(config))
    needs = {need for job in jobs for need in job.needs()}
    if "captions" in needs:
        captioner()
    if needs:
        premise_images.check_generator(config)
        images = premise_images.find(config, tasks, workdir, recording)
    print_count(_without_data(config.tasks, config.data_dir))
    runs, incomplete = [], []
    for job, label in zip(jobs, registry.model_labels([job.model.name for job in jobs], model_label), strict=True):
        if job.model.kind == registry.PLUGGED_IN:  # it is loaded in its turn
            job = _job(config, job.model, tasks, has, load=True)
        for protocol, _ in job.protocols:
            words = [word for word, values in ((label, jobs), (str(protocol), job.protocols)) if len(values) > 1]
            if words:
                print(f"model {job.model.name}{f', protocol {protocol}' if protocol else ''}", flush=True)
            results = questions.evaluate_questions(
                job.responder(),
                job.tasks,
                os.path.join(workdir, *words) if workdir else None,
                settings.Asking(config.data_dir, config.limit, protocol),
                dataclasses.replace(
                    recording,
                    name="-".join(filter(None, [recording.name, label, protocol])),
                    model=display_name(job.model.name),
                    config=configuration.plain(config) | {"model": job.model.name, "protocol": protocol},
                ),
                images,
                captioner() if "captions" in job.needs() else None,
            )
            runs.append(evaluated(job.model.name, results))
            incomplete += _print_results(results, paper)
    print_runs(runs)
    if incomplete:
        sys.exit(INCOMPLETE)
    return [run["folder"] for run in runs]


def _print_results(results: dict[str, Any], paper: bool) -> list[str]:
    """Prints a run's results. Returns the missing parts: failed calls, tasks without data, incomplete answers."""
    from winobench.evaluation import questions
    from winobench.report import table
    from winobench.runs import endings

    table.print_results(results, paper=paper)
    print(_spent_line(results))
    failure, unfinished = questions.failure_line(results), endings.incomplete_lines(results)
    if results["failed_calls"]:
        print(failure, file=sys.stderr)
    if unfinished:
        print(*unfinished, "the same command asks for incomplete answers again", sep="\n", file=sys.stderr)
    return [*filter(None, [failure]), *results["failed"], *unfinished]


def choose_tasks(text: str, data_dir: str | None) -> list[TextTask]:
    """The named tasks. A name such as ``winoviz_*`` means all tasks that begin so and whose data are there."""
    from winobench.evaluation import choice

    names: list[str] = []
    for word in split(text):
        meant = _meant(word, data_dir)
        ready = [name for name, way in meant.items() if way is None]
        if word.endswith("*") and not ready:
            ways = "; ".join(dict.fromkeys(way for way in meant.values() if way is not None))
            raise InputError(
                f"of the tasks {word!r} none has its data{f' ({ways})' if ways else ''}: name others.",
                code="data-not-ready",
            )
        names += ready if word.endswith("*") else [word]
    from winobench.tasks import TEXT_TASKS

    return choice.choose_tasks(list(dict.fromkeys(names)), data_dir, TEXT_TASKS)


@dataclasses.dataclass(frozen=True)
class _Job:
    """A model, its tasks, and (name, task -> protocol) of each of its protocols."""

    model: ModelRef
    responder: Callable[[], Responder | LazyResponder]
    tasks: list[TextTask]
    protocols: list[tuple[str | None, dict[str, Protocol]]]

    def needs(self) -> set[str]:
        return _needs(self.protocols)


def _needs(resolved: list[tuple[str | None, dict[str, Protocol]]]) -> set[str]:
    """The needs of protocols: images, or captions of images."""
    return {protocol.needs for _, chosen in resolved for protocol in chosen.values() if protocol.needs}


def _job(config: Settings, model: str | ModelRef, tasks: Sequence[TextTask], has: Any, load: bool = False) -> _Job:
    """Chooses a model's protocols by small files. ``load``: loads another package's model, which shows its own."""
    from winobench.evaluation import protocols

    needs = _needs(protocols.resolve(tasks, config.protocol, frozenset(KINDS), has))
    sees = has.images and (config.protocol in (None, protocols.ALL) or "images" in needs)
    ref = _resolve(model, config.revision, about_images=sees)
    responder = functools.cache(lambda: _later(config, ref, about_images=sees))
    kinds = responder().kinds if load or ref.kind != registry.PLUGGED_IN else frozenset(KINDS)
    tasks = _as_recorded(tasks, ref)
    return _Job(ref, responder, tasks, protocols.resolve(tasks, config.protocol, kinds, has))


def _captioner(config: Settings) -> Responder | LazyResponder:
    """The model that writes captions. Its revision is the hub's newest one: the config's is the model's."""
    captioner = _later(config, _resolve(config.captioner or "", None, about_images=True), about_images=True)
    if ImageText.kind not in captioner.kinds:
        raise InputError(
            f"--captioner={config.captioner} writes no texts about images: name one that does, such as"
            " blip2-flan-t5-xl",
            code="wrong-kind-of-model",
        )
    return captioner


def _resolve(model: str | ModelRef, revision: str | None, *, about_images: bool) -> ModelRef:
    from winobench.scorers import loading

    return loading.resolve(model, loading.IMAGES if about_images else loading.TEXTS, revision)


def load_responder(
    config: model_settings.Responder,
    model: str | ModelRef,
    *,
    about_images: bool = False,
    sampling: dict[str, Any] | None = None,
) -> Responder:
    """Loads a model with the config's options, as `winobench.responders.loading.load_responder`."""
    from winobench.responders import loading
    from winobench.scorers import loading as scorers

    return loading.load_responder(
        model,
        config.dtype,
        hosted=api_options(config.api, config.model),
        about_images=about_images,
        sampling=sampling,
        seed=config.seed,
        **{name: value for name, value in vars(config).items() if name in scorers.OPTIONS},
    )


def _later(config: Settings, model: ModelRef, *, about_images: bool) -> Responder | LazyResponder:
    """A model that is loaded when it is needed. One that answers elsewhere is there at once."""
    from winobench.responders import loading
    from winobench.scorers import loading as scorers

    sampling = _sampling(config) if about_images else None
    load = functools.cache(lambda: load_responder(config, model, about_images=about_images, sampling=sampling))
    if model.kind is None or not model.is_checkpoint:
        return load()
    kinds = loading.answered_kinds(model, scorers.IMAGES if about_images else scorers.TEXTS)
    if not kinds:
        raise InputError(f"{model.name!r} answers no questions: name another model", code="kind-not-answered")
    return LazyResponder(kinds, loading.files_state(model), load)


def _sampling(config: Settings) -> dict[str, Any]:
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


def evaluated(model: str, results: dict[str, Any]) -> dict[str, Any]:
    """A finished run, as ``--json`` prints it."""
    return {"model": model, "folder": results["workdir"], "results": results}


def print_runs(runs: Sequence[dict[str, Any]]) -> None:
    """The last lines: where the results are, and what shows them."""
    folders = [run["folder"] for run in runs]
    if folders:
        print(*(f"results: {os.path.join(folder, 'results.json')}" for folder in folders), sep="\n")
        words = shlex.join(folders)
        print(f"for each question, in the browser: winobench view {words}")
        print(f"for figures, comparisons and examples: winobench report {words}")
    output.print_json({"runs": runs})


def _without_data(text: str, data_dir: str | None) -> int:
    """Number of tasks without data here, among those that a star means."""
    return sum(way is not None for word in split(text) for way in _meant(word, data_dir).values())


def _meant(word: str, data_dir: str | None) -> dict[str, str | None]:
    """The tasks that a word with a star at its end means, and how to get their data; None if they are there."""
    from winobench.tasks import TEXT_TASKS

    found = [task for task in TEXT_TASKS.values() if word.endswith("*") and task.name.startswith(word[:-1])]
    return {task.name: task.ready(data_dir) for task in found}


def define_api_flags(module: str) -> None:
    """Defines ``--api.NAME`` for a launcher without a config, whose name is given."""
    module = sys.argv[0] if module == "__main__" else module
    for name, option in options.declared(model_settings.Api, "api.").items():
        flags.DEFINE_string(name, None, option.metadata["help"], module_name=module)


def given_api_options(model: str) -> dict[str, Any] | None:
    """The options of a hosted model, as `define_api_flags` takes them; None without any."""
    known = options.declared(model_settings.Api, "api.")
    given: dict[str, Any] = {name: flags.FLAGS[name].value for name in known if flags.FLAGS[name].present}
    if not given:
        return None
    if not registry.api_of(model):
        name = next(iter(given))
        raise InputError(f"--{name} has no effect on {options.quote(model)}: leave it out", code="no-effect")
    return api_options(configuration.load("wscplus", [("model", model), *given.items()]).api, model)


def api_options(api: model_settings.Connection, models: str) -> dict[str, Any]:
    """The options of hosted models, as their class has them."""
    given = dataclasses.asdict(api)
    text, price = given.pop("extra_body"), given.pop("price")
    if given.get("max_tokens_field") == "auto":
        del given["max_tokens_field"]
    if text is not None:
        given["extra_body"] = json_files.parse(text)
    if price is not None:
        prices = tuple(map(float, price))
        given["prices"] = {display_name(model): prices for model in split(models) if ":" in model}
    return given
