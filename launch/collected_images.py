"""Flags of images that other programs made, and the runs of them. For winobench collect and winobench judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base.errors import InputError

if TYPE_CHECKING:
    from winobench.runs.image_runs import Images

flags.disclaim_key_flags()  # the flags belong to the launcher that defines them

_TEXTS = {
    "name": "The model that made a folder of images, the folder's name by default.",
    "pattern": "Paths in a folder of images, such as '{id}_{seed}.png', or metadata. Recognised by default.",
    "table": "A table of a folder's images: CSV, JSON Lines or Parquet, with path, and prompt or id.",
    "grid": "Columns and rows of images in each file, such as 2x2.",
    "workdir": "The run of a folder of images, runs/collected-<folder>-<hash> by default.",
}
_SWITCHES = {
    "allow_missing": "Record missing images, which then count as the benchmark counts them.",
    "overwrite": "Delete another run's records in --workdir instead of refusing it.",
}


def define_flags(prompts: str) -> None:
    """Defines the flags, for a launcher with its own words about ``--prompts``."""
    flags.DEFINE_string("prompts", None, prompts)
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, None, text)
    for name, text in _SWITCHES.items():
        flags.DEFINE_bool(name, False, text)


def given() -> list[str]:
    """The flags that only a folder of images heeds."""
    return [name for name in ("prompts", *_TEXTS, *_SWITCHES) if flags.FLAGS[name].present]


def collect(folder: str) -> Images:
    """The run of a folder of images, which the flags describe."""
    from winobench.generation import collecting, page

    values: dict[str, Any] = {name: flags.FLAGS[name].value for name in (*_TEXTS, *_SWITCHES)}
    run = collecting.collect_images(folder, flags.FLAGS.prompts, **values)
    print(f"{len(run.records):,} images are in {run.folder}, by {', '.join(model.name for model in run.models)}")
    if run.missing:
        print(f"missing: {len(run.missing):,} of {len(run.missing) + len(run.records):,} images")
    print(f"look at them in {page.write_page(run)}")
    return run


def one(words: list[str]) -> str:
    """The only folder that is named."""
    if len(words) != 1:
        raise InputError(f"{len(words)} folders are named: name one", code="named-twice")
    return words[0]
