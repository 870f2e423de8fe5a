"""Has a judge score the images of runs, and prints the results. For winobench judge and winobench generate --judge."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base import extensions, options, registry
from winobench.base.errors import InputError
from winobench.base.files import digest
from winobench.base.version import __version__
from winobench.runs import endings, judgements, verdicts
from winobench.runs.labels import shortened
from winobench.runs.requests import ImageText, ImageTurn, LazyResponder
from winobench.runs.run_tables import few_mark

from . import output, spending, text

_NOTED, _MOST = 0.05, 0.5  # shares of unread answers that are noted, and that are an error
_ROOM = 200  # letters of a text that the judge reads. Results have all of them

if TYPE_CHECKING:
    from winobench.base.registry import ModelRef
    from winobench.prompts.prompt_files import Prompt
    from winobench.runs.image_runs import Images
    from winobench.runs.judgements import Judgement
    from winobench.runs.requests import Request, Responder


flags.disclaim_key_flags()  # its flag belongs to the launchers that define it


def define_max_pixels() -> flags.FlagHolder:
    """Defines ``--max_pixels`` for a launcher with a judge."""
    return flags.DEFINE_integer(
        "max_pixels", None, "The judge, a Qwen-VL, sees larger images made smaller to this number.", lower_bound=1
    )


def refuse_max_pixels(value: int | None) -> None:
    """Refuses ``--max_pixels`` without a judge."""
    if value is not None:
        raise InputError("--max_pixels has no effect without --judge: leave it out, or name a judge", code="no-effect")


def check(model: str, prompts: Sequence[Prompt], rubric: str | None = None, max_pixels: int | None = None) -> None:
    """Refuses an unknown judge, rubric or bound, and a judge that cannot answer, by names and small files."""
    from winobench.generation import judged
    from winobench.responders import loading
    from winobench.rubrics import named_rubrics

    chosen = named_rubrics.choose(rubric, prompts)
    kinds = loading.answered_kinds(model)
    if kinds is not None:
        judged.kind_for(chosen, text.display_name(model), kinds)
    loading.check_max_pixels(model, max_pixels)


def judge(
    runs: Sequence[Images],
    model: str,
    *,
    label: str | None = None,
    rubric: str | None = None,
    document: Mapping[str, Any] | None = None,
    **how: Any,
) -> None:
    """Judges the images of runs, and prints the results. ``how`` are options of `loading.load_responder`.

    With ``--json``, the results are a part of ``document``.
    """
    from winobench.generation import judged

    for run in runs:
        check(model, run.prompts, rubric, how.get("max_pixels"))
    responder = _later(model, how)
    results, documents = [], []
    for run in runs:
        results.append(judged.judge_images(run, responder, name=text.display_name(model), label=label, rubric=rubric))
        _print(results[-1])
        values, parts = judged.overall(run, results[-1])
        if values:
            means = ", ".join(f"{metric} by {part.who}" for metric, part in parts.items())
            numbers = ", ".join(f"{label} {100 * value:.1f}" for label, value in values.items())
            print(f"overall, %: {numbers}, the mean of {means}")
        print(f"the answers and scores of each image: {run.folder / judgements.FOLDER}")
        documents.append({**_document(results[-1], run), **({"overall": values} if values else {})})
    output.print_json({**(document or {}), "judgements": documents})
    _end(results)


def plan(
    runs: Sequence[Images],
    model: str,
    *,
    label: str | None = None,
    rubric: str | None = None,
    accelerator: str | None = None,
    **how: Any,
) -> None:
    """Prints what `judge` would ask, and what that takes. Nothing is asked, written, or loaded."""
    from winobench.generation import judged
    from winobench.scorers import loading as scorers

    ref = scorers.resolve(model, scorers.IMAGES)
    if ref.kind == registry.PLUGGED_IN:
        raise InputError(
            f"--dry_run loads no model, but only the loaded {options.quote(model)} tells its kinds of answers, as it is"
            " plugged in: leave the option out",
            code="no-effect",
        )
    for run in runs:
        check(model, run.prompts, rubric, how.get("max_pixels"))
    hosted = {**(how.get("hosted") or {}), "sends": False} if ref.kind == registry.HOSTED else None
    responder, name = _later(model, {**how, "hosted": hosted}), text.display_name(model)
    planned = []
    for run in runs:
        estimate, requests = judged.estimate(run, responder, name=name, label=label, rubric=rubric)
        if (local := _local(ref, requests, accelerator, how)) is not None:
            estimate["local"] = local
        planned.append({"folder": str(run.folder), "judge": name, **estimate})
        print(_planned_lines(planned[-1]))
    output.print_json({"judgements": [], "planned": planned})


def _local(
    model: ModelRef, requests: Sequence[Request], accelerator: str | None, how: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Memory and time of a local judge. None where no installed package knows them."""
    planned = None
    if accelerator or (model.is_checkpoint and "judging_plan" in extensions.added(extensions.PARTS)):
        options_of_plan = {name: how[name] for name in ("dtype", "batch_size", "model_parallel")}
        planner = extensions.find(extensions.PARTS, "judging_plan")
        planned = planner.estimate(model, requests, accelerator, **options_of_plan)
    if accelerator and requests and planned is None:
        raise InputError(
            f"--accelerator has no effect on {options.quote(model.name)}, whose time is unknown: leave it out",
            code="no-effect",
        )
    return planned


def _planned_lines(planned: Mapping[str, Any]) -> str:
    """Missing requests, and their tokens and price, or memory and time."""
    of = f"{planned['questions']:,} questions about {planned['images']:,} images"
    lines = [
        f"{planned['judge']} by {planned['rubric']}: {of}",
        f"  {planned['missing']:,} of {planned['requests']:,} requests are missing",
    ]
    if planned["open"]:
        lines.append(
            f"  {planned['open']:,} images have more questions, which follow these answers and are not counted"
        )
    if "tokens" in planned:
        tokens, costs = planned["tokens"], planned["costs"]
        parts = spending.tokens_in_words(tokens)
        if tokens["input"] is None:
            parts = ["tokens read not known (no published rule for this model's images)", *parts]
        is_part = planned["cost"] is None and costs["output"] is not None
        parts.append(f"{spending.dollars(costs['output'])} for these" if is_part else spending.dollars(planned["cost"]))
        lines.append(f"  at most, an answer each: {'; '.join(parts)}")
    if local := planned.get("local"):
        is_timed = planned["kind"] not in (ImageText.kind, ImageTurn.kind)
        lines.append(f"  {_local_words(local, is_timed)}")
    return "\n".join(lines)


def _local_words(local: Mapping[str, Any], is_timed: bool) -> str:
    weights = f"weights of {local['weights'] / 1e9:,.1f} GB on each device"
    if "accelerator" not in local:
        return f"{weights}{'. --accelerator=h100 estimates the time' if is_timed else ''}"
    words = f"{local['accelerator']}: {weights}, of {local['usable'] / 1e9:,.1f} GB"
    if not local["fits"]:
        return f"{words}, which does not fit: name more devices, or a smaller dtype"
    return words if local["seconds"] is None else f"{words}; {local['seconds'] / 60:,.1f} minutes"


def _document(judgement: Judgement, run: Images) -> dict[str, Any]:
    return {"folder": str(run.folder), **dataclasses.asdict(judgement)}


def _later(model: str, how: Mapping[str, Any]) -> Responder | LazyResponder:
    """A judge that is loaded when it is needed. One that answers elsewhere, or of another package, is there at once."""
    from winobench.responders import loading
    from winobench.scorers import loading as scorers

    ref = scorers.resolve(model, scorers.IMAGES)
    load = functools.cache(lambda: loading.load_responder(ref, about_images=True, **how))
    if ref.kind is None or not ref.is_checkpoint:
        return load()
    state = loading.files_state(ref)
    given = {name: value for name, value in sorted(how.items()) if name != "hosted" and value is not None}
    files = None if state is None else digest([state, given, __version__])
    return LazyResponder(loading.answered_kinds(ref) or frozenset(), files, load)


def judge_people(folder: str, source: str, prompts: str, model: str, *, label: str | None = None, **how: Any) -> None:
    """Judges the images of GenEval's study, and prints how far the judge agrees with people."""
    from winobench.generation import judged
    from winobench.prompts.named_sets import read_prompts
    from winobench.responders import loading

    geneval_people = extensions.find(extensions.PARTS, "geneval_people")
    run, people = geneval_people.read_study(source, read_prompts(f"geneval:{prompts}"), folder)
    responder = loading.load_responder(model, about_images=True, **how)
    name = text.display_name(model)
    rows = geneval_people.judge_study(run, people, responder, name=name, label=label)
    print(f"{name} by {geneval_people.RUBRIC}, against most of five people")
    columns = {
        "same verdict": {group: row | {"value": row["accuracy"]} for group, row in rows.items()},
        "Cohen's kappa": {
            group: {"value": row["kappa"], "low": row["kappa_low"], "high": row["kappa_high"]}
            for group, row in rows.items()
            if row["kappa"] is not None
        },
        "judge says correct": {group: {"value": row["judge"], "low": None} for group, row in rows.items()},
        "people say correct": {group: {"value": row["people"], "low": None} for group, row in rows.items()},
    }
    print_models("images in %, kappa x 100", columns)
    print(f"the answers and the agreement: {run.folder / judgements.FOLDER}")
    judgement = judgements.read(judged.folder_of(run, geneval_people.RUBRIC, name, label))
    output.print_json({"judgements": [_document(judgement, run)], "people": rows})
    _end([judgement])


def _end(results: Sequence[Judgement]) -> None:
    """Says in the last line how much is missing from results. Fails where that is most of them."""
    unread = max(judgement.unread for judgement in results)
    missing = sum(judgement.num_missing for judgement in results)
    total = missing + sum(judgement.num_images for judgement in results)
    notes = []
    if missing:
        notes.append(f"{missing:,} of {total:,} images lack an answer and count nowhere")
    if unread > _NOTED:
        notes.append(f"{unread:.0%} of the answers could not be read (metric unread)")
    if not notes:
        return
    sentence = f"{' and '.join(notes)}: look at scores.jsonl, or name another judge"
    if unread > _MOST or missing > _MOST * total:
        raise InputError(sentence, code="incomplete-answers")
    print(f"warning: {sentence}", file=sys.stderr)


def print_models(heading: str, of_models: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Prints a table with a row for each name of values in [0, 1], and a column for each model's label."""
    import rich.box
    import rich.console
    import rich.table
    import rich.text

    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(heading, overflow="fold")
    for label in of_models:
        table.add_column(rich.text.Text(label), justify="right", no_wrap=True)
    for row in dict.fromkeys(name for rows in of_models.values() for name in rows):
        cells = [rich.text.Text(_cell(rows.get(row))) for rows in of_models.values()]
        table.add_row(rich.text.Text(row.replace("_", " ")), *cells)
    rich.console.Console().print(table)


def verify(run: Images) -> dict[str, Any]:
    """Prints how often images show what their prompts ask for, if the verifier knows the prompts, and returns it."""
    part = "verification"
    if part not in extensions.added(extensions.PARTS):
        return {}
    verification = extensions.find(extensions.PARTS, part)
    if not verification.can_verify(run):
        return {}
    found = verification.verify(run)
    accuracy = verdicts.generation_accuracy(run, found)
    print_missing(verdicts.judgement_of(run, found))
    print_models("generated as asked, %", accuracy)
    print(f"what the verifier found in each image: {verdicts.folder_of(run.folder, verdicts.VERIFIER)}")
    return {"verified": accuracy}


def print_missing(judgement: Judgement) -> None:
    """Prints how many images each model lacks."""
    for sentence in judgements.missing_in_words(judgement).values():
        print(f"  no image: {sentence}")


def _cell(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "-"
    scale = 1 if entry.get("is_count") else 100
    ends = "" if entry["low"] is None else f" [{scale * entry['low']:.0f}, {scale * entry['high']:.0f}]"
    return f"{scale * entry['value']:.1f}{ends}{few_mark(entry)}"


def _print(judgement: Judgement) -> None:
    """Prints a judgement: who judged, the text that the judge read, and a table."""
    amounts = f"{judgement.num_images:,} images and {judgement.num_questions:,} questions"
    print(f"{judgement.rubric}: {amounts}, judged by {judgement.who}")
    for said in judgement.wordings:
        print(f"  {shortened(' '.join(said.split()), _ROOM)}")
    if judgement.left_out:
        print(f"  left out: {judgement.left_out:,} images, about whose prompts the rubric has no question")
    if judgement.missing:
        advice = endings.missing(judgement.missing)
        print(f"  missing: {judgement.num_missing:,} images lack an answer, {advice}")
    print_missing(judgement)
    rows = {
        label: {
            f"{metric}, {group}{' (count)' if entry.get('is_count') else ''}": entry
            for metric, groups in metrics.items()
            for group, entry in groups.items()
        }
        for label, metrics in judgement.models.items()
    }
    print_models("score, %", rows)
