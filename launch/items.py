"""Has language models write WSC+ items, and people judge them; what launch.generate does where no prompts are named."""

from __future__ import annotations

import functools
import os
import pathlib
import shlex
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from launch import configuration
from winobench.base.errors import InputError
from winobench.base.files import user_path

if TYPE_CHECKING:
    import ml_collections

# Fields that leave items that are there as they are, so that they may change from call to call.
_FREE = ("requests", "checks", "batch_size", "model_parallel", "allow_pickle", "api")
_SOME_CALLS_FAILED = 2
_EXAMPLE = "wscplus_generate"


class Step(NamedTuple):
    """What is to be done, of which at most one is given. Asking and checking if nothing is.

    Attributes:
      check: check what was generated once more.
      annotate: serve the page on which the person of this name judges the items.
      finish: keep what every annotator calls valid.
    """

    check: bool = False
    annotate: str | None = None
    finish: bool = False


def main(
    config: ml_collections.ConfigDict,
    *,
    spec: str,
    workdir: str | None,
    step: Step,
    port: int,
    overwrite: bool,
    reuse: bool,
) -> None:
    """Does one step of a generation of items.

    Args:
      config: of the form of ``configs/wscplus_generate.py``.
      spec: what the config is called. Begins the default folder's name.
      workdir: the run's folder.
      step: what is to be done.
      port: of the page.
      overwrite, reuse: see `winobench.wscplus_items.run.generate`.
    """
    configuration.require(config, configuration.flat(configuration.load(_EXAMPLE)))
    steps = [name for name, value in step._asdict().items() if value]
    if len(steps) > 1:
        raise InputError(f"--{steps[0]} and --{steps[1]} are two steps: give one after the other.", code="bad-command")
    folder = _folder(config, spec, workdir)
    if step.annotate:
        annotate(folder, step.annotate, port)
    elif step.finish:
        print(finished(folder))
    else:
        if not step.check:
            generate(config, folder, overwrite=overwrite, reuse=reuse)
        summary = check(config, folder)
        print(checked(summary, folder))
        if summary["failed"]:
            sys.exit(_SOME_CALLS_FAILED)


def generate(
    config: ml_collections.ConfigDict, folder: pathlib.Path, *, overwrite: bool = False, reuse: bool = True
) -> None:
    """Asks the config's models.

    Raises:
      InputError: no model is named, or something of the config cannot be.
    """
    from launch import text
    from winobench.responders import loading
    from winobench.wscplus_items import prompts, run

    models = _models(config)
    for model in models:
        loading.check_responder_name(model)
    asked = prompts.make_prompts(
        config.templates,
        config.queries,
        offensive=config.offensive,
        batch=config.batch,
        requests=config.requests,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
    )
    _known(config)
    if config.offensive:
        print("offensive questions are asked for: what the models write may offend", file=sys.stderr)
    print(f"records in {folder}", file=sys.stderr)
    run.generate(
        {text.display_name(model): functools.partial(text.load_responder, config, model) for model in models},
        asked,
        folder,
        config=configuration.plain(config),
        overwrite=overwrite,
        reuse=reuse,
    )


def check(config: ml_collections.ConfigDict, folder: pathlib.Path) -> dict[str, Any]:
    """Checks what was generated and returns what `winobench.wscplus_items.run.check` does."""
    from winobench.wscplus_items import run

    return run.check(
        folder,
        _known(config),
        max_changed_words=config.checks.max_changed_words,
        similarity=config.checks.similarity,
    )


def annotate(folder: pathlib.Path, name: str, port: int) -> None:
    """Serves the page until it is interrupted.

    Raises:
      InputError: there is nothing to judge, the page is open already, or the port is taken.
    """
    from winobench.wscplus_items import annotate as pages
    from winobench.wscplus_items import run

    items = run.accepted_items(folder)
    with (
        pages.annotations(folder / run.ANNOTATIONS, name) as annotations,
        pages.serve(items, annotations, port) as server,
    ):
        print(f"{server.address} is the page of annotator {name}; clicks go to {annotations.path}")
        print("end it with Ctrl-C; on another device, forward this port to it", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            left = sum(item.id not in annotations.labels for item in items)
            print(f"\n{len(items) - left:,} of {len(items):,} items are judged")


def checked(summary: dict[str, Any], folder: pathlib.Path) -> str:
    """What is printed after the checks: how many items there are, why others are not, and what to do next."""
    lines = [f"{summary['requests'] - summary['failed']:,} of {summary['requests']:,} requests answered"]
    if summary["failed"]:
        lines[0] += f" (first failure: {summary['first_failure']}): the same command asks for the others again"
    tokens, cost = summary["tokens"], summary["cost"]
    if tokens["output"] is not None:
        lines[0] += f"; {tokens['input'] or 0:,} tokens read, {tokens['output']:,} written"
    if cost is not None:
        lines[0] += f", ${cost:,.2f}" if cost >= 0.01 else f", ${cost:.4f}"
    for title, part in (("malformed", summary["malformed"]), ("refused by the checks", summary["refused"])):
        if part:
            lines.append(f"{title}: " + ", ".join(f"{reason} {number:,}" for reason, number in part.items()))
    accepted = ", ".join(f"{number:,} {_unit(kind, number)}" for kind, number in summary["accepted"].items())
    lines.append(f"left to judge: {accepted or 'nothing'}; why others are not: {folder / 'candidates.jsonl'}")
    if "offensive" in summary["accepted"]:
        lines.append("some of them are offensive, and are marked so wherever they are shown")
    if summary["accepted"]:
        lines.append(f"next: {_command(folder, '--annotate=NAME')}, for two people")
    return "\n".join(lines)


def finished(folder: pathlib.Path) -> str:
    """Filters, draws, and says what came out."""
    from winobench.wscplus_items import run

    results = run.finish(folder)
    lines = []
    for names, found in results["agreement"].items():
        kappa = "not defined, as all labels are the same" if found["kappa"] is None else f"{found['kappa']:.3f}"
        lines.append(f"{names}: agree on {100 * found['agreed']:.1f}% of {found['n']:,} items, Cohen's kappa {kappa}")
    kept = ", ".join(
        f"{results['kept'][kind]:,} of {number:,} {_unit(kind, number)}" for kind, number in results["items"].items()
    )
    lines.append(f"valid for everyone: {kept}")
    lines.append(f"{results['sentences']:,} sentences are in {folder / run.DATA}")
    if results["kept"].get("offensive"):
        lines.append("some of them are offensive (column type)")
    lines.append(f"beside it: {', '.join(results['files'][1:])}")
    return "\n".join(lines)


def _folder(config: ml_collections.ConfigDict, spec: str, workdir: str | None) -> pathlib.Path:
    if workdir:
        return pathlib.Path(user_path(workdir))
    from launch import text
    from winobench.runs.records import digest

    models = _models(config)
    settled = {name: value for name, value in configuration.plain(config).items() if name not in _FREE}
    label = "-".join(text.model_label(model) for model in models)
    return pathlib.Path("runs") / f"{spec}-{label}-{digest(settled)[:8]}"


def _models(config: ml_collections.ConfigDict) -> list[str]:
    models = [name.strip() for name in (config.model or "").split(",") if name.strip()]
    if not models:
        raise InputError(
            "no model is named: give --config.model=NAME, such as openai:gpt-4o-mini or a folder; or, for the later"
            " steps, --workdir=FOLDER.",
            code="nothing-named",
        )
    return list(dict.fromkeys(models))


def _known(config: ml_collections.ConfigDict) -> list[str]:
    """The files of known items, which are there."""
    paths = [name.strip() for name in (config.checks.known or "").split(",") if name.strip()]
    for path in paths:
        if not os.path.isfile(user_path(path)):
            raise InputError(
                f"--config.checks.known={path} is no file: name CSV files in the layout of WSC+.", code="no-such-file"
            )
    return [user_path(path) for path in paths]


def _unit(kind: str, number: int) -> str:
    return f"{kind} {'question' if kind == 'offensive' else 'pair'}{'' if number == 1 else 's'}"


def _command(folder: pathlib.Path, step: str) -> str:
    return f"python -m launch.generate --workdir={shlex.quote(str(folder))} {step}"
