"""Makes a finished run of images that other programs made: finds them in a folder, and copies them."""

from __future__ import annotations

import collections
import math
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from winobench.base import files, options, registry
from winobench.base import progress as progress_bars
from winobench.base.errors import InputError
from winobench.generation import image_layouts, image_tables, image_texts
from winobench.generation.collected_runs import Collection, write_run
from winobench.generation.image_layouts import FoundImage
from winobench.prompts import named_sets
from winobench.prompts.prompt_files import Layout, Prompt
from winobench.runs.image_records import Place
from winobench.runs.image_runs import Images

METADATA = "metadata"
"""As prompts or pattern: the text that ComfyUI or AUTOMATIC1111's web interface wrote into each image."""

_LONGEST_LABEL = 255  # bytes, which file systems allow
_GRID = re.compile("([1-9][0-9]?)x([1-9][0-9]?)")
_OF_PROMPT = re.compile(r"\{(id|number|prompt)\}")


def collect_images(
    folder: str | os.PathLike[str],
    prompts: str | Sequence[Prompt] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    pattern: str | None = None,
    table: str | os.PathLike[str] | None = None,
    grid: str | None = None,
    allow_missing: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Images:
    """Makes a run from images in a folder. A call with the same arguments continues an interrupted one.

    The files are copied as RGB PNG files: alpha on white, turned as EXIF says, cut out of a grid.

    Args:
      folder: of the images. No file in it is changed.
      prompts: of the images, or their source as `winobench.read_prompts` takes it. ``"metadata"`` for the texts in the
        images themselves. A table's own when None.
      workdir: the run's folder; ``runs/collected-<folder>-<hash>`` by default.
      name: of the model, the folder's by default. Not for layouts and tables that name the models themselves.
      pattern: of paths in the folder, such as ``{id}_{seed}.png`` (`winobench.generation.image_layouts`), or
        ``"metadata"``. The layout of a benchmark is recognised when None.
      table: a file with a row for each image: ``path`` in the folder, and ``prompt`` or ``id``. ``model``, ``seed``
        and ``category`` are optional.
      grid: columns and rows of images in each file, such as ``2x2``.
      allow_missing: record images that are missing as such, instead of refusing the folder.
      overwrite: delete another run in ``workdir``.
      progress: show files and the time left, and which layout was recognised.

    Returns: the finished run.

    Raises:
      InputError: an argument is not as described, no file fits, a file is of an unknown prompt, two files are of one
        place, images are missing, a file cannot be decoded, the files have changed since they were collected, or the
        run cannot be written.
    """
    folder = pathlib.Path(files.user_path(folder))
    if not os.path.isdir(folder):
        raise InputError(f"{folder} is not a folder: name a folder of images", code="no-such-folder")
    texts = options.text().or_none()
    name, pattern, columns_and_rows = (
        texts.check(*pair) for pair in (("name", name), ("pattern", pattern), ("grid", grid))
    )
    for what, value in (("allow_missing", allow_missing), ("overwrite", overwrite), ("progress", progress)):
        options.flag().check(what, value)
    say = progress_bars.say if progress else lambda line: None
    tiles = _grid(columns_and_rows)
    found, known, layout = _found(folder, prompts, pattern, table, say)
    collection = settle(folder, found, known, name=name, grid=tiles, layout=layout, say=say)
    source = prompts if isinstance(prompts, str) else None
    config = {"folder": str(folder), "prompts": source, "name": name, "pattern": pattern, "grid": grid}
    config |= {"table": None if table is None else os.fspath(table), "allow_missing": allow_missing}
    return write_run(collection, workdir, config, overwrite=overwrite, progress=progress)


def _grid(text: str | None) -> tuple[int, int]:
    if text is None:
        return 1, 1
    if (match := _GRID.fullmatch(text)) is None:
        raise InputError(f"the grid {options.quote(text)} is not COLUMNSxROWS, such as 2x2", code="bad-grid")
    return int(match[1]), int(match[2])


def _found(
    folder: pathlib.Path, prompts: Any, pattern: str | None, table: Any, say: Callable[[str], Any]
) -> tuple[list[FoundImage], list[Prompt], Layout | None]:
    """The images, the prompts, and the layout if paths say which image is whose."""
    if table is not None:
        if pattern is not None:
            raise InputError("both a table and a pattern are given: name one of them", code="no-effect")
        path = pathlib.Path(files.user_path(table))
        images = image_tables.read(path, folder)
        return images, image_tables.own_prompts(images, path) if prompts is None else _prompts(prompts), None
    if prompts is None:
        raise InputError(
            f"no prompts are named for the images in {folder}: give --prompts, such as geneval2:FILE, or a --table",
            code="nothing-named",
        )
    listed = list(image_layouts.image_files(folder))
    if not listed:
        raise InputError(f"{folder} has no images ({', '.join(image_layouts.ENDINGS)}): name another", code="no-images")
    if METADATA in (prompts, pattern):
        images = [
            FoundImage(path, file, options.quote(file), prompt=image_texts.prompt_of(path)) for path, file in listed
        ]
        return images, image_tables.own_prompts(images, folder) if prompts == METADATA else _prompts(prompts), None
    known = _prompts(prompts)
    layouts = [image_layouts.user_layout(pattern)] if pattern else _layouts(prompts)
    layout, images = image_layouts.recognise(listed, layouts, image_layouts.PromptIndex(known))
    if not images:
        raise InputError(
            f"none of the {len(listed):,} images in {folder}, such as {options.quote(listed[0][1])}, fits"
            f" {' or '.join(each.pattern for each in layouts)}: name another --pattern, or a --table",
            code="no-images",
        )
    say(
        f"{len(images):,} files in {layout.name} layout ({layout.pattern})" if not pattern else f"{len(images):,} files"
    )
    if len(images) < len(listed):
        others = {path for path, _ in listed} - {image.path for image in images}
        example = min(others).relative_to(folder).as_posix()
        say(f"left out: {len(others):,} files that do not fit it, such as {options.quote(example)}")
    return images, known, layout


def _prompts(prompts: Any) -> list[Prompt]:
    if isinstance(prompts, str):
        return named_sets.read_prompts(prompts)
    for prompt in (known := list(prompts)):
        options.instance("a Prompt", Prompt).check("one of prompts", prompt, "wrong-type")
    if not known:
        raise InputError("no prompts are given: give the prompts of the images", code="nothing-named")
    return known


def _layouts(prompts: Any) -> list[Layout]:
    """The layouts to try, a named set's first."""
    named = named_sets.NAMED_SETS.get(prompts.partition(":")[0]) if isinstance(prompts, str) else None
    if named is not None:
        return [*named.layouts, *image_layouts.LAYOUTS]
    return [*image_layouts.LAYOUTS, *(each for named in named_sets.NAMED_SETS.values() for each in named.layouts)]


def settle(
    folder: pathlib.Path,
    images: Sequence[FoundImage],
    prompts: Sequence[Prompt],
    *,
    name: str | None = None,
    grid: tuple[int, int] = (1, 1),
    layout: Layout | None = None,
    say: Callable[[str], Any] = lambda line: None,
) -> Collection:
    """The place of each image in a run.

    Raises:
      InputError: an image is of an unknown prompt or model, or two are of one place.
    """
    index = image_layouts.PromptIndex(prompts)
    numbers = {image: tuple(index.numbers(image)) for image in images}
    images = _known(images, numbers, layout, say)
    if loose := [image for image in images if not index.is_exact(image)]:
        text = prompts[numbers[loose[0]][0]].text
        say(f"{len(loose):,} names have a prompt's text with other signs or cut off, such as {loose[0].where}: {text}")
    names = _model_names(images, name or os.path.basename(os.path.abspath(folder)), given=name is not None)
    labels = dict(zip(names, registry.model_labels(names), strict=True))
    for name, label in labels.items():
        if len(os.fsencode(label)) > _LONGEST_LABEL:
            raise InputError(
                f"the model's name {options.quote(name)} is too long for a folder: give a shorter one with --name, or"
                " in its folder or table",
                code="bad-name",
            )
    groups: dict[tuple[str, tuple[int, ...]], list[FoundImage]] = collections.defaultdict(list)
    for image in images:
        own = image.model if len(names) > 1 else None
        groups[labels[own or names[0]], numbers[image]].append(image)
    # In a folder for each prompt, numbers begin again.
    parts = [] if layout is None else layout.pattern.split("/")
    begin_again = any("{seed}" in part and not _OF_PROMPT.search(part) for part in parts)
    seeded = _have_seeds(groups, prompts, begin_again=begin_again)
    if layout is not None and layout.pattern == image_layouts.GENEVAL.pattern:
        of_files = {image.file: prompts[numbers[image][0]] for image in images}
        image_layouts.check_metadata(folder, images, of_files, is_recognised=layout == image_layouts.GENEVAL)
    tiles = math.prod(grid)
    places: dict[Place, FoundImage] = {}
    for (label, same), of_text in groups.items():
        share = math.ceil(len(of_text) / len(same))
        for order, image in enumerate(sorted(of_text, key=lambda image: -1 if image.seed is None else image.seed)):
            seed = image.seed if seeded and image.seed is not None and len(same) == 1 else order % share
            places[label, tiles * seed, same[order // share]] = image
    every = sorted({seed + tile for _, seed, _ in places for tile in range(tiles)})
    of_labels = {label: name for name, label in labels.items()}
    black = layout is not None and layout.black_is_missing
    return Collection(folder, tuple(prompts), of_labels, tuple(every), places, grid, black)


def _known(
    images: Sequence[FoundImage],
    numbers: Mapping[FoundImage, tuple[int, ...]],
    layout: Layout | None,
    say: Callable[[str], Any],
) -> list[FoundImage]:
    """The images of known prompts. A layout with folders of parts may have parts that the prompts lack."""
    known, unknown = ([image for image in images if bool(numbers[image]) is is_known] for is_known in (True, False))
    if layout is not None and layout.pattern.startswith(("{part}/", "{category}/")):
        parts = {image.file.partition("/")[0] for image in known}
        others = [image for image in unknown if image.file.partition("/")[0] not in parts]
        unknown = [image for image in unknown if image.file.partition("/")[0] in parts]
        if others and known:
            left = ", ".join(sorted({image.file.partition("/")[0] for image in others}))
            say(f"left out: {len(others):,} files of parts that the prompts lack ({left})")
    if unknown or not known:
        first = unknown[0] if unknown else images[0]
        given = {name: getattr(first, name) for name in ("id", "number", "prompt", "category")}
        said = ", ".join(f"{name} {options.quote(value)}" for name, value in given.items() if value is not None)
        said += "" if layout is None else f" by the pattern {layout.pattern}"
        raise InputError(
            f"{len(unknown) or len(images):,} of {len(images):,} images are of prompts that --prompts lacks, such as"
            f" {first.where} ({said}): name the prompts that they were generated from, or a --pattern",
            code="unknown-prompt",
        )
    return known


def _model_names(images: Sequence[FoundImage], default: str, *, given: bool) -> list[str]:
    names = list(dict.fromkeys(image.model for image in images))
    if None in names and len(names) > 1:
        without = next(image for image in images if image.model is None)
        raise InputError(f"{without.where} has no model, but others have: name it there, too", code="missing-field")
    if given and len(names) > 1:
        named = ", ".join(map(str, names[:3]))
        raise InputError(f"the images name {len(names)} models ({named}): leave --name out", code="no-effect")
    return [default] if given or names == [None] else [str(name) for name in names]


def _have_seeds(
    groups: Mapping[tuple[str, tuple[int, ...]], Sequence[FoundImage]], prompts: Sequence[Prompt], *, begin_again: bool
) -> bool:
    """Whether seeds tell the images of a prompt apart. If not, their order does.

    Numbers that run on from prompt to prompt, as T2I-CompBench's do, are an order.
    """
    of_place: dict[tuple[Any, ...], FoundImage] = {}
    of_seed: dict[tuple[Any, ...], set[tuple[int, ...]]] = collections.defaultdict(set)
    in_group: dict[tuple[Any, ...], set[tuple[int, ...]]] = collections.defaultdict(set)
    seeded = [image.seed is not None for of_text in groups.values() for image in of_text]
    if not any(seeded):
        return False
    for (label, same), of_text in groups.items():
        category = prompts[same[0]].category
        in_group[label, category].add(same)
        for image in of_text:
            if image.seed is None:
                raise InputError(f"{image.where} has no seed, but others have: give it one", code="missing-field")
            other = of_place.setdefault((label, same, image.seed), image)
            if other is not image:
                raise InputError(
                    f"{other.where} and {image.where} are of one place (prompt {prompts[same[0]].id}, number"
                    f" {image.seed}): take one of them away, or name a --pattern with {{seed}}",
                    code="repeated-id",
                )
            of_seed[label, category, image.seed].add(same)
    run_on = all(len(texts) == 1 for texts in of_seed.values()) and any(len(texts) > 1 for texts in in_group.values())
    return begin_again or not run_on
