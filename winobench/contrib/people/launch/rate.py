"""Have people compare the images of two models, blind: winobench rate RUN_A RUN_B --rater=NAME"""

from __future__ import annotations

import pathlib
import shlex
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rich.box
import rich.console
import rich.table
import rich.text
from absl import flags

from winobench.base import registry
from winobench.base.errors import InputError
from winobench.base.files import digest, user_path

from . import configuration, output

if TYPE_CHECKING:
    from winobench.contrib.people.comparison import Comparison

USAGE = """
Has people compare the images of two models without knowing which is which, on a page of this computer (DiffusionITM,
Appendix B, docs/howto/generate_images.md). The words are two runs of winobench generate, RUN:MODEL, or one run of two
models:

  winobench rate RUN_A RUN_B --rater=anna                  serves anna's page at the printed address
  winobench rate RUN --rater=ben                           one run of two models
  winobench rate RUN_A:MODEL RUN_B --finish                the table: who prefers which, with intervals
  winobench rate RUN_A RUN_B --finish --judge=clip-rn50x64,clevr-flow     with automatic judges as well

Every click is stored at once, so that a person can leave the page at any time.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The comparison's folder, runs/compare-<models>-<hash> by default.")
_RATER = flags.DEFINE_string("rater", None, "Serve the page of this person.")
_PORT = flags.DEFINE_integer(
    "port", None, "Of the page, by default 8765 or the next free one.", lower_bound=0, upper_bound=65535
)
_FINISH = flags.DEFINE_bool("finish", False, "Print the table of all judgements.")
_JUDGE = flags.DEFINE_list("judge", [], "With --finish: models that judge automatically, with commas.")

# Of two models' names in the heading of a table of 80 columns.
_ROOM_FOR_NAMES = 18


def main(words: list[str]) -> None:
    from winobench.contrib.people import comparison

    rater, judges = _RATER.value, _JUDGE.value
    if bool(rater) == _FINISH.value:
        raise InputError("give either --rater=NAME for a person's page or --finish for the table", code="bad-command")
    if judges and not _FINISH.value:
        raise InputError("--judge goes with --finish: automatic judges have no page", code="bad-command")
    sides = comparison.sides(words)
    compared = comparison.Comparison(_folder(sides), *sides)
    if rater:
        _serve(compared, rater, words)
        return
    judged = {"judges": {name: _judged(compared, name) for name in judges}}
    results = (compared.finish() if compared.outcomes() or not judges else {}) | judged
    _print_results(compared, results)
    first, second = compared.first.model, compared.second.model
    output.print_json({"first": first, "second": second, "pairs": len(compared.pairs), "results": results})


def _folder(sides: Sequence[Any]) -> pathlib.Path:
    if _WORKDIR.value:
        return pathlib.Path(user_path(_WORKDIR.value))
    labels = "-".join(side.model for side in sides)
    return pathlib.Path("runs") / f"compare-{labels}-{digest([[str(s.run), s.model] for s in sides])[:8]}"


def _serve(compared: Comparison, rater: str, words: Sequence[str]) -> None:
    with compared.serve(rater, _PORT.value) as (server, labels):
        try:
            print(f"{server.address} is the page of {rater}. Clicks go to {labels.path}")
            print("end it with Ctrl-C. On another device, forward this port to it", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            print(f"\n{len(labels.labels):,} of {len(compared.pairs):,} pairs are judged")
            there = [f"--workdir={_WORKDIR.value}"] if _WORKDIR.value else []
            print("next: " + shlex.join(["winobench", "rate", *words, *there, "--finish"]))


def _judged(compared: Comparison, name: str) -> dict[str, Any]:
    from winobench.contrib.people import judges
    from winobench.scorers import loading

    ref = loading.resolve(name)
    return judges.judge(compared, loading.load_scorer(ref), registry.model_label(ref.title))


def _print_results(compared: Comparison, results: Mapping[str, Any]) -> None:
    """Prints who prefers which model: people first, automatic judges below their own line."""
    console = rich.console.Console()
    first, second = compared.first.model, compared.second.model
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("who judges", overflow="fold")
    headings = (first, second, "equal", "% second", "sign test p")
    if len(first) + len(second) > _ROOM_FOR_NAMES:
        headings = ("A", "B", "equal", "% B", "sign test p")
        console.print(rich.text.Text(f"A: {first}\nB: {second}"), soft_wrap=True)
    for heading in headings:
        table.add_column(rich.text.Text(heading), justify="right", no_wrap=True)
    if "all" in results:
        for rater, summary in results["raters"].items():
            _add(table, rater, summary)
        if len(results["raters"]) > 1:
            _add(table, "majority", results["all"])
        for category, summary in results["categories"].items():
            _add(table, f"  {category}", summary)
        paper = results["paper"]
        share = paper["second"] / (paper["first"] + paper["second"])
        table.add_row("paper: SD, HardNeg", *map(str, paper.values()), f"{100 * share:.1f}", "")
    for name, judged in results["judges"].items():
        table.add_section()
        table.add_row("automatic:")
        _add(table, name, judged["all"])
        for category, summary in judged["categories"].items():
            _add(table, f"  {category}", summary)
    console.print(table)
    for note in _notes(compared, results):
        console.print(rich.text.Text(f"  {note}"))


def _add(table: rich.table.Table, name: str, found: Mapping[str, Any]) -> None:
    share, p_value, value = found["share"], found["p_value"], "-"
    if share is not None:
        value = f"{100 * share['value']:.1f} [{100 * share['low']:.0f}, {100 * share['high']:.0f}]"
    counts = (f"{found[name]:,}" for name in ("first", "second", "equal"))
    table.add_row(rich.text.Text(name), *counts, value, "-" if p_value is None else f"{p_value:.3g}")


def _notes(compared: Comparison, results: Mapping[str, Any]) -> list[str]:
    notes = [f"{len(compared.pairs):,} pairs. Shares of decided ones, 95% intervals. The test counts a prompt once"]
    if any(results.get("no_image", {}).values()):
        lacking = " and ".join(f"{number:,} of the {side}" for side, number in results["no_image"].items())
        notes.append(f"Missing images, which are in no pair: {lacking}")
    agreement = results.get("agreement")
    if agreement is not None:
        kappa = "not defined" if agreement["value"] is None else f"{agreement['value']:.3f}"
        if agreement["low"] is not None:
            kappa += f" [{agreement['low']:.3f}, {agreement['high']:.3f}]"
        same = "; ".join(f"{names} {100 * share:.1f}%" for names, share in agreement["same"].items())
        notes.append(
            f"Fleiss' kappa over {agreement['n']:,} pairs that all have judged: {kappa}. The same label: {same}"
        )
    left = [f"{name} {count:,}" for name, count in results.get("left", {}).items() if count]
    if left:
        notes.append(f"left to judge: {', '.join(left)}")
    return [*notes, f"results: {compared.folder}"]


if __name__ == "__main__":
    output.define_json()
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
