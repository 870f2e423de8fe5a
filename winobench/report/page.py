"""The report as one HTML file that loads nothing."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import types
import warnings
from collections.abc import Callable, Mapping, Sequence

import jinja2
import markupsafe

from winobench.base import extensions, options, text_tables
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.base.version import __version__
from winobench.metrics.agreement import NUM_RESAMPLES, read_ratings
from winobench.report import figures, published
from winobench.report.cells import Bar
from winobench.report.panels import to_svg
from winobench.report.sections import (
    bias,
    clevr,
    differences,
    gallery,
    generation,
    image_pairs,
    overlap,
    people,
    questions,
    radar,
    samples,
    skills,
    tasks,
    timesteps,
    what_was_run,
    winoviz,
    winoviz_images,
    wscplus,
)
from winobench.report.sections.gallery import Gallery
from winobench.report.sections.generation import matching_models
from winobench.report.sections.shared import ReportData, Section
from winobench.runs.image_runs import read_images
from winobench.runs.labels import task_label
from winobench.runs.private_paths import remover, without_paths
from winobench.runs.reading import read_runs
from winobench.runs.run import Run

PAGE = "report.html"
GALLERY_EXAMPLES = 12  # a task by default, over all kinds and runs
_LEARNED = "learned_weights"  # the part behind --fit_timesteps
MOST_RESAMPLES = 1_000_000  # with more, no digit that is shown changes, while time and memory grow


def _learned_weights_section(report_data: ReportData) -> Section | None:
    """Weights of timesteps that are learned from the runs, where that is chosen."""
    return extensions.find(extensions.PARTS, _LEARNED)(report_data) if report_data.fit_timesteps else None


# The sections on runs with images, from top to bottom. One without content returns None. Sections of other packages are
# before the sections on generated images. The gallery follows.
SECTIONS: tuple[Callable[[ReportData], Section | None], ...] = (
    tasks.task_section,
    radar.radar_section,
    skills.skill_section,
    differences.difference_section,
    clevr.clevr_section,
    *extensions.loaded(extensions.REPORT_SECTIONS).values(),
    generation.generation_section,
    generation.understanding_section,
    bias.bias_section,
    people.people_section,
    overlap.overlap_section,
    samples.sample_section,
    timesteps.timestep_section,
    image_pairs.image_pair_section,
    _learned_weights_section,
)

TEXT_SECTIONS: tuple[Callable[[ReportData], Section | None], ...] = (
    tasks.task_section,
    radar.radar_section,
    differences.difference_section,
    winoviz.winoviz_section,
    wscplus.wscplus_section,
    overlap.overlap_section,
    winoviz_images.illustrated_section,
    questions.questions_section,
)

MOST_CELLS = 5_000
"""Cells of a table that a page shows. CSV files have all rows."""


def write_report(
    paths: Sequence[str | os.PathLike],
    out: str | os.PathLike | None = None,
    *,
    resamples: int = NUM_RESAMPLES,
    gallery_examples: int = GALLERY_EXAMPLES,
    seed: int = 0,
    raters: Sequence[str | os.PathLike] = (),
    fit_timesteps: bool = False,
    images: Sequence[str | os.PathLike] = (),
    reproduce: Callable[[Run], str | None] = lambda run: None,
    command: Sequence[str] = (),
    skip: Callable[[InputError], None] | None = None,
    table_format: str = text_tables.FILE_FORMATS[0],
) -> pathlib.Path:
    """Writes a page on runs, and next to it a PNG file and a CSV file behind each figure and table.

    With the ``table_format`` ``"markdown"`` or ``"latex"``, the tables of each section are in a file of it, too.
    With ``fit_timesteps``, weights of timesteps are learned from half of each run's examples, judged on the other half,
    and kept as ``timestep_weights.json`` in the run's folder.
    """
    options.whole(1, MOST_RESAMPLES).check("the number of resamples", resamples, "out-of-range")
    options.whole(0, 10**9).check("the number of examples in the gallery", gallery_examples, "out-of-range")
    some_paths = options.items(options.instance("a path", str, os.PathLike), 0)
    raters, images = some_paths.check("raters", raters), some_paths.check("images", images)
    command = options.items(options.text(), 0).check("command", command)
    text_tables.check_format(table_format, text_tables.FILE_FORMATS)
    seed = options.SEED.check("the seed", seed)
    ratings = read_ratings(*raters) if raters else None
    image_runs = [read_images(folder) for folder in images]
    runs = [without_paths(run) for run in read_runs(paths, skip)]
    report_data = ReportData(runs, resamples, seed, ratings, gallery_examples, fit_timesteps, image_runs)
    _check_fit(report_data)
    _warn_of_images(report_data)
    folder = runs[0].path / "report" if len(runs) == 1 else pathlib.Path("report")
    if out is not None:
        folder = pathlib.Path(user_path(out))
    sections, galleries, gallery_files = make_sections(report_data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _delete_former(folder)
        everything = sections if gallery_files is None else [*sections, gallery_files]
        drawings: dict[figures.Panel, str] = {}
        files: dict[str, list[str]] = {}
        labels = [run.label for run in report_data.runs]
        for section in everything:
            drawings |= section.write_files(folder)
            files[section.key] = section.files
            if table_format != text_tables.FILE_FORMATS[0]:
                files[section.key] += section.write_tables(folder, table_format, labels)
        shown_command = remover(paths)(list(command))
        page = render(report_data, sections, galleries, reproduce, files, drawings, shown_command)
        path = folder / PAGE
        temporary = folder / f".{PAGE}.tmp"
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"--out {folder} cannot be written: {error}.", code="cannot-write") from error
    return path


def _warn_of_images(report_data: ReportData) -> None:
    """Warns of images that no section shows, since no run is of a model that made them."""
    shown = {id(images) for _, _, images, _ in matching_models(report_data)}
    for images in report_data.image_runs:
        if id(images) not in shown:
            warnings.warn(
                f"the report has nothing on the images in {images.folder}: none of its runs is of a model that made"
                " them. winobench view shows them",
                stacklevel=3,
            )


def _check_fit(report_data: ReportData) -> None:
    """Refuses options for other kinds of runs."""
    if report_data.ratings is not None and not wscplus.asked_tasks(report_data):
        message = "rater files are on the questions of WSC+, which no run that is named has answered: name one."
        raise InputError(message, code="no-run-of-the-task")
    if report_data.fit_timesteps and report_data.is_text:
        message = "--fit_timesteps is for runs of diffusion models, and text benchmarks have no timesteps."
        raise InputError(message, code="option-of-others")
    if report_data.fit_timesteps:
        extensions.find(extensions.PARTS, _LEARNED)


def make_sections(report_data: ReportData) -> tuple[list[Section], list[Gallery], Section | None]:
    """The sections that have content, the galleries, and the section that writes the galleries' file."""
    makers = TEXT_SECTIONS if report_data.is_text else SECTIONS
    sections = [section for section in (maker(report_data) for maker in makers) if section is not None]
    galleries, files = ([], None) if report_data.is_text else gallery.galleries(report_data, report_data.examples)
    return sections, galleries, files


def render(
    report_data: ReportData,
    sections: Sequence[Section],
    galleries: Sequence[Gallery],
    reproduce: Callable[[Run], str | None],
    files: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
    drawn: Mapping[figures.Panel, str] = types.MappingProxyType({}),
    command: Sequence[str] = (),
) -> str:
    """The page as HTML. ``files`` are the names of files next to it, by section."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("winobench.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(
        marker=_marker,
        bar_places=_bar_places,
        task_label=task_label,
        most_cells=MOST_CELLS,
        run_number=lambda number: number % len(figures.COLOURS),
    )
    figure_numbers: dict[str, int] = {}

    def svg(panel: figures.Panel, key: str) -> markupsafe.Markup:
        figure_numbers[key] = figure_numbers.get(key, 0) + 1
        # The library escapes everything that came from outside.
        return markupsafe.Markup(to_svg(panel, f"{key}{figure_numbers[key]}", drawn.get(panel)))

    environment.globals["svg"] = svg
    runs = report_data.runs
    by_task: dict[str, list[Gallery]] = {}
    for task_gallery in galleries:
        by_task.setdefault(task_gallery.task, []).append(task_gallery)
    html = environment.get_template("page.html.jinja").render(
        title=runs[0].label if len(runs) == 1 else f"{len(runs)} runs compared",
        marks=report_data.marks,
        facts=[what_was_run.run_facts(run) for run in runs],
        commands=[reproduce(run) for run in runs],
        summary=what_was_run.summary_sentences(report_data),
        sections=sections,
        galleries=by_task,
        papers=published.sources(runs),
        files=files,
        colours=figures.COLOURS,
        version=__version__,
        command=shlex.join(command) if command else "",
    )
    return re.sub(r"\n\s*\n+", "\n", html)


def _delete_former(folder: pathlib.Path) -> None:
    """Deletes a former report's files, some of which the new one may not replace."""
    page = folder / PAGE
    if page.is_file():
        for name in set(re.findall(r'<a href="([\w-]+\.(?:csv|png|md|tex))">', page.read_text(encoding="utf-8"))):
            (folder / name).unlink(missing_ok=True)


def _bar_places(bar: Bar) -> dict[str, float | None]:
    """The places of a bar's parts, in units of 1/100 of its width."""
    return {
        "low": round(100 * bar.low, 2),
        "width": round(max(1.5, 100 * (bar.high - bar.low)), 2),
        "value": round(100 * bar.value, 2),
        "chance": None if bar.chance is None else round(100 * bar.chance, 2),
    }


OUTLINES = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "s": "M-3.6-3.6h7.2v7.2h-7.2z",
    "^": "M0-4.4L4.2 3.4h-8.4z",
    "D": "M0-4.8L4.8 0L0 4.8L-4.8 0z",
    "v": "M0 4.4L4.2-3.4h-8.4z",
    "P": "M-1.6-4.4h3.2v2.8h2.8v3.2h-2.8v2.8h-3.2v-2.8h-2.8v-3.2h2.8z",
    "X": "M-4.2-2.2l2-2L0-2l2.2-2.2l2 2L2 0l2.2 2.2l-2 2L0 2l-2.2 2.2l-2-2L-2 0z",
}
"""Outlines of matplotlib's markers around the origin, for legends."""


def dashes(mark: figures.Mark) -> str | None:
    """The ``stroke-dasharray`` of a mark's line: empty for a solid one, None without line."""
    if mark.dash == figures.NO_LINE:
        return None
    return "" if mark.dash == "-" else " ".join(f"{2 * part:g}" for part in mark.dash[1])


def _marker(mark: figures.Mark) -> markupsafe.Markup:
    """A mark as a small image."""
    colour = figures.page_colour(mark.colour)
    outline = f'<path d="{OUTLINES[mark.marker]}" fill="{colour}"/></svg>'
    dash = dashes(mark)
    if dash is None:
        return markupsafe.Markup(
            f'<svg class="swatch" viewBox="-5 -5 10 10" width="14" height="14" aria-hidden="true">{outline}'
        )
    dash = f' stroke-dasharray="{dash}"' if dash else ""
    return markupsafe.Markup(
        '<svg class="swatch" viewBox="-15 -7 30 14" width="30" height="14" aria-hidden="true">'
        f'<path d="M-15 0h30" fill="none" stroke="{colour}" stroke-width="2"{dash}/>{outline}'
    )
