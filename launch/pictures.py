"""Draws pictures of a set of prompts; what launch.generate does where the config has prompts."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from launch import configuration
from winobench.base import options
from winobench.base.errors import InputError
from winobench.runs import verdicts

if TYPE_CHECKING:
    import ml_collections

    from winobench.runs.image_runs import Pictures

_EXAMPLE = "pictures"


def main(
    config: ml_collections.ConfigDict, *, spec: str, workdir: str | None, overwrite: bool, processes: str | None
) -> None:
    """Draws what is missing, writes the page, and says where they are.

    Args:
      config: of the form of ``configs/pictures.py``.
      spec: what the config is called. Begins the default folder's name.
      workdir: the run's folder.
      overwrite: see `winobench.generation.generate.draw_pictures`.
      processes: see `winobench.parallel.join_processes`; None for this process alone.
    """
    configuration.require(config, configuration.flat(configuration.load(_EXAMPLE)))
    from winobench.prompts import named_sets as sets

    # What is cheap to check comes first: the source's name, then its content, then the models.
    sets.check_source(config.prompts)
    prompts = sets.read_prompts(config.prompts, limit=config.limit, categories=_words(config.categories or ""))

    # Late, so that --help and wrong prompts are answered at once.
    from winobench import parallel
    from winobench.base import caches
    from winobench.generation import generate, loading, page

    caches.keep_compiled()
    parallel.one_device_per_core()
    settings = generate.Settings(config.num_steps, config.guidance_scale, config.sampler, config.image_size)
    drawers = loading.make_drawers(
        _words(config.model),
        [None if lora == "none" else lora for lora in _words(config.lora or "none")],
        settings=settings,
        dtype=config.dtype,
        variant=config.variant,
        revision=config.revision,
        allow_pickle=config.allow_pickle,
        lora_scale=config.lora_scale,
        pipeline_options=options.settings().or_none().check("--config.pipeline_options", config.pipeline_options),
        encoders=config.encoders,
    )
    if processes:
        parallel.join_processes(processes, fault_tolerant=True)
    run = generate.draw_pictures(
        drawers,
        prompts,
        workdir,
        seeds=config.seeds,
        settings=settings,
        batch_size=config.batch_size,
        overwrite=overwrite,
        name=spec,
        config=configuration.plain(config),
    )
    if not processes or parallel.is_main_process():
        print(drawn(run, page.write_page(run)))
        _verify(run)


def _verify(run: Pictures) -> None:
    """Where the prompts say what must be shown, looks whether it is, and prints how often."""
    from winobench.generation import verification

    if verification.can_verify(run):
        print_accuracy(verdicts.generation_accuracy(run, verification.verify(run)))
        print(f"what the verifier found in each picture: {run.folder / verdicts.NAME}")


def print_accuracy(found: Mapping[str, Mapping[str, Mapping[str, Any]]], console: Any = None) -> None:
    """Prints how often images show what their prompts ask for, by skill and model.

    Args:
      found: of `winobench.runs.verdicts.generation_accuracy`.
      console: where to. Stdout when None.
    """
    import rich.box
    import rich.console
    import rich.table
    import rich.text

    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("drawn as asked, %", overflow="fold")
    for label in found:
        table.add_column(rich.text.Text(label), justify="right", no_wrap=True)
    for category in dict.fromkeys(name for of_model in found.values() for name in of_model):
        cells = []
        for of_model in found.values():
            one = of_model.get(category)
            interval = one and f"{100 * one['value']:.1f} [{100 * one['low']:.0f}, {100 * one['high']:.0f}]"
            cells.append(rich.text.Text(interval or "-"))
        table.add_row(rich.text.Text(category.replace("_", " ")), *cells)
    (console or rich.console.Console()).print(table)


def drawn(run: Pictures, page: pathlib.Path) -> str:
    """What is printed at the end."""
    seeds = f"{len(run.seeds)} seed{'s' * (len(run.seeds) != 1)}"
    names = ", ".join(model.name for model in run.models)
    return (
        f"{len(run.records):,} pictures are in {run.folder}: {len(run.prompts):,} prompts, {seeds}, by {names}\n"
        f"look at them in {page}"
    )


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if text and not words:
        raise InputError(f"{options.shown(text)} names nothing: write names with commas")
    return words
