"""Images of what a text benchmark asks about: found in a run that is named, or generated first."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from winobench.base.errors import InputError

from . import configuration

if TYPE_CHECKING:
    from configs.winoviz import Settings
    from winobench.runs.requests import InputImage
    from winobench.runs.settings import Recording
    from winobench.tasks.questions import TextTask

_SUFFIX = "-images"  # of the folder of generated images, behind the name of the run's


def find(
    config: Settings, tasks: Sequence[TextTask], workdir: str | None, recording: Recording
) -> Mapping[str, Sequence[InputImage]]:
    """The images of all texts that the tasks ask about, generated first where no run of images is named.

    Generated images are next to ``workdir``, and without one in ``runs``, where runs with the same images share them.
    """
    from winobench.generation import finding

    texts = _texts(config, tasks)
    source, how = config.images or "", ""
    if not source and config.generator:
        source = _generate(config, config.generator, texts, workdir, recording)
        how = "the same command"
    elif not str(source).lower().endswith(finding.TABLES):
        how = shlex.join(["winobench", "generate", "--config=images", f"--workdir={source}"]) + " ..."
    return finding.find_images(source, texts, most=config.images_per_premise, model=config.generator, how=how)


def _texts(config: Settings, tasks: Sequence[TextTask]) -> list[str]:
    """The texts that need images, each once, in the order of the questions."""
    shown = {task.name: task.illustrated for task in tasks if task.illustrated is not None}
    blind = [task.name for task in tasks if task.name not in shown]
    if blind:
        raise InputError(f"task {blind[0]!r} has no protocol about images: leave it out of --tasks", code="no-pictures")
    questions = [(task.name, question) for task in tasks for question in task.load(config.data_dir, config.limit)]
    return list(dict.fromkeys(question.texts[shown[name]] for name, question in questions))


def _generate(config: Settings, generator: str, texts: Sequence[str], workdir: str | None, recording: Recording) -> Any:
    from winobench import parallel  # late: wrong names are answered at once
    from winobench.generation import finding, generate, loading
    from winobench.prompts.prompt_files import Prompt

    parallel.one_device_per_core()
    how = config.generation
    settings = generate.Settings(how.num_steps, how.guidance_scale, how.sampler, how.image_size)
    generators = loading.make_generators(
        [generator],
        settings=settings,
        dtype=how.dtype,
        variant=how.variant,
        allow_pickle=config.allow_pickle,
        encoders=how.encoders,
    )
    prompts = list(dict.fromkeys(map(finding.prompt_text, texts)))
    run = generate.generate_images(
        generators,
        [Prompt(str(number), text) for number, text in enumerate(prompts, 1)],
        os.path.normpath(workdir) + _SUFFIX if workdir else None,
        seeds=tuple(range(config.images_per_premise)),
        settings=settings,
        batch_size=how.batch_size,
        overwrite=recording.overwrite,
        name=f"{recording.name}{_SUFFIX}",
        config=configuration.plain(config),
    )
    return run.folder


def check_generator(config: Settings) -> None:
    """Refuses a generator that does not generate. Reads small files alone."""
    from winobench.scorers import loading

    if config.images or not config.generator:
        return
    if loading.resolve(config.generator).kind not in loading.GENERATORS:
        raise InputError(
            f"--generator={config.generator} judges images, but generates none: name a diffusion model",
            code="wrong-kind-of-model",
        )
