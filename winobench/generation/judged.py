"""A judge scores the images of a run by a benchmark's rubric (`winobench.rubrics`). See `winobench.runs.judgements`."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import options, registry, texts
from winobench.base.errors import InputError
from winobench.data import images as image_files
from winobench.metrics import Design, Interval, mean_of_means
from winobench.models import snapshots
from winobench.rubrics import named_rubrics
from winobench.rubrics.base import ALL, Rubric, Score
from winobench.runs import asking, endings, image_records, judgements, records, responses
from winobench.runs.image_records import ImageRecord, MissingImage
from winobench.runs.image_runs import Images
from winobench.runs.judgements import Judgement
from winobench.runs.requests import (
    ImageMatch,
    InputImage,
    LazyResponder,
    Request,
    Responder,
    Response,
    ability,
    check_responder,
    images_of,
)

_LONGEST_LABEL = 200  # letters. The folder's name has the rubric, too


@dataclasses.dataclass(frozen=True)
class _Asked:
    """The questions about an image, or about several of one prompt together, with the keys of their answers."""

    records: tuple[ImageRecord, ...]
    keys: tuple[str, ...]
    requests: tuple[Request, ...]

    @property
    def record(self) -> ImageRecord:
        return self.records[0]


def judge_images(
    run: Images,
    responder: Responder | LazyResponder,
    *,
    name: str,
    rubric: str | None = None,
    label: str | None = None,
    progress: bool = True,
) -> Judgement:
    """Scores all images of a run whose prompts fit a rubric. An interrupted call resumes when it is made again.

    Args:
      run: the images.
      responder: the judge. A `winobench.runs.requests.LazyResponder` is loaded where anything is left to ask or count.
      name: of the judge, as results show it, before its label.
      rubric: one of `winobench.rubrics.named_rubrics.RUBRICS`. The prompts decide when None.
      label: tells two judges of one name apart, in results and in the folder's name. Only the name counts when None.
      progress: show answered questions and the time left.

    Returns:
      The results, which are in the run's folder, too. Images for which an answer is missing for good count nowhere.
      Missing images count as the rubric says, and ``no_image`` has their numbers.

    Raises:
      InputError: the rubric is unknown or fits no prompt, the judge answers no kind of question that it needs, an image
        has changed, the folder has results of another judge, the label cannot name a folder, a call failed that
        may pass another time, or no image has all its answers.
    """
    options.instance("images as winobench.read_images gives them", Images).check("run", run, "wrong-type")
    texts.check_texts([name])
    chosen = named_rubrics.choose(rubric, run.prompts)
    folder, files = folder_of(run, chosen.name, name, label), None
    if isinstance(responder, LazyResponder):
        kind_for(chosen, name, responder.kinds)
        if (finished := _finished(run, responder, chosen, folder)) is not None:
            if progress:
                asking.say_nothing_to_ask(finished.num_questions)
            return finished
        files, responder = responder.files, responder.load()
    check_responder(responder)
    kind = kind_for(chosen, name, responder.kinds)
    judge = snapshots.snapshot(responder)
    fingerprint = dict(judge.fingerprint())
    chosen.check_judge(name, fingerprint, kind)
    _check_folder(folder, fingerprint)
    asked = _first_questions(run, chosen, kind, fingerprint)
    images, missing, received = _answers(judge, folder, asked, progress)
    if chosen.follow_ups is not None and images:
        images = [_ask_more(run, image, chosen, kind, fingerprint, received) for image in images]
        images, others, received = _answers(judge, folder, images, progress)
        missing = dict(collections.Counter(missing) + collections.Counter(others))
    _check_answered(name, images, missing, received)
    is_published = kind == chosen.kinds[0] and chosen.is_published(name)
    answers = [[received.read[key] for key in image.keys] for image in images]
    scores = [
        [*chosen.scores(image.record.prompt, responses, kind, is_published)]
        for image, responses in zip(images, answers, strict=True)
    ]
    models = {label: _summary(run, label, images, scores, chosen) for label in (model.label for model in run.models)}
    judgement = Judgement(
        rubric=chosen.name,
        version=chosen.version,
        source=chosen.source,
        published_judge=chosen.judge,
        judge=name if label is None else f"{name} ({label})",
        is_published=is_published,
        fingerprint=fingerprint,
        kind=kind,
        wordings=_wordings(chosen, kind, fingerprint),
        images=judgements.images_of(run),
        num_images=sum(len(image.records) for image in images),
        left_out=len(run.records) - sum(len(image.records) for image in asked),
        num_questions=sum(len(image.keys) for image in images),
        models=models,
        missing=missing,
        no_image=judgements.count_missing(run, models, chosen.fits),
        files=files,
    )
    judgements.write(folder, judgement, map(_line, images, answers, scores))
    return judgement


def overall(run: Images, judgement: Judgement) -> tuple[dict[str, float], dict[str, Judgement]]:
    """Each model's overall value of a benchmark with several rubrics, and the judgement that each metric is from.

    A value is the mean of the metrics of `winobench.rubrics.base.Rubric.joint`. Both are empty where one is missing. Of
    several judgements by one rubric, the published judge's counts, then the given one, then the first by name.
    """
    joint = named_rubrics.RUBRICS[judgement.rubric].joint if judgement.rubric in named_rubrics.RUBRICS else {}
    chosen: dict[str, Judgement] = {}
    for other in sorted(
        judgements.read_all(run) if joint else (), key=lambda one: (not one.is_published, one != judgement)
    ):
        if other.rubric in joint and not named_rubrics.is_outdated(other):
            chosen.setdefault(joint[other.rubric], other)
    if chosen.keys() != set(joint.values()):
        return {}, {}
    chosen = {metric: chosen[metric] for metric in joint.values()}
    values = {}
    for model in run.models:
        entries = [other.models.get(model.label, {}).get(metric, {}).get(ALL) for metric, other in chosen.items()]
        numbers = [entry["value"] for entry in entries if entry is not None]
        if numbers and len(numbers) == len(chosen):
            values[model.label] = math.fsum(numbers) / len(numbers)
    return values, chosen


def _summary(
    run: Images, label: str, images: Sequence[_Asked], scores: Sequence[Sequence[Score]], rubric: Rubric
) -> dict[str, Any]:
    """The results of one model's images, with the scores that the rubric gives to missing ones."""
    pairs: list[tuple[ImageRecord | MissingImage, Sequence[Score]]]
    pairs = [(image.record, its) for image, its in zip(images, scores, strict=True)]
    pairs += [(image, [*rubric.missing(image.prompt)]) for image in run.missing if rubric.fits(image.prompt)]
    return summarise([(image.prompt.text, its) for image, its in pairs if image.model == label], rubric)


def estimate(
    run: Images, judge: Responder | LazyResponder, *, name: str, rubric: str | None = None, label: str | None = None
) -> tuple[dict[str, Any], list[Request]]:
    """What `judge_images` would ask. Nothing is asked, written, or loaded.

    Returns: numbers of images, of questions about them, of requests, of missing ones, and of ``open`` images: further
      questions about these follow missing answers, and are not counted. Of a hosted judge also its ``tokens``
      {"input", "output"}, their ``costs`` in US dollars, and the ``cost`` of both, at most and None where unknown. And
      the missing requests. A judge that is not loaded yet counts all answers in its folder as its own.

    Raises InputError as `judge_images`.
    """
    chosen = named_rubrics.choose(rubric, run.prompts)
    folder = folder_of(run, chosen.name, name, label)
    kind = kind_for(chosen, name, judge.kinds)
    fingerprint = {} if isinstance(judge, LazyResponder) else dict(judge.fingerprint())
    if fingerprint:
        chosen.check_judge(name, fingerprint, kind)
        _check_folder(folder, fingerprint)
    if isinstance(judge, LazyResponder) and (finished := _finished(run, judge, chosen, folder)) is not None:
        numbers = dict.fromkeys(("questions", "requests"), finished.num_questions) | {"missing": 0, "open": 0}
        return {"rubric": chosen.name, "kind": kind, "images": finished.num_images, **numbers}, []
    asked = _first_questions(run, chosen, kind, fingerprint)
    looked, open_images = _look(judge, folder, asked), 0
    if chosen.follow_ups is not None:
        received = asking.Answers(looked.read)
        is_read = [all(key in looked.read for key in image.keys) for image in asked]
        pairs = [*zip(asked, is_read, strict=True)]
        asked = [
            _ask_more(run, image, chosen, kind, fingerprint, received) if whole else image for image, whole in pairs
        ]
        looked, open_images = _look(judge, folder, asked), is_read.count(False)
    missing = [*looked.missing.values()]
    planned = {
        "rubric": chosen.name,
        "kind": kind,
        "images": sum(len(image.records) for image in asked),
        "questions": sum(len(image.keys) for image in asked),
        "requests": looked.total,
        "missing": len(missing),
        "open": open_images,
    }
    return {**planned, **_most_spent(judge, missing)}, missing


def _look(judge: Responder | LazyResponder, folder: pathlib.Path, asked: Sequence[_Asked]) -> asking.Looked:
    wanted = _wanted(asked)
    if not isinstance(judge, LazyResponder):
        return asking.look(folder / records.RESPONSES, judge, wanted)
    stored = responses.recorded(folder / records.RESPONSES, wanted, of_any=True)
    return asking.Looked({}, {key: wanted[key] for key in wanted if key not in stored}, len(wanted))


def _most_spent(judge: Responder | LazyResponder, requests: Sequence[Any]) -> dict[str, Any]:
    """Tokens of a hosted judge and their costs, at most. Empty for another judge."""
    most, cost = ability(judge, "most_tokens"), ability(judge, "cost")
    if most is None or cost is None:
        return {}
    size_of = functools.cache(_size)
    counts = [most(request, [size_of(image.path) for image in images_of(request)]) for request in requests]
    tokens = {name: _sum([count[name] for count in counts]) for name in ("input", "output")}
    costs = {
        "input": cost(Response(input_tokens=tokens["input"], output_tokens=0)),
        "output": cost(Response(input_tokens=0, output_tokens=tokens["output"])),
    }
    return {"tokens": tokens, "costs": costs, "cost": _sum(costs.values())}


def _sum(counts: Collection[Any]) -> Any:
    """A sum with parts missing would look like the whole."""
    return None if None in counts else sum(counts)


def _size(path: str) -> tuple[int, int]:
    """Width and height of an image, by its header."""
    try:
        with image_files.regular_file(path) as file, image_files.opened(file) as image:
            return image.size
    except (image_files.ImageProblem, OSError) as error:
        raise InputError(f"the image {path} cannot be read ({error}): restore it", code="cannot-read") from None


def _finished(run: Images, judge: LazyResponder, rubric: Rubric, folder: pathlib.Path) -> Judgement | None:
    """The results of an earlier call with the same judge, rubric and images, if these lack no answer."""
    if judge.files is None or not (folder / judgements.RESULTS).exists():
        return None
    before = judgements.read(folder)
    is_same = (before.files, before.version) == (judge.files, rubric.version)
    if not is_same or before.missing or before.images != judgements.images_of(run):
        return None
    for record in run.records:
        _check_image(run, record)
    return before


def _check_answered(name: str, images: Sequence[_Asked], missing: Mapping[str, int], received: asking.Answers) -> None:
    """Refuses a judgement of no image."""
    if images:
        return
    first = next(iter(received.failed.values()), None)
    reason = f" (first: {first})" if first else ""
    raise InputError(
        f"{name}: all {sum(missing.values()):,} images lack an answer{reason}, {endings.missing(missing)}",
        code="incomplete-answers",
    )


def folder_of(run: Images, rubric: str, name: str, label: str | None = None) -> pathlib.Path:
    """The folder of a judge's answers and results."""
    is_name = isinstance(label, str) and len(label) <= _LONGEST_LABEL and registry.model_label(label) == label
    if label is not None and not is_name:
        raise InputError(
            f"the label {options.quote(label)} cannot name a folder: give letters, digits, dots and dashes alone,"
            f" {_LONGEST_LABEL} at most",
            code="bad-name",
        )
    return run.folder / judgements.FOLDER / f"{rubric}-{label or registry.model_label(name)[:_LONGEST_LABEL]}"


def kind_for(rubric: Rubric, name: str, kinds: Collection[str]) -> str:
    """The kind of questions by which a judge that answers some kinds is asked. Refuses one that answers none."""
    for kind in rubric.kinds:
        if kind in kinds:
            return kind
    raise InputError(
        f"{name} cannot judge by {rubric.name}, which needs {' or '.join(rubric.kinds)}: name a judge that answers"
        f" that, as {rubric.judge} does",
        code="kind-not-answered",
    )


def _wordings(rubric: Rubric, kind: str, fingerprint: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts that the judge reads. One that scores matches puts its own question around a prompt."""
    question = fingerprint.get("match", fingerprint).get("question")
    return (question,) if kind == ImageMatch.kind and question else rubric.wordings[kind]


def summarise(images: Iterable[tuple[str, Sequence[Score]]], rubric: Rubric) -> dict[str, dict[str, dict[str, Any]]]:
    """Metric -> group -> mean with its interval, from the scores of images, each with the text of its prompt."""
    values: dict[tuple[str, str], tuple[list[str], list[float]]] = {}
    for text, scores in images:
        for metric, group, value in scores:
            of_texts, numbers = values.setdefault((metric, group), ([], []))
            of_texts.append(text)
            numbers.append(value)
    entries = {key: _entry(*rows) for key, rows in values.items()}
    for (metric, row), groups in rubric.macros.items():
        parts = {group: entries[metric, group] for group in groups if (metric, group) in entries}
        if parts and (not isinstance(groups, Mapping) or len(parts) == len(groups)):
            entries[metric, row] = _macro(parts, groups)
    wholes = {metric: rows for (metric, group), rows in values.items() if group == ALL}
    for metric, combine in (rubric.combined or {}).items():
        if wholes:
            entries[metric, ALL] = _combined(wholes, combine)
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for metric, group in sorted(entries, key=lambda key: key[1] != ALL):
        is_count = {"is_count": True} if metric in (rubric.counts or ()) else {}
        results.setdefault(metric, {})[group] = entries[metric, group] | is_count
    return results


def _combined(
    wholes: Mapping[str, tuple[Sequence[str], Sequence[float]]], combine: Callable[[Mapping[str, float]], float]
) -> dict[str, Any]:
    """A value from the means of several metrics. The jackknife gives its interval. It leaves out each text."""
    texts = [*dict.fromkeys(text for of_texts, _ in wholes.values() for text in of_texts)]
    places = {text: place for place, text in enumerate(texts)}
    means, without = {}, {}
    for metric, (of_texts, numbers) in wholes.items():
        rows = [places[text] for text in of_texts]
        sums, sizes = (np.bincount(rows, weights, len(texts)) for weights in (numbers, None))
        means[metric] = math.fsum(numbers) / len(numbers)
        without[metric] = (sums.sum() - sums) / np.maximum(len(numbers) - sizes, 1)
    value, number = combine(means), len(texts)
    others = ({metric: float(column[place]) for metric, column in without.items()} for place in range(number))
    pseudo = np.array([number * value - (number - 1) * combine(other) for other in others])[:, None]
    design = Design(texts)
    mean, low, high = (float(end[0]) for end in design.means(pseudo))
    interval = Interval(value, value + low - mean, value + high - mean)
    return _as_entry(interval, number, 0 <= value <= 1, bool(design.too_few(pseudo)[0]))


def _entry(of_texts: Sequence[str], numbers: Sequence[float]) -> dict[str, Any]:
    """A mean, and its interval, in which all numbers about images of one text depend on each other."""
    values, design = np.asarray(numbers)[:, None], Design(of_texts)
    is_proportion = len(set(of_texts)) > 1 and set(numbers) <= {0, 1}
    ends = design.proportions(values) if is_proportion else design.means(values)
    too_few = not is_proportion and bool(design.too_few(values)[0])
    is_share = min(numbers) >= 0 and max(numbers) <= 1
    return _as_entry(Interval(*(float(end[0]) for end in ends)), len(numbers), is_share, too_few)


def _macro(parts: Mapping[str, Mapping[str, Any]], groups: Sequence[str] | Mapping[str, float]) -> dict[str, Any]:
    """The plain mean of groups' means, or their sum with weights."""
    means = {group: judgements.interval(part) for group, part in parts.items()}
    is_share = all(0 <= mean.value <= 1 for mean in means.values())
    scaled = [*means.values()]
    if isinstance(groups, Mapping):
        scaled = [Interval(*(len(parts) * groups[group] * end for end in mean)) for group, mean in means.items()]
    number, too_few = sum(part["n"] for part in parts.values()), any(part["too_few"] for part in parts.values())
    return _as_entry(mean_of_means(scaled), number, is_share, too_few)


def _as_entry(interval: Interval, number: int, is_share: bool, too_few: bool) -> dict[str, Any]:
    """An interval for JSON: within [0, 1] for shares, and None without one."""
    low, high = (None if math.isnan(end) else min(max(end, 0.0), 1.0) if is_share else end for end in interval[1:])
    return {"value": interval.value, "low": low, "high": high, "n": number, "too_few": too_few}


def _check_folder(folder: pathlib.Path, fingerprint: Mapping[str, Any]) -> None:
    """Refuses a folder with the results of another judge of the same name."""
    if not (folder / judgements.RESULTS).exists():
        return
    if records.digest(judgements.read(folder).fingerprint) != records.digest(fingerprint):
        raise InputError(
            f"{folder} has the results of a judge with other weights or options: give this one another --label",
            code="another-run",
        )


def _groups(run: Images, rubric: Rubric) -> list[tuple[ImageRecord, ...]]:
    """The images whose prompts fit, each alone, or together with the others of one prompt and model."""
    fitting = [record for record in run.records if rubric.fits(record.prompt)]
    if not rubric.together:
        return [(record,) for record in fitting]
    of_prompts: dict[tuple[str, int], list[ImageRecord]] = {}
    for record in fitting:
        of_prompts.setdefault((record.model, record.number), []).append(record)
    return [tuple(records) for records in of_prompts.values()]


def _shown(run: Images, rubric: Rubric, records: Sequence[ImageRecord]) -> InputImage | tuple[InputImage, ...]:
    images = tuple(InputImage(str(run.path(record)), record.sha256) for record in records)
    if rubric.edits:
        return (_source(run, records[0]), *images)
    return images if rubric.together else images[0]


def _source(run: Images, record: ImageRecord) -> InputImage:
    """The image that was edited."""
    path, sha256 = image_records.source_path(run.folder, record.prompt), record.prompt.source_sha256
    if path is None or sha256 is None or not image_records.has_source(run.folder, record.prompt):
        raise InputError(
            f"the image that prompt {record.prompt.id} edits is not at {path}, or has changed: copy it there from the"
            " machine where the run was made, or make the run again",
            code="no-source-image",
        )
    return InputImage(str(path), sha256)


def _first_questions(run: Images, rubric: Rubric, kind: str, fingerprint: Mapping[str, Any]) -> list[_Asked]:
    """All questions that follow no answer."""
    groups = _groups(run, rubric)
    if not groups and run.missing:
        raise InputError(f"{run.folder} has no image that {rubric.name} judges: all are missing", code="no-images")
    asked = [_ask_about(run, records, rubric, kind, fingerprint) for records in groups]
    asked = [image for image in asked if image.keys]
    if not asked:
        raise InputError(
            f"{rubric.name} has no question about the images of {run.folder}, as it compares several of one prompt:"
            " generate with several seeds, such as --seeds=0,1,2,3",
            code="no-content",
        )
    return asked


def _wanted(images: Iterable[_Asked]) -> dict[str, Request]:
    return {key: request for image in images for key, request in zip(image.keys, image.requests, strict=True)}


def _ask_about(
    run: Images, records: tuple[ImageRecord, ...], rubric: Rubric, kind: str, fingerprint: Mapping[str, Any]
) -> _Asked:
    for record in records:
        _check_image(run, record)
    requests = tuple(rubric.requests(records[0].prompt, _shown(run, rubric, records), kind))
    return _Asked(records, tuple(responses.key(fingerprint, request) for request in requests), requests)


def _ask_more(
    run: Images, image: _Asked, rubric: Rubric, kind: str, fingerprint: Mapping[str, Any], received: asking.Answers
) -> _Asked:
    """Adds the questions that follow the answers to the first ones."""
    first, shown = [received.read[key] for key in image.keys], _shown(run, rubric, image.records)
    more = tuple(rubric.follow_ups(image.record.prompt, shown, kind, first)) if rubric.follow_ups else ()
    keys = tuple(responses.key(fingerprint, request) for request in more)
    return _Asked(image.records, image.keys + keys, image.requests + more)


def _check_image(run: Images, record: ImageRecord) -> None:
    if not image_records.is_whole(run.folder, record):
        raise InputError(
            f"{run.path(record)} is not the image that was recorded (its SHA-256 is another): give the command"
            " again that made the run",
            code="damaged-file",
        )


def _answered(images: Sequence[_Asked], missing: Mapping[str, str]) -> tuple[list[_Asked], dict[str, int]]:
    """The images with all their answers, and the number of the others by the reason of the first missing answer."""
    reasons = [next((missing[key] for key in image.keys if key in missing), None) for image in images]
    pairs = [*zip(images, reasons, strict=True)]
    number = collections.Counter(reason for image, reason in pairs for _ in image.records if reason is not None)
    return [image for image, reason in pairs if reason is None], dict(number)


def _answers(
    responder: Responder, folder: pathlib.Path, images: Sequence[_Asked], progress: bool
) -> tuple[list[_Asked], dict[str, int], asking.Answers]:
    """The images with all their answers, the number of the others by reason, and all answers.

    Answers that are recorded already count, too. Each is on disk before it is used.
    """
    wanted = _wanted(images)
    with asking.Session(folder / records.RESPONSES, progress=progress) as session:
        answers = session.ask(responder, wanted, "judging")
    lasting = endings.lasting(wanted, answers.read, answers.blocked)
    if passing := [reason for key, reason in session.missing(wanted).items() if key not in lasting]:
        raise InputError(
            f"{len(passing):,} of {len(wanted):,} questions about images got no answer (first: {passing[0]}):"
            f" {endings.again(len(passing), 0)}",
            code="calls-failed",
        )
    return *_answered(images, lasting), answers


def _line(image: _Asked, answers: Sequence[Response], scores: Sequence[Score]) -> dict[str, Any]:
    record, unlisted = image.record, [answer.unlisted for answer in answers]
    return {
        **{name: getattr(record, name) for name in ("file", "sha256", "model", "seed", "number")},
        **({"files": [each.file for each in image.records]} if len(image.records) > 1 else {}),
        "answers": [answer.text if answer.scores is None else list(answer.scores) for answer in answers],
        "scores": [score._asdict() for score in scores],
        # How far the shares of a hosted judge may be too low: what its server does not list.
        **({"unlisted": unlisted} if any(share is not None for share in unlisted) else {}),
    }
