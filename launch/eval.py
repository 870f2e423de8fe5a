"""Judges a text-to-image model, or a language model: winobench eval --config=gdbench"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base import options, registry, trackers
from winobench.base.errors import InputError
from winobench.base.registry import ModelRef
from winobench.runs import settings

from . import configuration, listing, output, text
from .overrides import split

if TYPE_CHECKING:
    from configs.gdbench import Settings
    from configs.winoviz import Settings as TextSettings
    from winobench.scorers.base import SampledScorer, Scorer

DEFAULT_CONFIG = "gdbench"

USAGE = """
Scores images against texts with a text-to-image model, task by task: accuracy, 95% interval, chance level, ties, and
the paper's number where it has one for the same model. --paper adds a row with the number of another model.

  winobench eval                                           the embedded model, a few minutes on a laptop
  winobench eval --model=sd21-base --tasks=winoground      a model of the hub on a task
  winobench eval --config=gdbench:full                     the same with 1,000 scenes and 32 samples
  winobench eval --config=gdbench:race                     up to 250 samples, until a question is decided
  winobench eval --tasks=clevr,clevr_image --limit=10
  winobench eval --config=gdbench:table1 --model=sd21-base --dtype=bfloat16
  winobench eval --config=gdbench:table1 --model=clip-rn50x64,blip-itm-base           baselines, in turn
  winobench eval --list_tasks                              the tasks, and whether their data are ready
  winobench eval --list_tasks=@spatial                     the tasks of a group, or with a word in the name
  winobench eval --list_models                             the models with a short name

Asks language models questions without images, by a protocol (docs/howto/winoviz.md, docs/howto/wscplus.md):

  winobench eval --config=winoviz --model=flan-t5-base --protocol=all
  winobench eval --config=wscplus --model=openai:gpt-4o-mini --protocol=toe
  winobench eval --config=wscplus --model=recorded:GPT4_results.csv --protocol=toe

Generates images of WinoViz's premises, and asks vision-language models about them (docs/howto/winoviz.md):

  winobench eval --config=winoviz:images --model=clip-vit-l14,sd21-base,instructblip-flan-t5-xl

Errors and responses are recorded while they come in. The same command resumes an interrupted run, and runs next to each
other share recorded errors and responses. winobench report makes a page of one or more runs. With --processes,
the same command on several machines shares the work.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder, runs/<config>-<model>-<hash> by default.")
_NAME = flags.DEFINE_string(
    "name", None, "What reports and the viewer call the run. The same command with another name resumes the same run."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Delete another run's records in --workdir instead of refusing it.")
_REUSE = flags.DEFINE_bool("reuse", True, "Take errors and responses that runs next to this one have recorded.")
_PROCESSES = flags.DEFINE_string(
    "processes",
    None,
    "Join a run of several processes that share the work and --workdir: auto (TPU pod, SLURM, Open MPI), or"
    " host:port,count,number.",
)
_LOG = flags.DEFINE_string(
    "log", "", f"Experiment trackers that follow the run, with commas: {', '.join(trackers.NAMES)}."
)
_PAPER = flags.DEFINE_bool(
    "paper", False, "Also print the paper's number of Stable Diffusion 2.1 (of people, in WSC+), in a row of its own."
)
_LIST_TASKS = flags.DEFINE_flag(
    configuration.WordFlag(
        "list_tasks",
        "List the tasks, with =WORD only tasks with the word in name, group or description, and their data.",
    )
)
_LIST_MODELS = flags.DEFINE_flag(
    configuration.WordFlag("list_models", "List the models that have a short name, with =WORD some of them.")
)

_SOME_TASKS_FAILED = 2


def main(config: Settings | TextSettings) -> None:
    """Evaluates the config's models on its tasks and prints a table of each one's results. Or lists tasks or models."""
    if _LIST_TASKS.value is not None:
        document = listing.data_sets(_LIST_TASKS.value, config.data_dir)
        print(listing.tasks_text(document, _LIST_TASKS.value))
        output.print_json(document)
        return
    if _LIST_MODELS.value is not None:
        models_document = listing.models(_LIST_MODELS.value)
        print(listing.models_text(models_document, _LIST_MODELS.value))
        output.print_json(models_document)
        return
    trackers.read(_LOG.value)
    if isinstance(config, settings.Asking):
        if _PROCESSES.value:
            raise InputError(
                "--processes is for configs of images and texts, such as gdbench: leave it out", code="option-of-others"
            )
        name = _label(flags.FLAGS.config)
        recording = settings.Recording(
            overwrite=_OVERWRITE.value, reuse=_REUSE.value, name=name, label=_NAME.value or None, log=_LOG.value
        )
        text.main(config, _WORKDIR.value, recording, paper=_PAPER.value)
        return
    spec, sampling = flags.FLAGS.config or DEFAULT_CONFIG, config.sampling
    config = settle_timesteps(config, spec)
    models = [check_model(config, name, deeply=False) for name in split(config.model) or [config.model]]
    check_samples(sampling, models, spec)
    _evaluate_models(config, models)


def _evaluate_models(config: Settings, models: Sequence[ModelRef]) -> None:
    """Evaluates every model of a config of images and texts. One that fails takes no other with it."""
    # Late, so that --help, --list_tasks and wrong names are answered at once.
    from winobench.evaluation import choice

    tasks = choice.choose_tasks(config.tasks, config.data_dir)
    from winobench import parallel
    from winobench.base import caches, progress
    from winobench.evaluation import race
    from winobench.report import table

    caches.keep_compiled()
    progress.say_what_compiles()
    parallel.one_device_per_core()

    # All models are checked before the first one is loaded.
    for model in models:
        check_model(config, model)
    titles = {model.name: registry.model_label(model.title) for model in models}
    labels = registry.model_labels(list(titles), titles.__getitem__)
    if config.sampling.mode == "race":
        race.check(tasks)
    if config.lora:
        from winobench.checkpoints import read_lora

        read_lora(config.lora, allow_pickle=config.allow_pickle)
    if _PROCESSES.value:
        parallel.join_processes(_PROCESSES.value, fault_tolerant=True)
    is_first = not _PROCESSES.value or parallel.is_main_process()
    if is_first and config.tasks == choice.READY:
        print("\n".join(_chosen(models, tasks, config.data_dir)), flush=True)
    runs, some_failed = [], False
    for model, label in zip(models, labels, strict=True):
        if is_first and len(models) > 1:
            print(f"model {model.name}", flush=True)
        try:
            results = _evaluate_model(config, model, label, tasks, _workdir(label, len(models)))
        except InputError as error:
            # Several processes may disagree about the failure. Each of them must then end.
            if _PROCESSES.value or len(models) == 1:
                raise
            print(f"error: model {model.name}: {' '.join(str(error).split())}", file=sys.stderr)
            some_failed = True
            continue
        if is_first:
            table.print_results(results, paper=_PAPER.value)
        runs.append(text.evaluated(model.name, results))
        some_failed = some_failed or bool(results["failed"])
    if is_first:
        text.print_runs(runs)
    if some_failed:
        sys.exit(_SOME_TASKS_FAILED)


def _evaluate_model(
    config: Settings, model: ModelRef, label: str, tasks: Sequence[Any], workdir: str | None
) -> dict[str, Any]:
    from winobench.evaluation import evaluate
    from winobench.scorers import loading

    sampling, scoring = options.part(config.sampling, settings.Sampling), options.part(config, settings.Scoring)
    if workdir is not None and not _OVERWRITE.value:
        known: dict[str, Any] = {"scorer": model.kind} if model.kind in loading.GENERATORS else {}
        if model.kind == loading.TOKENS:
            known |= {name: getattr(config, name) for name in ("dtype", "guidance", "preprocessing")}
        evaluate.check_folder(workdir, tasks, sampling, scoring, known)
    scorer = load_scorer(config, model)
    results = evaluate.evaluate(
        scorer,
        tasks,
        workdir,
        sampling,
        scoring,
        settings.Recording(
            overwrite=_OVERWRITE.value,
            reuse=_REUSE.value,
            model=_display_name(model, config, label),
            name="-".join([_label(flags.FLAGS.config or DEFAULT_CONFIG), label, *_lora(config)]),
            config=configuration.plain(config) | {"model": model.name},
            label=_NAME.value or None,
            log=_LOG.value,
        ),
    )
    if spent := getattr(scorer, "spent", None):
        print(f"{model.name}: {spent()}")
    return results


def _workdir(label: str, num_models: int) -> str | None:
    """The folder that the user names, with one inside for each model where there are several."""
    return os.path.join(_WORKDIR.value, label) if _WORKDIR.value and num_models > 1 else _WORKDIR.value or None


def _display_name(model: ModelRef, config: Settings, label: str) -> str:
    """A model's name in reports: its name or hub id, or the label of a folder, and its LoRA, if any."""
    if model.kind == registry.HOSTED:
        return text.display_name(model.name)
    name = label if model.is_folder else model.name
    if config.scored_by == "answers":
        name += " by answers"
    scale = "" if config.lora_scale == 1 else f" x {config.lora_scale:g}"
    words = [registry.lora_label(path) for path in config.embeddings or ()]
    return " + ".join([name, *(f"{label}{scale}" for label in _lora(config)), *words])


def _lora(config: Settings) -> list[str]:
    """The short name of the LoRA, in a list that is empty without one."""
    return [registry.lora_label(config.lora)] if config.lora else []


def _label(spec: str) -> str:
    return registry.model_label(spec.removesuffix(".py"))


def load_scorer(config: Settings, model: str | ModelRef) -> Scorer | SampledScorer:
    """Loads a model with the config's options, as `winobench.scorers.loading.load_scorer`."""
    from winobench.scorers import loading

    return loading.load_scorer(
        model, config.dtype, hosted=text.api_options(config.api, config.model), **_options(config)
    )


def check_model(config: Settings, model: str | ModelRef, *, deeply: bool = True) -> ModelRef:
    """Resolves a model and checks the config's options, as `winobench.scorers.loading.check_scorer`."""
    from winobench.scorers import loading

    ref = loading.check_scorer(
        model,
        config.dtype,
        timesteps=options.read_timesteps(config.sampling.timesteps),
        samples=_unusual(config, settings.SAMPLES),
        normalized=_unusual(config, settings.NORMALIZED),
        deeply=deeply,
        **_options(config),
    )
    if deeply and ref.kind == registry.HOSTED:
        load_scorer(config, ref)  # nothing is sent, but a key that is missing is found
    return ref


def _options(config: Settings) -> dict[str, Any]:
    """Options for checking and loading a model. The options that only diffusion models have are the unusual ones."""
    from winobench.scorers import loading

    diffusion = _unusual(config, settings.DIFFUSION)
    if "pipeline_options" in diffusion:
        given = diffusion["pipeline_options"]
        diffusion["pipeline_options"] = options.settings().check("--pipeline_options", given)
    groups = {"diffusion": diffusion, "likelihood": _unusual(config, settings.LIKELIHOOD)}
    return {name: value for name, value in vars(config).items() if name in loading.OPTIONS} | groups


def _unusual(config: Settings, case: str) -> dict[str, Any]:
    """The unusual values of options that only a case has: name without its group -> value."""
    declared, values = options.declared(config), options.values(config)
    cases = {*settings.CASES} - {case}
    return {name.rpartition(".")[2]: values[name] for name, _ in options.out_of_place(declared, values, cases)}


def settle_timesteps(config: Settings, spec: str) -> Settings:
    """The settings with as many samples as timesteps, where these are listed."""
    timesteps = options.read_timesteps(config.sampling.timesteps)
    if timesteps is None or isinstance(timesteps, str):
        return config
    usual = configuration.load(spec).sampling.num_samples
    if config.sampling.num_samples not in (usual, len(timesteps)):
        raise InputError(
            f"--sampling.timesteps lists {len(timesteps):,} timesteps, one for each sample, but"
            f" --num_samples is {config.sampling.num_samples:,}: leave num_samples out",
            code="two-numbers-of-samples",
        )
    return options.replaced(config, {"sampling.num_samples": len(timesteps)})


def check_samples(sampling: settings.Sampling, models: Sequence[ModelRef], spec: str) -> None:
    """Raises InputError for given samples of noise where all models predict tokens, whose likelihoods are exact."""
    from winobench.scorers import loading

    kinds = [loading.SCORERS[model.kind or ""] for model in models]
    if not all(loading.LIKELIHOOD in kind.takes for kind in kinds):
        return
    usual, names = configuration.load(spec).sampling, ("num_samples", "num_bias_samples", "timesteps")
    given = {name: getattr(sampling, name) for name in names if getattr(sampling, name) != getattr(usual, name)}
    loading.taken(models[0], kinds[0], {loading.SAMPLES: given})


def _chosen(models: Sequence[ModelRef], tasks: Sequence[Any], data_dir: str | None) -> list[str]:
    """Lines on the tasks of ``--tasks=ready``, and on those that it leaves out, ready or not."""
    from winobench.tasks import TASKS, ready_names

    chosen, ready = [task.name for task in tasks], ready_names(TASKS, data_dir)
    names = ", ".join(model.name for model in models)
    lines = [f"evaluates {names} on {len(chosen)} of {len(TASKS)} tasks about images: {', '.join(chosen)}"]
    if by_name := [name for name in ready if name not in chosen]:
        lines.append(f"  ready, but only by name (--tasks=NAME): {', '.join(by_name)}")
    if missing := len(TASKS) - len(ready):
        lines.append(f"  without data: {missing} (winobench eval --list_tasks says how to get them)")
    return lines


if __name__ == "__main__":
    output.define_json()
    configuration.start(main, launcher="eval", default=DEFAULT_CONFIG, usage=USAGE)
