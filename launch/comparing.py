"""The part of launch.generate with which people compare pictures: the page, and what is summed up."""

from __future__ import annotations

import pathlib
import shlex
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rich.console
import rich.table
import rich.text

from winobench.base import registry
from winobench.base.errors import InputError
from winobench.base.files import digest, user_path

if TYPE_CHECKING:
    from winobench.generation.comparison import Comparison


def compare(
    words: Sequence[str],
    *,
    rater: str | None,
    finish: bool,
    judges: Sequence[str] = (),
    workdir: str | None = None,
    port: int = 8765,
    dtype: str = "float32",
) -> None:
    """Serves a person's page, or prints the table of all judgements.

    Args:
      words: the two sides, as `winobench.generation.comparison.sides` takes them.
      rater: whose page is served; None where ``finish`` asks for the table.
      finish: print the table.
      judges: models that judge automatically, before the table.
      workdir: the comparison's folder; ``runs/compare-<models>-<hash>`` when None.
      port: of the page.
      dtype: of automatic judges.

    Raises:
      InputError: something of this cannot be.
    """
    from winobench.generation import comparison

    if bool(rater) == finish:
        raise InputError(
            "--compare needs --rater=NAME for a person's page, or --finish for the table: give one of them"
        )
    if judges and not finish:
        raise InputError("--judge goes with --finish: automatic judges have no page")
    sides = comparison.sides(words)
    compared = comparison.Comparison(_folder(sides, workdir), *sides)
    if rater:
        _serve(compared, rater, port, words, workdir)
        return
    results: dict[str, Any] = {"judges": {name: _judged(compared, name, dtype) for name in judges}}
    results = {**(compared.finish() if compared.outcomes() or not judges else {}), **results}
    print_results(compared, results)


def _folder(sides: Sequence[Any], workdir: str | None) -> pathlib.Path:
    if workdir:
        return pathlib.Path(user_path(workdir))
    labels = "-".join(side.model for side in sides)
    return pathlib.Path("runs") / f"compare-{labels}-{digest([[str(s.run), s.model] for s in sides])[:8]}"


def _serve(compared: Comparison, rater: str, port: int, words: Sequence[str], workdir: str | None) -> None:
    with compared.serve(rater, port) as (server, labels):
        print(f"{server.address} is the page of {rater}; clicks go to {labels.path}")
        print("end it with Ctrl-C; on another device, forward this port to it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(f"\n{len(labels.labels):,} of {len(compared.pairs):,} pairs are judged")
            there = f" --workdir={shlex.quote(workdir)}" if workdir else ""
            print(f"next: python -m launch.generate --compare {shlex.join(words)}{there} --finish")


def _judged(compared: Comparison, name: str, dtype: str) -> dict[str, Any]:
    from winobench.generation import judges
    from winobench.scorers import loading

    ref = loading.resolve(name)
    return judges.judge(compared, loading.load_scorer(ref, dtype), registry.model_label(ref.title))


def print_results(
    compared: Comparison, results: Mapping[str, Any], console: rich.console.Console | None = None
) -> None:
    """Prints who prefers what. People first, automatic judges below a line of their own.

    Args:
      compared: the comparison.
      results: of `Comparison.finish`, with ``judges`` {name: of `winobench.generation.judges.judge`}.
      console: where to. Stdout when None.
    """
    console = console or rich.console.Console()
    first, second = compared.first.model, compared.second.model
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("who judges", overflow="fold")
    for heading in (first, second, "equal", "% second", "sign test p"):
        table.add_column(rich.text.Text(heading), justify="right")
    if "all" in results:
        for rater, found in results["raters"].items():
            _add(table, rater, found)
        if len(results["raters"]) > 1:
            _add(table, "majority", results["all"])
        for category, found in results["categories"].items():
            _add(table, f"  {category}", found)
        paper = results["paper"]
        share = paper["second"] / (paper["first"] + paper["second"])
        table.add_row("paper: SD, HardNeg", *map(str, paper.values()), f"{100 * share:.1f}", "")
    for name, judged in results["judges"].items():
        table.add_section()
        _add(table, f"{name} (automatic)", judged["all"])
        for category, found in judged["categories"].items():
            _add(table, f"  {category}", found)
    console.print(table)
    for note in _notes(compared, results):
        console.print(rich.text.Text(f"  {note}"))


def _add(table: rich.table.Table, name: str, found: Mapping[str, Any]) -> None:
    share, p_value = found["share"], found["p_value"]
    value = (
        "-" if share is None else f"{100 * share['value']:.1f} [{100 * share['low']:.0f}, {100 * share['high']:.0f}]"
    )
    counts = (f"{found[name]:,}" for name in ("first", "second", "equal"))
    table.add_row(rich.text.Text(name), *counts, value, "-" if p_value is None else f"{p_value:.3g}")


def _notes(compared: Comparison, results: Mapping[str, Any]) -> list[str]:
    notes = [f"{len(compared.pairs):,} pairs; shares of decided ones, 95% intervals; the test counts a prompt once"]
    agreement = results.get("agreement")
    if agreement is not None:
        kappa = "not defined" if agreement["value"] is None else f"{agreement['value']:.3f}"
        if agreement["low"] is not None:
            kappa += f" [{agreement['low']:.3f}, {agreement['high']:.3f}]"
        same = "; ".join(f"{names} {100 * share:.1f}%" for names, share in agreement["same"].items())
        notes.append(
            f"Fleiss' kappa over {agreement['n']:,} pairs that all have judged: {kappa}; the same label: {same}"
        )
    left = [f"{name} {count:,}" for name, count in results.get("left", {}).items() if count]
    if left:
        notes.append(f"left to judge: {', '.join(left)}")
    return [*notes, f"results: {compared.folder}"]
