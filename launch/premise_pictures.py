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
    from winobench.runs.requests import Picture
    from winobench.runs.settings import Recording
    from winobench.tasks.questions import TextTask

_SUFFIX = "-pictures"  # of the folder of generated images, behind the name of the run's


def find(
    config: Settings, tasks: Sequence[TextTask], workdir: str | None, recording: Recording
) -> Mapping[str, Sequence[Picture]]:
    """The images of all texts that the tasks ask about, generated first where no run of images is named.

    Generated images are next to ``workdir``, and without one in ``runs``, where runs with the same images share them.
    """
    from winobench.generation import finding

    texts = _texts(config, tasks)
    source, how = config.pictures, ""
    if not source:
        source = _draw(config, texts, workdir, recording)
        how = "the same command"
    elif not str(source).lower().endswith(finding.TABLES):
        how = shlex.join(["winobench", "draw", "--config=pictures", f"--workdir={source}"]) + " ..."
    return finding.find_pictures(source, texts, most=config.pictures_per_premise, model=config.drawer, how=how)


def _texts(config: Settings, tasks: Sequence[TextTask]) -> list[str]:
    """The texts that need images, each once, in the order of the questions."""
    blind = [task.name for task in tasks if task.pictured is None]
    if blind:
        raise InputError(
            f"task {blind[0]!r} has no protocol about images: leave it out of --config.tasks", code="no-pictures"
        )
    questions = [(task, question) for task in tasks for question in task.load(config.data_dir, config.limit)]
    return list(dict.fromkeys(question.texts[task.pictured] for task, question in questions))


def _draw(config: Settings, texts: Sequence[str], workdir: str | None, recording: Recording) -> Any:
    from winobench import parallel  # late: wrong names are answered at once
    from winobench.generation import finding, generate, loading
    from winobench.prompts.prompt_files import Prompt

    parallel.one_device_per_core()
    drawing = config.drawing
    settings = generate.Settings(drawing.num_steps, drawing.guidance_scale, drawing.sampler, drawing.image_size)
    drawers = loading.make_drawers(
        [config.drawer],
        settings=settings,
        dtype=drawing.dtype,
        variant=drawing.variant,
        allow_pickle=config.allow_pickle,
        encoders=drawing.encoders,
    )
    prompts = list(dict.fromkeys(map(finding.drawn_text, texts)))
    run = generate.draw_pictures(
        drawers,
        [Prompt(str(number), text) for number, text in enumerate(prompts, 1)],
        os.path.normpath(workdir) + _SUFFIX if workdir else None,
        seeds=tuple(range(config.pictures_per_premise)),
        settings=settings,
        batch_size=drawing.batch_size,
        overwrite=recording.overwrite,
        name=f"{recording.name}{_SUFFIX}",
        config=configuration.plain(config),
    )
    return run.folder


def check_drawer(config: Settings) -> None:
    """Refuses a generator that does not generate. Reads small files alone."""
    from winobench.scorers import loading

    if not config.pictures and loading.resolve(config.drawer).kind != "diffusion_itm":
        raise InputError(
            f"--config.drawer={config.drawer} judges images, but generates none: name a diffusion model",
            code="wrong-kind-of-model",
        )
