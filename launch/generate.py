"""Generates images of a set of prompts: winobench generate --config=images"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base import options
from winobench.base.errors import InputError
from winobench.runs import judgements

from . import configuration, judged_images, output, spending, text

if TYPE_CHECKING:
    from configs.images import Settings
    from winobench.generation.generate import Generator
    from winobench.runs.image_runs import Images

DEFAULT_CONFIG = "images"

USAGE = """
Generates images of a set of prompts with one or several text-to-image models (docs/howto/generate_images.md):

  winobench generate                                              the embedded model, prompts about its scenes
  winobench generate --prompts=prompts.txt --model=sd21-base,sdxl --dtype=bfloat16
  winobench generate --prompts=geneval:evaluation_metadata.jsonl --seeds=0,1,2,3
  winobench generate --prompts=prompts.txt --model=openai:gpt-image-2 --dry_run    what a hosted model would cost
  winobench generate --config=images:paper --prompts=drawbench:FILE --model=sd21-base \\
      --lora=none,FOLDER                                             a model and its LoRA (DiffusionITM, Appendix B)

Each image is a PNG file with a record, which is on disk as soon as the image is done. The same command resumes an
interrupted run. The page pictures.html in the run's folder shows all images. With --processes, the same command on
several machines shares the work. --judge=MODEL then judges the images as winobench judge does.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder, runs/<config>-<models>-<hash> by default.")
_NAME = flags.DEFINE_string(
    "name", None, "What the viewer calls the run. The same command with another name resumes the same run."
)
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Delete another run's records in --workdir instead of refusing it.")
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "Print how many images are missing, and what hosted models take for them. Nothing is generated."
)
_ASK_AGAIN = flags.DEFINE_bool(
    "ask_again", False, "Also request the images that a hosted model has refused to make, such as by its filter."
)
_JUDGE = flags.DEFINE_string(
    "judge", None, "A model that judges the images by their benchmark's rubric once they are there (winobench judge)."
)
_MAX_PIXELS = judged_images.define_max_pixels()
_PROCESSES = flags.DEFINE_string(
    "processes",
    None,
    "Join a run of several processes that share the work and --workdir: auto (TPU pod, SLURM, Open MPI), or"
    " host:port,count,number.",
)


def main(config: Settings) -> None:
    """Generates the missing images, writes the page, and prints where they are."""
    from winobench.prompts import named_sets as sets

    if not _JUDGE.value:
        judged_images.refuse_max_pixels(_MAX_PIXELS.value)
    # Cheap checks come first: the source's name, then its content, then the models.
    sets.check_source(config.prompts)
    which: dict[str, Any] = {"limit": config.limit, "categories": _words(config.categories), "shown": config.shown}
    prompts = sets.read_prompts(config.prompts, **which)

    if _JUDGE.value:
        judged_images.check(_JUDGE.value, prompts, max_pixels=_MAX_PIXELS.value)

    # Late, so that --help and wrong prompts are answered at once.
    from winobench import parallel
    from winobench.base import caches, progress
    from winobench.generation import generate, loading, page

    caches.keep_compiled()
    progress.say_what_compiles()
    parallel.one_device_per_core()
    settings, of_diffusion = (
        generate.Settings(**{each.name: getattr(values, each.name) for each in dataclasses.fields(generate.Settings)})
        for values in (config, config.of_diffusion())
    )
    if settings.num_steps == configuration.load(flags.FLAGS.config or DEFAULT_CONFIG).num_steps:
        settings = dataclasses.replace(settings, num_steps=None)  # a form's number is for diffusion models alone
    names = ("dtype", "variant", "revision", "allow_pickle", "lora_scale", "embeddings", "encoders", "backend")
    generators = loading.make_generators(
        _words(config.model),
        [None if lora == "none" else lora for lora in _words(config.lora or "none")],
        settings=settings,
        pipeline_options=options.settings().or_none().check("--pipeline_options", config.pipeline_options),
        hosted={**text.api_options(config.api, config.model), "sends": not _DRY_RUN.value},
        **{name: getattr(config, name) for name in (*names, "model_parallel")},
    )
    of_both: dict[str, Any] = {
        "seeds": config.seeds,
        "settings": of_diffusion,
        "name": configuration.chosen_name(DEFAULT_CONFIG),
        "overwrite": _OVERWRITE.value,
        "ask_again": _ASK_AGAIN.value,
    }
    if _DRY_RUN.value:
        planned = generate.estimate(generators, prompts, _WORKDIR.value, **of_both)
        print(*map(_planned_line, planned, planned.values()), sep="\n")
        output.print_json({"planned": planned})
        return
    if _PROCESSES.value:
        parallel.join_processes(_PROCESSES.value, fault_tolerant=True)
    run = generate.generate_images(
        generators,
        prompts,
        _WORKDIR.value,
        label=_NAME.value or None,
        batch_size=config.batch_size,
        config=configuration.plain(config),
        **of_both,
    )
    if not _PROCESSES.value or parallel.is_main_process():
        written = page.write_page(run)
        print(_summary(run, written))
        document = {
            "folder": str(run.folder),
            "page": str(written),
            "images": len(run.records),
            **judged_images.verify(run),
            **_hosted(run, generators),
        }
        if _JUDGE.value:
            how = {"dtype": config.dtype, "max_pixels": _MAX_PIXELS.value}
            judged_images.judge([run], _JUDGE.value, document=document, **how)
        else:
            output.print_json(document)
        _end(run)


def _hosted(run: Images, generators: Sequence[Generator]) -> dict[str, Any]:
    """Prints what hosted models took, and returns it, with the number of images that they have refused."""
    models = {each.label: each.hosted for each in generators if each.hosted is not None}
    spent = {}
    for label, model in models.items():
        spent[label] = model.spent([record for record in run.records if record.model == label])
        print(f"{label}: {_taken(spent[label])}")
    return {"spent": spent, "missing": _missing(run)} if models else {}


def _missing(run: Images) -> dict[str, dict[str, int]]:
    """Label of a model that lacks images for good -> kind -> their number."""
    return judgements.count_missing(run, {model.label: {} for model in run.models})


def _end(run: Images) -> None:
    """Says in the last lines how many images a model lacks for good. Fails where that is most of them."""
    total = len(run.prompts) * len(run.seeds)
    for label, kinds in _missing(run).items():
        number, words = sum(kinds.values()), ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        first = next(each.reason for each in run.missing if each.model == label)
        sentence = (
            f"{label}: {number:,} of {total:,} images ({number / total:.1%}) are missing ({words}, first:"
            f" {first}): --ask_again requests them again"
        )
        if number > total / 2:
            raise InputError(sentence, code="incomplete-answers")
        print(f"warning: {sentence}", file=sys.stderr)


def _planned_line(label: str, planned: Mapping[str, Any]) -> str:
    """Missing images of a model, and their estimated tokens, price and time."""
    of_api = {name: planned[name] for name in ("tokens", "cost", "seconds") if name in planned}
    line = f"{label}: {planned['missing']:,} of {planned['images']:,} images are missing"
    if not of_api:
        return f"{line}. winobench plan estimates their time"
    return f"{line}, a request each: {_taken({**of_api, 'images': planned['missing']})}"


def _taken(spent: Mapping[str, Any]) -> str:
    """Images, tokens, dollars and minutes in words."""
    tokens, cost, images = spent["tokens"] or {}, spent["cost"], spent["images"]
    parts = [f"{images:,} images", *spending.tokens_in_words(tokens)]
    each = f", ${cost / images:.4f} an image" if cost and images else ""
    parts.append(f"{spending.dollars(cost, '--api.price or --api.image_price')}{each}")
    if spent["seconds"] is not None:
        parts.append(f"{spent['seconds'] / 60:,.1f} minutes")
    return "; ".join(parts)


def _summary(run: Images, page: pathlib.Path) -> str:
    seeds = f"{len(run.seeds)} seed{'s' * (len(run.seeds) != 1)}"
    names = ", ".join(model.name for model in run.models)
    return (
        f"{len(run.records):,} images are in {run.folder}: {len(run.prompts):,} prompts, {seeds}, by {names}\n"
        f"look at them in {page}"
    )


def _words(text: str | None) -> list[str]:
    words = options.comma_separated(text or "")
    if text and not words:
        raise InputError(f"{options.quote(text)} names nothing: write names with commas")
    return words


if __name__ == "__main__":
    output.define_json()
    configuration.start(main, launcher="generate", default=DEFAULT_CONFIG, usage=USAGE)
