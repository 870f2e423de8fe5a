"""Have language models write WSC+ items, and people judge them: winobench write_items --model=MODEL"""

from __future__ import annotations

import functools
import os
import pathlib
import shlex
import sys
import threading
from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base.errors import InputError
from winobench.base.files import user_path

from . import configuration, output
from .overrides import split

if TYPE_CHECKING:
    from configs.wscplus_generate import Settings

DEFAULT_CONFIG = "wscplus_generate"

USAGE = """
Has language models write new WSC+ items as the paper does: generate, check, have two people judge them, and keep the
items that both call valid (docs/howto/wscplus.md).

1. Generate and check. Responses are on disk at once, and the same command resumes an interrupted run:

  winobench write_items --model=openai:gpt-4o-mini            60 traditional and ambiguous pairs, Tree-of-Experts
  winobench write_items --config=wscplus_generate:efficacy --model=...  4 templates x 2 queries, Figure 3
  winobench write_items --config=wscplus_generate:models --model=A,B,C  several models, Figure 2
  winobench write_items --config=wscplus_generate:batches --model=...          1 to 5 pairs a request, Figure 12
  winobench write_items --config=wscplus_generate:repeats --model=...          11 times 100 sentences, Figure 14
  winobench write_items --model=... --checks.known=WSC+.csv                    no item of this file
  winobench write_items --model=... --offensive=true                           offensive questions as well

2. Judge, two people, each on a page of this computer. Every click is stored, so that a person can leave at any time:

  winobench write_items --workdir=runs/... --annotate=anna    then open the printed address
  winobench write_items --workdir=runs/... --annotate=ben

3. Filter: wscplus.csv in the published layout, agreement, Figures 2, 3 and 12 to 14:

  winobench write_items --workdir=runs/... --finish

winobench eval --config=wscplus evaluates models on the items. Prompts for offensive questions are sent only with
--offensive=true. --check repeats the checks with other limits, without a model.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder, runs/<config>-<models>-<hash> by default.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Delete another run's records in --workdir instead of refusing it.")
_REUSE = flags.DEFINE_bool("reuse", True, "Take responses that runs in the same folder as this run have recorded.")
_CHECK = flags.DEFINE_bool("check", False, "Check the generated items again, with the present limits.")
_ANNOTATE = flags.DEFINE_string("annotate", None, "Serve the page on which this person judges the items.")
_PORT = flags.DEFINE_integer(
    "port", None, "Of the page, by default 8765 or the next free one.", lower_bound=0, upper_bound=65535
)
_FINISH = flags.DEFINE_bool("finish", False, "Keep the items that every annotator calls valid, and make the figures.")

# Fields that leave existing items as they are, so that they may change from call to call.
_FREE = ("requests", "repeats", "checks", "batch_size", "model_parallel", "allow_pickle", "api")
_SOME_CALLS_FAILED = 2


def main(config: Settings) -> None:
    """Runs the step that the flags name: to generate and check without any."""
    steps = [flag.name for flag in (_CHECK, _ANNOTATE, _FINISH) if flag.value]
    if len(steps) > 1:
        raise InputError(f"--{steps[0]} and --{steps[1]} are two steps: give one after the other.", code="bad-command")
    folder = _folder(config)
    if _ANNOTATE.value:
        _annotate(folder, _ANNOTATE.value)
    elif _FINISH.value:
        from winobench.contrib.people.wscplus_items import run

        results = run.finish(folder)
        print(_finished(results, folder))
        output.print_json({"folder": str(folder), "finished": results})
    else:
        if not _CHECK.value:
            _generate(config, folder)
        from winobench.contrib.people.wscplus_items import run

        checks = config.checks
        summary = run.check(
            folder, _known(config), max_changed_words=checks.max_changed_words, similarity=checks.similarity
        )
        print(_checked(summary, folder))
        output.print_json({"folder": str(folder), "checks": summary})
        if summary["failed"]:
            sys.exit(_SOME_CALLS_FAILED)


def _generate(config: Settings, folder: pathlib.Path) -> None:
    from winobench.contrib.people.wscplus_items import prompts, run
    from winobench.scorers import loading

    from . import text

    models = _models(config)
    for model in models:
        loading.resolve(model, loading.TEXTS)
    names = ("offensive", "batch", "requests", "repeats", "temperature", "max_tokens")
    requests = prompts.make_prompts(config.templates, config.queries, **{name: getattr(config, name) for name in names})
    _known(config)
    if config.offensive:
        print("offensive questions are requested: what the models write may offend", file=sys.stderr)
    print(f"records in {folder}", file=sys.stderr)
    run.generate(
        {text.display_name(model): functools.partial(text.load_responder, config, model) for model in models},
        requests,
        folder,
        config=configuration.plain(config),
        overwrite=_OVERWRITE.value,
        reuse=_REUSE.value,
    )


def _annotate(folder: pathlib.Path, name: str) -> None:
    """Serves the page until it is interrupted."""
    from winobench.contrib.people.wscplus_items import annotate as pages
    from winobench.contrib.people.wscplus_items import run

    items = run.accepted_items(folder)
    with (
        pages.annotations(folder / run.ANNOTATIONS, name) as annotations,
        pages.serve(items, annotations, _PORT.value) as server,
    ):
        try:
            print(f"{server.address} is the page of annotator {name}. Clicks go to {annotations.path}")
            print("end it with Ctrl-C. On another device, forward this port to it", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            left = sum(item.id not in annotations.labels for item in items)
            print(f"\n{len(items) - left:,} of {len(items):,} items are judged")


def _checked(summary: dict[str, Any], folder: pathlib.Path) -> str:
    """Counts of items, of reasons against the others, and the next command."""
    first = f"{summary['requests'] - summary['failed']:,} of {summary['requests']:,} requests answered"
    if summary["failed"]:
        first += f" (first failure: {summary['first_failure']}): the same command asks for the others again"
    tokens, cost = summary["tokens"], summary["cost"]
    if tokens["output"] is not None:
        first += f"; {tokens['input'] or 0:,} tokens read, {tokens['output']:,} written"
    if cost is not None:
        first += f", ${cost:,.2f}" if cost >= 0.01 else f", ${cost:.4f}"
    lines = [first]
    for title, part in (("malformed", summary["malformed"]), ("refused by the checks", summary["refused"])):
        if part:
            lines.append(f"{title}: " + ", ".join(f"{reason} {number:,}" for reason, number in part.items()))
    accepted = ", ".join(f"{number:,} {_unit(kind, number)}" for kind, number in summary["accepted"].items())
    lines.append(f"left to judge: {accepted or 'nothing'}. Why others are not: {folder / 'candidates.jsonl'}")
    if "offensive" in summary["accepted"]:
        lines.append("some of them are offensive, and are marked so wherever they are shown")
    if summary["accepted"]:
        command = f"winobench write_items --workdir={shlex.quote(str(folder))}"
        lines.append(f"next: {command} --annotate=NAME, for two people")
    return "\n".join(lines)


def _finished(results: dict[str, Any], folder: pathlib.Path) -> str:
    """Agreement and counts."""
    from winobench.contrib.people.wscplus_items import run

    lines = []
    for names, agreement in results["agreement"].items():
        kappa = "not defined, as all labels are the same" if agreement["kappa"] is None else f"{agreement['kappa']:.3f}"
        share = f"{100 * agreement['agreed']:.1f}% of {agreement['n']:,} items"
        lines.append(f"{names}: agree on {share}, Cohen's kappa {kappa}")
    kept = ", ".join(
        f"{results['kept'][kind]:,} of {number:,} {_unit(kind, number)}" for kind, number in results["items"].items()
    )
    lines.append(f"valid for everyone: {kept}")
    lines.append(f"{results['sentences']:,} sentences are in {folder / run.DATA}")
    if results["kept"].get("offensive"):
        lines.append("some of them are offensive (column type)")
    lines.append(f"next to it: {', '.join(results['files'][1:])}")
    return "\n".join(lines)


def _folder(config: Settings) -> pathlib.Path:
    if _WORKDIR.value:
        return pathlib.Path(user_path(_WORKDIR.value))
    from winobench.runs.records import digest

    from . import text

    models = _models(config)
    settled = {name: value for name, value in configuration.plain(config).items() if name not in _FREE}
    label = "-".join(text.model_label(model) for model in models)
    return pathlib.Path("runs") / f"{configuration.chosen_name(DEFAULT_CONFIG)}-{label}-{digest(settled)[:8]}"


def _models(config: Settings) -> list[str]:
    if models := split(config.model):
        return models
    raise InputError(
        "no model is named: give --model=NAME, such as openai:gpt-4o-mini or a folder. Or, for the later"
        " steps, --workdir=FOLDER.",
        code="nothing-named",
    )


def _known(config: Settings) -> list[str]:
    """The files of known items. Refuses missing ones."""
    paths = split(config.checks.known)
    for path in paths:
        if not os.path.isfile(user_path(path)):
            raise InputError(
                f"--checks.known={path} is not a file: name CSV files in WSC+'s layout.", code="no-such-file"
            )
    return [user_path(path) for path in paths]


def _unit(kind: str, number: int) -> str:
    return f"{kind} {'question' if kind == 'offensive' else 'pair'}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    output.define_json()
    configuration.start(main, launcher="write_items", default=DEFAULT_CONFIG, usage=USAGE)
