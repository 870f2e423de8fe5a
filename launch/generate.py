"""Generates images of a set of prompts: winobench generate --config=images"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from absl import flags

from winobench.base import options
from winobench.base.errors import InputError

from . import configuration, judged_images, output

if TYPE_CHECKING:
    from configs.images import Settings
    from winobench.runs.image_runs import Images

DEFAULT_CONFIG = "images"

USAGE = """
Generates images of a set of prompts with one or several text-to-image models (docs/howto/generate_images.md):

  winobench generate                                              the embedded model, prompts about its scenes
  winobench generate --prompts=prompts.txt --model=sd21-base,sdxl --dtype=bfloat16
  winobench generate --prompts=geneval:evaluation_metadata.jsonl --seeds=0,1,2,3
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
_JUDGE = flags.DEFINE_string(
    "judge", None, "A model that judges the images by their benchmark's rubric once they are there (winobench judge)."
)
_PROCESSES = flags.DEFINE_string(
    "processes",
    None,
    "Join a run of several processes that share the work and --workdir: auto (TPU pod, SLURM, Open MPI), or"
    " host:port,count,number.",
)


def main(config: Settings) -> None:
    """Generates the missing images, writes the page, and prints where they are."""
    from winobench.prompts import named_sets as sets

    # Cheap checks come first: the source's name, then its content, then the models.
    sets.check_source(config.prompts)
    prompts = sets.read_prompts(config.prompts, limit=config.limit, categories=_words(config.categories))

    if _JUDGE.value:
        judged_images.check(_JUDGE.value, prompts)

    # Late, so that --help and wrong prompts are answered at once.
    from winobench import parallel
    from winobench.base import caches, progress
    from winobench.generation import generate, loading, page

    caches.keep_compiled()
    progress.say_what_compiles()
    parallel.one_device_per_core()
    settings = generate.Settings(config.num_steps, config.guidance_scale, config.sampler, config.image_size)
    names = ("dtype", "variant", "revision", "allow_pickle", "lora_scale", "embeddings", "encoders", "backend")
    generators = loading.make_generators(
        _words(config.model),
        [None if lora == "none" else lora for lora in _words(config.lora or "none")],
        settings=settings,
        pipeline_options=options.settings().or_none().check("--pipeline_options", config.pipeline_options),
        **{name: getattr(config, name) for name in names},
    )
    if _PROCESSES.value:
        parallel.join_processes(_PROCESSES.value, fault_tolerant=True)
    run = generate.generate_images(
        generators,
        prompts,
        _WORKDIR.value,
        seeds=config.seeds,
        settings=settings,
        label=_NAME.value or None,
        batch_size=config.batch_size,
        overwrite=_OVERWRITE.value,
        name=configuration.chosen_name(DEFAULT_CONFIG),
        config=configuration.plain(config),
    )
    if not _PROCESSES.value or parallel.is_main_process():
        written = page.write_page(run)
        print(_summary(run, written))
        document = {
            "folder": str(run.folder),
            "page": str(written),
            "images": len(run.records),
            **judged_images.verify(run),
        }
        if _JUDGE.value:
            judged_images.judge([run], _JUDGE.value, document=document, dtype=config.dtype)
        else:
            output.print_json(document)


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
