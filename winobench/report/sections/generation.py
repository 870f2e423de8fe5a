"""Does a model generate what it understands? Its matching against its generation, skill by skill.

Two sections: right or wrong images of scenes against the task clevr, and a judge's scores by a rubric against all tasks
of a skill.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from winobench import metrics
from winobench.metrics import Interval
from winobench.report import analysis, figures
from winobench.report.cells import NUMBER_COLUMNS, Cell, Table, TableRow
from winobench.report.figures import Panel
from winobench.report.sections.shared import ReportData, Section
from winobench.report.wording import DASH, above_chance, number, percent, readable
from winobench.rubrics import named_rubrics
from winobench.runs import judgements
from winobench.runs.image_runs import Images
from winobench.runs.judgements import Judgement
from winobench.runs.run import Run
from winobench.runs.run_tables import few_mark
from winobench.runs.verdicts import generation_accuracy, judge_of, judgement_of, read_verdicts
from winobench.tasks import TASKS
from winobench.tasks.base import SKILLS

_TASK = "clevr"
# Scorers that ask a model about an image.
_ASKS = ("vqa_score", "hosted_vqa_score")
_ANSWERS = "answers: % of the way from chance"


@dataclasses.dataclass(frozen=True)
class _Point:
    """A skill of a model, by one rubric and judge."""

    run: int  # number of the run that matched
    skill: str
    matching: Mapping[str, Any]  # "value", "low", "high", and "n" where it is known
    generation: Mapping[str, Any]
    rubric: str
    judge: str
    columns: Mapping[str, str]  # further ones of the CSV file
    few_mark: str = ""  # behind the interval of `generation`
    answers: Mapping[str, Any] | None = None  # as `matching`, of a run that asks the same model


def generation_section(report_data: ReportData) -> Section | None:
    """A point for each skill of each model that judged and generated scenes with the same weights."""
    points = list(_verified_points(report_data))
    if not points:
        return None
    description = "Accuracy of generation against accuracy of matching, a point for each skill of each model"
    names = ("told apart, %", "generated as asked, %")
    panels = [_panel(report_data, points, "Generated as asked and told apart", description, names)]
    panels += _panels_of_answers(report_data, points, "", (names[0], "told apart by answers, %", names[1]))
    texts = [
        "Each point is a skill of a model. Across: how often it tells the true caption of a rendered scene from a "
        "false one (the task clevr; chance 50%). Up: how often images that it generated show what their prompts"
        f" ask for, judged by the {' and the '.join(dict.fromkeys(point.judge for point in points))}.",
        f"Over all {len(points)} points, {_correlation(points)}, as if points were independent. Skills of one model"
        " are not.",
        *_about_answers(points),
        *_known_by_name(report_data),
    ]
    title = "Does it generate what it understands?"
    columns = ["model and skill", *names]
    return _section(report_data, "generation", title, texts, points, panels, columns, ("judged", "generated"))


def understanding_section(report_data: ReportData) -> Section | None:
    """A point for each skill of each model that matched, and whose images a judge has scored."""
    points = list(_judged_points(report_data))
    if not points:
        return None
    by_judge: dict[tuple[str, str], list[_Point]] = {}
    for point in points:
        by_judge.setdefault((point.rubric, point.judge), []).append(point)
    names, panels = ("matching: % of the way from chance", "generation: judge's score, %"), []
    for (rubric, judge), own in by_judge.items():
        description = f"Generation against matching by {rubric}, a point for each skill of each model"
        panels.append(_panel(report_data, own, f"{rubric}, judged by {judge}", description, names))
        panels += _panels_of_answers(report_data, own, f"{rubric}: ", (names[0], _ANSWERS, names[1]))
    texts = [
        "Each point is a skill of a model. Across: the mean over the skill's tasks of"
        " (accuracy − chance) / (1 − chance). Up: the mean score that an automatic judge gives to the skill in"
        " generated images. Intervals are 95%, as if tasks were independent.",
        *(f"{rubric}, {judge}: {_correlations(own)}" for (rubric, judge), own in by_judge.items()),
        *_about_answers(points),
        *_known_by_name(report_data),
    ]
    title = "Matching and generation, skill by skill"
    columns = ["model and skill", "rubric and judge", "matching, above chance, %", "generation, %"]
    return _section(report_data, "understanding", title, texts, points, panels, columns, ("matching", "generation"))


def matching_models(report_data: ReportData) -> Iterator[tuple[int, Run, Images, str]]:
    """Number and run of a model that matched, the images that it generated, and its label there.

    It has the same weights or, if another program made the images, the same name.
    """
    for images in report_data.image_runs:
        for run_number, run in enumerate(report_data.runs):
            weights = run.config["identity"].get("scorer", {}).get("model")
            for model in images.models:
                is_named = images.is_collected and model.name == run.config.get("model")
                if weights and (model.fingerprint == weights or is_named):
                    yield run_number, run, images, model.label


def _asking_run(report_data: ReportData, run: Run) -> Run | None:
    """The run that asks the same weights about images; None if no run does, or if this run does."""
    scorer = run.config["identity"].get("scorer", {})
    if scorer.get("scorer") in _ASKS:
        return None
    for other in report_data.runs:
        asks = other.config["identity"].get("scorer", {})
        if asks.get("scorer") in _ASKS and asks.get("model") == scorer.get("model"):
            return other
    return None


def _about_answers(points: list[_Point]) -> list[str]:
    """Sentences on a model's answers as a third measure, if any model has them."""
    points = [point for point in points if point.answers]
    if not points:
        return []
    others = " and ".join(
        f"with {name}, {_correlation(points, ('answers', name))}" for name in ("matching", "generation")
    )
    return [
        "Answers are a third measure: the same weights answer whether an image shows a text, and the probability of yes"
        f" decides the tasks of matching. Over the {len(points)} points that have them: {others}."
    ]


def _known_by_name(report_data: ReportData) -> list[str]:
    """A sentence on the models of which only the name is known."""
    names = [label for _, _, images, label in matching_models(report_data) if images.is_collected]
    return [f"Other programs made the images of {', '.join(dict.fromkeys(names))}: only the name is known."] * any(
        names
    )


def _verified_points(report_data: ReportData) -> Iterator[_Point]:
    for run_number, run, images, label in sorted(_scoring_models(report_data), key=lambda model: model[0]):
        asking = _asking_run(report_data, run)
        verdicts = read_verdicts(images.folder)
        lacking = _lacking(judgement_of(images, verdicts), label)
        matched, answered = (of.tasks[_TASK].results if of and _TASK in of.tasks else {} for of in (run, asking))
        for skill, generation in generation_accuracy(images, verdicts)[label].items():
            if (matching := matched.get(f"{skill}/accuracy")) is not None:
                entry = {name: matching[name] for name in NUMBER_COLUMNS}
                judge = judge_of(verdicts) or ""
                columns = {"generation_judge": judge, "no_image": lacking}
                answers = answered.get(f"{skill}/accuracy")
                answers = answers and {name: answers[name] for name in NUMBER_COLUMNS}
                yield _Point(run_number, skill, entry, generation, "", judge, columns, answers=answers)


def _judged_points(report_data: ReportData) -> Iterator[_Point]:
    current: dict[int, list[Judgement]] = {}
    for run_number, run, images, label in _scoring_models(report_data):
        if id(images) not in current:
            current[id(images)] = [judged for judged in judgements.read_all(images) if _is_current(judged)]
        for judged in current[id(images)]:
            yield from _points_of(run_number, run, _asking_run(report_data, run), label, judged)


def _scoring_models(report_data: ReportData) -> Iterator[tuple[int, Run, Images, str]]:
    """As `matching_models`, without runs that are the answers of another run's model."""
    answers = [id(_asking_run(report_data, run)) for run in report_data.runs]
    return (model for model in matching_models(report_data) if id(model[1]) not in answers)


def _is_current(judged: Judgement) -> bool:
    """Whether results are of a rubric as it is now. A warning names results of an earlier version."""
    is_outdated = named_rubrics.is_outdated(judged)
    if is_outdated:
        warnings.warn(
            f"results of {judged.judge} by {judged.rubric} are of version {judged.version} and left out, since the"
            f" rubric now has version {named_rubrics.RUBRICS[judged.rubric].version}: give the same winobench judge"
            " command again",
            stacklevel=2,
        )
    return judged.rubric in named_rubrics.RUBRICS and not is_outdated


def _points_of(run_number: int, run: Run, asking: Run | None, label: str, judged: Judgement) -> Iterator[_Point]:
    results = judged.models.get(label, {})
    groups = named_rubrics.RUBRICS[judged.rubric].skills
    for skill in SKILLS:
        entries = [
            results[metric][group]
            for (metric, group), measured in groups.items()
            if measured == skill and group in results.get(metric, {})
        ]
        matched = dict(_matched(run, skill))
        if entries and matched:
            generation = metrics.mean_of_means([*map(judgements.interval, entries)])._asdict()
            matching = metrics.mean_of_means([*matched.values()])._asdict()
            rubric, judge, mark = judged.rubric, judged.who, max(map(few_mark, entries))
            columns = {"tasks": " ".join(matched), "rubric": rubric, "judge": judge}
            columns["no_image"] = _lacking(judged, label)
            answered = dict(_matched(asking, skill)) if asking else {}
            answers = metrics.mean_of_means([*answered.values()])._asdict() if answered else None
            yield _Point(run_number, skill, matching, generation, rubric, judge, columns, mark, answers)


def _lacking(judged: Judgement, label: str) -> str:
    """A sentence on the images that a model lacks, empty if it has all."""
    return judgements.missing_in_words(judged).get(label, "")


def _matched(run: Run, skill: str) -> Iterator[tuple[str, Interval]]:
    """The tasks of a skill, with their headline value on the way from chance to a perfect answer."""
    for name, record in run.tasks.items():
        if name not in TASKS or skill not in TASKS[name].skills or record.judge is None:
            continue
        entry = record.results.get(record.judge.headline)
        if entry and entry["chance"] is not None:
            ends = (entry["value"], entry["low"], entry["high"])
            yield name, Interval(*(above_chance(end, entry["chance"], record.best) for end in ends))


def _panels_of_answers(
    report_data: ReportData, points: list[_Point], beginning: str, names: tuple[str, str, str]
) -> list[Panel]:
    """Charts of answers against both other measures. ``names``: what matching, answers and generation are."""
    points = [point for point in points if point.answers]
    matching, answers, generation = names
    charts = (
        ("Answers and matching", ("matching", "answers"), (matching, answers)),
        ("Generation and answers", ("answers", "generation"), (answers, generation)),
    )
    return [
        _panel(report_data, points, beginning + title, f"{title}, a point for each skill of each model", shown, of)
        for title, of, shown in charts
        if points
    ]


def _panel(
    report_data: ReportData,
    points: list[_Point],
    title: str,
    description: str,
    names: tuple[str, str],
    of: tuple[str, str] = ("matching", "generation"),
) -> Panel:
    """A chart of points. ``names``: what the two measures ``of`` them are."""

    def draw(axes: Any) -> None:
        axes.axvline(0, color=figures.GRID, linewidth=1, zorder=1)
        for point in points:
            mark = report_data.dots[point.run]
            x, y = ([100 * getattr(point, name)[end] for end in Interval._fields] for name in of)
            bars = {"xerr": [[x[0] - x[1]], [x[2] - x[0]]]}
            if not np.isnan(y[1]):
                bars["yerr"] = [[y[0] - y[1]], [y[2] - y[0]]]
            axes.errorbar(x[0], y[0], **bars, color=mark.colour, marker=mark.marker, elinewidth=0.7, alpha=0.9)
        axes.set(xlabel=names[0], ylabel=names[1], ylim=(-3, 103) if of[1] == "generation" else None)
        values = ([100 * getattr(point, name)["value"] for point in points] for name in of)
        figures.label_points(axes, [*zip(map(readable, (point.skill for point in points)), *values, strict=True)])

    return Panel(title, draw, 5.2, 4.2, description)


def _section(
    report_data: ReportData,
    name: str,
    title: str,
    texts: list[str],
    points: list[_Point],
    panels: list[Panel],
    columns: list[str],
    names: tuple[str, str],
) -> Section:
    """``columns``: heads of the table. ``names``: beginnings of the CSV file's columns of numbers."""
    rows, records = [], []
    has_answers = any(point.answers for point in points)
    if has_answers:
        columns = [*columns[:-1], "by answers, %", columns[-1]]
    for point in points:
        label = report_data.runs[point.run].label
        judge = [Cell(point.rubric, point.judge)] if point.rubric else []
        numbers = [_cell(point.matching), _cell(point.generation, point.few_mark, point.columns["no_image"])]
        if has_answers:
            numbers.insert(1, _cell(point.answers) if point.answers else Cell(DASH))
        rows.append(TableRow([Cell(label, readable(point.skill)), *judge, *numbers]))
        record: dict[str, Any] = {"run": label, "skill": point.skill, **point.columns}
        answers = point.answers or dict.fromkeys(point.matching)
        measures = {names[0]: point.matching, **({"answered": answers} if has_answers else {})}
        for beginning, entry in {**measures, names[1]: point.generation}.items():
            record |= {f"{beginning}_{end}": value for end, value in entry.items()}
        records.append(record)
    marks = [
        mark for run_number, mark in enumerate(report_data.dots) if any(point.run == run_number for point in points)
    ]
    return Section(
        name,
        title,
        texts,
        legend=marks,
        panels=panels,
        tables=[Table(columns, rows)],
        records={f"{name}.csv": records},
        images={f"{name}.png": (panels, marks, 1)},
    )


def _correlations(points: list[_Point]) -> str:
    """The correlation over all points, and for each skill over models."""
    sentences = [f"over all {len(points)} points, {_correlation(points)}"]
    by_skill: dict[str, list[_Point]] = {}
    for point in points:
        by_skill.setdefault(point.skill, []).append(point)
    sentences += [f"{readable(skill)} over {len(own)} models, {_correlation(own)}" for skill, own in by_skill.items()]
    return "; ".join(sentences) + "."


def _correlation(points: list[_Point], of: tuple[str, str] = ("matching", "generation")) -> str:
    values = ([getattr(point, name)["value"] for point in points] for name in of)
    correlation = analysis.pearson(*values)
    if correlation is None:
        return "too few points, or equal ones, for a correlation"
    low, high = number(correlation.low), number(correlation.high)
    return f"Pearson's correlation is {number(correlation.value)} [{low}, {high}]"


def _cell(entry: Mapping[str, Any], mark: str = "", note: str = "") -> Cell:
    ends = "" if np.isnan(entry["low"]) else f"{percent(entry['low'])} to {percent(entry['high'])}{mark}"
    ends += f", n {entry['n']:,}" if "n" in entry else ""
    return Cell(percent(entry["value"]), "; ".join(filter(None, (ends, note))))
