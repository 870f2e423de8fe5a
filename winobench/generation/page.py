"""A page that shows a run's images: models side by side, a row a seed. It loads nothing but the run's own files."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import jinja2
import PIL.Image

from winobench.base import files
from winobench.base.errors import InputError
from winobench.base.version import __version__
from winobench.runs.image_records import THUMBNAILS, ImageRecord
from winobench.runs.image_runs import GeneratingModel, Images

PAGE = "pictures.html"
"""Name in the run's folder."""

SMALL, LARGE = 128, 256
"""Pixels of an image's side on the page, of small and of large images. Larger ones have a thumbnail."""


def write_page(run: Images) -> pathlib.Path:
    """Writes ``pictures.html`` into the run's folder, and thumbnails of images of more than `LARGE` pixels."""
    path = run.folder / PAGE
    with files.writing(run.folder):
        files.write_text(path, page_text(run, _write_thumbnails(run)))
    return path


def page_text(run: Images, thumbnails: dict[str, str] | None = None) -> str:
    """The page."""
    counts = collections.Counter(prompt.category for prompt in run.prompts)
    numbers = {name: str(number) for number, name in enumerate(counts, 1)}
    largest = max(map(_image_size, run.models), default=0)
    lost = len(run.models) * len(run.seeds) * len(run.prompts) - len(run.records) - len(run.missing)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("winobench.generation"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    settings = dict.fromkeys(("num_steps", "guidance_scale", "sampler", "image_size", "dtype"), "")
    return environment.get_template("images.html.jinja").render(
        names=", ".join(model.name for model in run.models),
        models=[
            {"name": model.name, "fingerprint": model.fingerprint, "settings": settings | model.settings}
            for model in run.models
        ],
        num_images=f"{len(run.records):,}",
        num_prompts=_counted(len(run.prompts), "prompt"),
        num_seeds=_counted(len(run.seeds), "seed"),
        several_seeds=len(run.seeds) > 1,
        lost=f"{lost:,}" if lost else "",
        missing=f"{len(run.missing):,}" if run.missing else "",
        collected=any(record.source is not None for record in run.records),
        categories=list(counts.items()) if len(counts) > 1 else [],
        side=SMALL if largest <= SMALL else LARGE,
        prompts=_prompts(run, numbers, thumbnails or {}),
        folder=run.folder.resolve().name,
        version=__version__,
    )


def _prompts(run: Images, numbers: dict[str, str], thumbnails: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Each prompt as the page shows it."""
    reasons = {image.place: f"{image.kind}: {image.reason}" for image in run.missing}
    for number, prompt in enumerate(run.prompts):
        rows = []
        for seed in run.seeds:
            records = [run.by_place.get((model.label, seed, number)) for model in run.models]
            drawn = [
                (model, None if record is None else record.file)
                for model, record in zip(run.models, records, strict=True)
            ]
            images = [
                {
                    "model": model.name,
                    "file": file,
                    "thumbnail": thumbnails.get(file or "", file),
                    "reason": reasons.get((model.label, seed, number), ""),
                }
                for model, file in drawn
            ]
            rows.append({"seed": seed, "images": images})
        yield {
            "text": prompt.text,
            "shown": prompt.shown or "",
            "about": " · ".join(filter(None, [prompt.category, f"number {number}"])),
            "id": prompt.id,
            "category_number": numbers[prompt.category],
            "content": "" if prompt.content is None else json.dumps(prompt.content, ensure_ascii=False),
            "rows": rows,
        }


def _write_thumbnails(run: Images) -> dict[str, str]:
    """Makes missing thumbnails, and deletes thumbnails of other images."""
    folder = run.folder / THUMBNAILS
    sizes = {model.label: _image_size(model) for model in run.models}
    # The name is the content's: an image that was generated again gets another one.
    wanted = {
        record.file: (record, f"{record.sha256[:32]}.jpg") for record in run.records if sizes[record.model] > LARGE
    }
    names = {name for _, name in wanted.values()}
    for path in folder.glob("*.jpg"):
        if path.name not in names:
            path.unlink()
    if not wanted:
        with contextlib.suppress(OSError):
            folder.rmdir()
        return {}
    folder.mkdir(exist_ok=True)
    missing = [(run, record, folder / name) for record, name in wanted.values() if not (folder / name).exists()]
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        list(threads.map(lambda arguments: _write_thumbnail(*arguments), missing))
    return {file: f"{THUMBNAILS}/{name}" for file, (_, name) in wanted.items()}


def _image_size(model: GeneratingModel) -> int:
    """Pixels of a side of a model's images. Where it is not known, they may be large."""
    return model.settings.get("image_size", LARGE + 1)


def _write_thumbnail(run: Images, record: ImageRecord, path: pathlib.Path) -> None:
    try:
        with PIL.Image.open(run.path(record)) as image:
            image.thumbnail((2 * LARGE, 2 * LARGE) if min(image.size) > 2 * LARGE else (LARGE, LARGE))
            with files.atomic_path(path) as temporary:
                image.convert("RGB").save(temporary, "JPEG", quality=85)
    except PIL.UnidentifiedImageError:
        raise InputError(f"{run.path(record)} is not an image: give the command again that generated it") from None


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
