"""Results as tables in the terminal, next to the paper's numbers."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import rich.box
import rich.console
import rich.padding
import rich.table
import rich.text

from winobench.base import text_tables
from winobench.data import published_numbers
from winobench.data.published_numbers import PublishedNumber
from winobench.metrics import RATING_METRICS, family_wise
from winobench.metrics.association import AVERAGE
from winobench.report import published
from winobench.report.wording import probability

if TYPE_CHECKING:
    from winobench.report.comparison import Comparison

# Rows of sub-tasks a task, for the groups with most examples: ARO and Winoground have a hundred and more.
_MAX_PART_ROWS = 12
_STAR_LEVEL = 0.01  # of the paper's stars, which are one-sided
_ASSOCIATION = "/association"
_SIGNED_WIDTH = len("-0.00")  # of an effect size without its star


def print_results(
    results: Mapping[str, Any], console: rich.console.Console | None = None, *, paper: bool = False
) -> None:
    """Prints the results in tables that fit 80 characters, each row of which has its key in ``results.json``.

    - A row a metric, in percent: value, 95% interval, chance level, number of examples, of independent examples where
      some share an image, and of ties. Sub-tasks, most examples first, follow their task. ``/accuracy`` is left out of
      their names.
    - A row a target pair of bias tasks: effect size, with a star where the one-sided p is below 0.01, interval, p
      one- and two-sided, number of images. Then a row a group of images.
    - A row a measure of agreement with people's ratings, and then of the ranking of images by labels: value, 95%
      interval, chance, number of images, of prompts and of ties.
    - A column ``paper`` where the paper has any of the numbers for the same model, and below the places of its rows.
      With ``paper`` a row of its own for each number of another model, such as Stable Diffusion 2.1.
    - Tasks whose scores are equal over images or texts, and tasks that failed, each with its reason.
    """
    console = console or rich.console.Console()
    references = published.references(results)
    others = published.references(results, of_others=True) if paper else {}
    bias = {task: entries for task, entries in results["tasks"].items() if AVERAGE in entries}
    agreements = [metric.headline for metric in RATING_METRICS.values()]
    rated = {
        task: entries
        for task, entries in results["tasks"].items()
        if any("prompts" in entries.get(headline, ()) for headline in agreements)
    }
    answered = {task: entries for task, entries in results["tasks"].items() if task not in bias and task not in rated}
    if answered:
        console.print(_accuracy_table(answered, references, others))
        if any(map(_shares, answered.values())):
            _print_notes(console, [independence_note(is_text="protocols" in results)])
    ranked = {task: rated.pop(task) for task in list(rated) if "mean_average_precision" in rated[task]}
    for entries, heading in ((rated, "agreement with people"), (ranked, "ranking of images")):
        if entries:
            console.print(_accuracy_table(entries, references, others, first=heading, scale=1, digits=3))
    if bias:
        console.print(_bias_table(bias, references, others))
        _print_notes(console, _bias_notes(bias))
        console.print(_group_table(bias))
    if flat := constant_notes(results["tasks"]):
        _print_notes(console, flat)
    for numbers in filter(None, (references, others)):
        _print_notes(console, _reference_notes(numbers.values(), of_others=numbers is others))
    if results.get("race"):
        _print_notes(console, _race_notes(results["race"]))
    if results.get("failed"):
        console.print(rich.text.Text("not evaluated", "bold"))
        _print_notes(console, [f"{task}: {reason}" for task, reason in results["failed"].items()])


def print_differences(
    comparison: Comparison, *, groups: bool = False, console: rich.console.Console | None = None
) -> None:
    """Prints the differences of two runs in a table that fits 80 characters, a row a metric below its task.

    ``groups`` adds the rows of sub-tasks. `winobench.report.comparison.Comparison.table` explains the marks.
    """
    console = console or rich.console.Console()
    console.print(rich.text.Text(f"A: {comparison.first}\nB: {comparison.second}"))
    shown = [difference for difference in comparison.differences if groups or not difference.group]
    table = _table("task and metric", ["A %", "B %", "B - A", "", "95% interval", "p", "p ad-\njusted", "n"])
    for task, rows in itertools.groupby(shown, lambda difference: difference.task):
        table.add_row(rich.text.Text(task, "bold"))
        for row in rows:
            low, high = (text_tables.percent(end, sign=True) for end in (row.low, row.high))
            table.add_row(
                rich.text.Text(f"    {row.name.removesuffix('/accuracy')}" if row.group else f"  {row.name}"),
                *map(text_tables.percent, (row.first, row.second)),
                text_tables.percent(row.value, sign=True),
                row.mark,
                f"{low} to {high}",
                *map(probability, (row.p_value, row.p_adjusted)),
                f"{row.num_examples:,}",
                style="dim" if row.group else None,
            )
        table.add_section()
    console.print(table)
    only_first = sum(flip.first_is_right for flip in comparison.flips)
    _print_notes(
        console,
        [
            "● clear: the adjusted p is at most 5%, and the answers to at least ten independent"
            f" {'pairs' if comparison.is_text else 'images'} differ. ○: only the interval excludes 0.",
            f"Questions that only A has right: {only_first:,}. Only B: {len(comparison.flips) - only_first:,}.",
            *comparison.notes,
        ],
    )


def independence_note(*, is_text: bool) -> str:
    """The meaning of ``independent``, in one line."""
    shared = "belong to no common pair" if is_text else "share no image"
    return f"independent: at least so many of the n examples {shared}. They decide how wide the interval is."


def _shares(entries: Mapping[str, Any]) -> bool:
    """Whether examples of a task depend on each other."""
    return any(entry.get("independent", entry["n"]) < entry["n"] for entry in entries.values())


def constant_notes(tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence for each task whose scores are equal over its candidates."""
    found = {task: next((e["constant"] for e in rows.values() if "constant" in e), 0) for task, rows in tasks.items()}
    return [
        f"{task}: the scores are equal over all {what} in nearly all examples. The numbers say nothing about the model:"
        " check its weights, its processor and its options."
        for task, what in found.items()
        if what
    ]


def _race_notes(race: Mapping[str, Any]) -> list[str]:
    """The passes of a race, compared with the passes of all samples."""
    questions, undecided = (sum(of[key] for of in race["tasks"].values()) for key in ("questions", "undecided"))
    return [
        f"race: {race['passes']:,} passes, {race['fixed_passes'] / race['passes']:.1f} times fewer than the"
        f" {race['fixed_passes']:,} of all samples; {undecided:,} of {questions:,} questions took all"
    ]


def _accuracy_table(
    tasks: Mapping[str, Mapping[str, Any]],
    references: Mapping[tuple[str, str], PublishedNumber],
    others: Mapping[tuple[str, str], PublishedNumber],
    *,
    first: str = "task and metric",
    scale: int = 100,
    digits: int = 1,
) -> rich.table.Table:
    """The rows of tasks whose numbers lie between 0 and 1, in percent, or between -1 and 1, as they are."""

    def formatted(value: float) -> str:
        return f"{scale * value:.{digits}f}"

    def printed(number: PublishedNumber | None) -> str:
        if number is None:
            return ""
        return number.printed if scale == 100 else formatted(number.value)

    has_paper = any(task in tasks for task, _ in references)
    paper_heading = ["paper"] if has_paper else []
    # Units that are independent: prompts of rated images, and examples without a common image.
    counts = {"prompts": "prompts"} if scale == 1 else {"independent": "inde-\npendent"}
    if scale == 100 and not any(map(_shares, tasks.values())):
        counts = {}
    headings = ["%" if scale == 100 else "value", "95% interval", "chance", *paper_heading, "n", *counts.values()]
    headings.append("ties")
    table = _table(first, headings)
    for task, entries in tasks.items():
        table.add_row(rich.text.Text(task, "bold"))
        shown = _printed_parts(entries)
        for name, entry in entries.items():
            is_part = "/" in name
            if is_part and name not in shown:
                continue
            reference, other = (numbers.get((task, name)) for numbers in (references, others))
            table.add_row(
                rich.text.Text(f"    {name.removesuffix('/accuracy')}" if is_part else f"  {name}"),
                formatted(entry["value"]),
                f"{formatted(entry['low'])} to {formatted(entry['high'])}",
                "" if entry["chance"] is None else formatted(entry["chance"]),
                *([printed(reference)] if has_paper else []),
                f"{entry['n']:,}",
                *(f"{entry[key]:,}" if key in entry else "" for key in counts),
                f"{entry['ties']:,}",
                style="dim" if is_part else None,
            )
            if other is not None:
                table.add_row(rich.text.Text(f"{'    ' * is_part}    {published.title(other)}"), printed(other))
        num_groups = len({_group(name) for name in entries if "/" in name} - {_group(name) for name in shown})
        if num_groups:
            table.add_row(rich.text.Text(f"    {num_groups} more groups in results.json"), style="dim")
        table.add_section()
    return table


def _printed_parts(entries: Mapping[str, Any]) -> set[str]:
    """Keys of the sub-tasks with most examples, as many as fit. All metrics of a sub-task or none."""
    groups = collections.defaultdict(list)
    for name in entries:
        if "/" in name:
            groups[_group(name)].append(name)
    by_size = sorted(groups.values(), key=lambda names: -entries[names[0]]["n"])
    rows_a_group = max(map(len, by_size), default=1)
    return {name for names in by_size[: max(1, _MAX_PART_ROWS // rows_a_group)] for name in names}


def _group(name: str) -> str:
    return name.rpartition("/")[0]


def _bias_table(
    tasks: Mapping[str, Mapping[str, Any]],
    references: Mapping[tuple[str, str], PublishedNumber],
    others: Mapping[tuple[str, str], PublishedNumber],
) -> rich.table.Table:
    has_paper = any(task in tasks for task, _ in references)
    headings = ["d", "95% interval", *(["paper"] if has_paper else []), "p one-\nsided", "p two-\nsided", "n"]
    table = _table("bias of X against Y", headings)
    for column in table.columns:
        if column.header in ("d", "paper"):  # stars are behind digits that are below each other
            column.justify = "left"
            column.header = f"{column.header:>{_SIGNED_WIDTH}}"
    for task, entries in tasks.items():
        table.add_row(rich.text.Text(task, "bold"))
        pairs = [name for name in entries if name != AVERAGE and not _is_group_row(name)]
        together = dict(zip(pairs, family_wise(entries[name]["p_one_sided"] for name in pairs), strict=True))
        for name in [*pairs, AVERAGE]:
            entry, reference, other = entries[name], references.get((task, name)), others.get((task, name))
            paper = [_starred_reference(reference)]
            table.add_row(
                rich.text.Text("  average |d|" if name == AVERAGE else f"  {name}"),
                _starred(f"{entry['value']:.2f}", entry.get("p_one_sided", 1.0) < _STAR_LEVEL)
                + ("†" if together.get(name, 1.0) < _STAR_LEVEL else ""),
                _interval(entry, ".2f"),
                *(paper if has_paper else []),
                *(_probability(entry.get(key)) for key in ("p_one_sided", "p_two_sided")),
                f"{entry['n']:,}",
            )
            if other is not None:
                table.add_row(rich.text.Text(f"    {published.title(other)}"), _starred_reference(other))
        table.add_section()
    return table


def _interval(entry: Mapping[str, Any], spec: str) -> str:
    return f"{entry['low']:{spec}} to {entry['high']:{spec}}" + ("\nn too small" if entry.get("too_few") else "")


def _is_group_row(name: str) -> bool:
    return name.endswith(_ASSOCIATION) or f"{_ASSOCIATION} in " in name


def _starred(number: str, has_star: bool | None) -> str:
    return number.rjust(_SIGNED_WIDTH) + ("*" if has_star else "")


def _starred_reference(number: PublishedNumber | None) -> str:
    return "" if number is None else _starred(number.printed.rstrip("*"), number.significant)


def _probability(p: float | None) -> str:
    return "" if p is None else f"{p:.4f}" if p >= 0.00005 else "<0.0001"


def _bias_notes(tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = [entry for entries in tasks.values() for entry in entries.values()]
    largest = max(entry.get("permutations", 0) for entry in rows)
    notes = [
        "d is above 0 where images of X, the first group, match the first texts (pleasant ones, in mmbias) better than "
        f"images of Y do. * p < {_STAR_LEVEL}, one-sided towards X, from {largest:,} permutations or all there are. "
        "† also after Holm's adjustment for all pairs of the task."
    ]
    if any(entry.get("too_few") for entry in rows):
        notes.append(
            "n too small: a group has fewer than ten images, or some lie far from the others. Such intervals miss the "
            "truth more often."
        )
    for task, entries in tasks.items():
        average = entries[AVERAGE]
        notes.append(f"{task}: without any bias, average |d| would be about {average['without_bias']:.2f}.")
        notes += [f"{task}: {pair} is left out: {reason}." for pair, reason in average["left_out"].items()]
    return notes


def _group_table(tasks: Mapping[str, Mapping[str, Any]]) -> rich.table.Table:
    table = _table("group of images", ["association", "95% interval", "n"])
    for task, entries in tasks.items():
        rows = {name: entry for name, entry in entries.items() if _is_group_row(name)}
        # Three digits of the largest number, and as many decimals for the others of its task.
        largest = max(max(abs(entry["low"]), abs(entry["high"])) for entry in rows.values())
        spec = f".{max(0, 2 - math.floor(math.log10(largest)))}f" if largest else ".0f"
        table.add_row(rich.text.Text(task, "bold"))
        for name, entry in rows.items():
            table.add_row(
                rich.text.Text(f"  {name.replace(_ASSOCIATION, '', 1)}"),
                f"{entry['value']:{spec}}",
                _interval(entry, spec),
                f"{entry['n']:,}",
            )
        table.add_section()
    return table


def _reference_notes(references: Iterable[PublishedNumber], *, of_others: bool) -> list[str]:
    """The places of the paper's numbers, and the models and numbers of samples of its rows."""
    references = list(references)
    if references[0].paper in published_numbers.TEXT_BENCHMARKS:
        return _text_reference_notes(references)
    rows: dict[tuple[str, int | None], dict[str, set[str]]] = {}
    for number in references:
        rows.setdefault((number.model or "", number.num_samples), {}).setdefault(number.method, set()).add(number.place)
    cited = [published_numbers.source(paper) for paper in dict.fromkeys(number.paper for number in references)]
    said = "; ".join(f"{paper['short']}, arXiv:{paper['arxiv']}" for paper in cited)
    notes = [f"paper: {said}, on the published data"]
    if of_others:
        notes[0] += ". Its images and samples may differ from the run's"
    for (name, num_samples), methods in rows.items():
        samples = f", {num_samples} samples a pair" if num_samples else ""
        places = "; ".join(f'"{method}" in {", ".join(sorted(places_of))}' for method, places_of in methods.items())
        notes.append(f"  {name}{samples}: {places}")
    metrics_of: dict[str, list[str]] = {}
    for number in references:
        if number.note:
            metrics_of.setdefault(number.note, []).append(number.metric)
    notes += [f"  paper's {', '.join(metrics)}: {note}" for note, metrics in metrics_of.items()]
    return notes


def _text_reference_notes(references: Iterable[PublishedNumber]) -> list[str]:
    """The places of the numbers in the text benchmarks' papers."""
    places: dict[str, dict[str, set[str]]] = {}
    for number in references:
        places.setdefault(number.paper, {}).setdefault(number.method, set()).add(number.place)
    notes = []
    for benchmark, methods in places.items():
        cited = published_numbers.source(benchmark)
        where = f", arXiv:{cited['arxiv']}" if "arxiv" in cited else ""
        notes.append(f"paper: {cited['short']}{where}, on the published data")
        notes += [f"  {method}: {'; '.join(sorted(metrics))}" for method, metrics in methods.items()]
    return notes


def _table(first: str, headings: list[str]) -> rich.table.Table:
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    # Only names may be broken where the terminal is narrow.
    table.add_column(first, overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _print_notes(console: rich.console.Console, notes: list[str]) -> None:
    for note in notes:
        console.print(rich.padding.Padding(rich.text.Text(note), (0, 0, 0, 2)))
    console.print()
