"""Verdicts of GenEval's published detector on the images of a run (Ghosh et al. 2023).

`lay_out` copies the images of a model into its code's layout (djghosh13/geneval af4902f). That code runs elsewhere:
``python evaluation/evaluate_images.py FOLDER --outfile results.jsonl``. `attach` reads its output.

    <number>/metadata.jsonl             the prompt's row of evaluation_metadata.jsonl, by the prompt's id
    <number>/samples/<seed>.png         five digits each
    results.jsonl                       a line an image: filename, tag, prompt, correct, reason, metadata, details
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from winobench.base import files, json_files, options
from winobench.base.errors import InputError
from winobench.runs import image_records
from winobench.runs.verdicts import EARLIER, GENEVAL_DETECTOR, Verdict, judge_of, read_verdicts, write_verdicts

if TYPE_CHECKING:
    from winobench.runs.image_records import ImageRecord
    from winobench.runs.image_runs import Images

_ADVICE = "give results.jsonl as GenEval's evaluate_images.py wrote it for the images of this run"


def lay_out(run: Images, folder: str | os.PathLike[str], model: str | None = None) -> int:
    """Copies the images of a model (None for the only one) into a new folder, and returns their number."""
    folder = pathlib.Path(files.user_path(folder))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty: name a new folder", code="already-exists")
    records = _by_place(run, model)
    with files.writing(folder):
        for (number, sample), record in records.items():
            if not image_records.is_whole(run.folder, record):
                raise InputError(f"{run.path(record)} is not the image that was generated", code="damaged-file")
            samples = folder / number / "samples"
            samples.mkdir(parents=True, exist_ok=True)
            row = {**record.prompt.content, "prompt": record.prompt.text}
            files.write_text(folder / number / "metadata.jsonl", json.dumps(row) + "\n")
            shutil.copyfile(run.path(record), samples / f"{sample}.png")
    return len(records)


def attach(run: Images, path: str | os.PathLike[str], model: str | None = None) -> dict[str, Verdict]:
    """Writes the verdicts of ``results.jsonl`` on the images of a model (None for the only one) into the run.

    Returns the verdicts of the run, also of its other models, by the images' paths within it.

    Raises:
      InputError: the file is damaged, or is about other prompts or images, or the run has verdicts of another judge.
    """
    path = pathlib.Path(files.user_path(path))
    records = _by_place(run, model)
    known = read_verdicts(run.folder)
    if judge_of(known) not in (None, GENEVAL_DETECTOR):
        raise InputError(
            f"{run.folder / EARLIER} has the verdicts of another judge ({judge_of(known)}): move it away",
            code="another-run",
        )
    added: dict[str, Verdict] = {}
    for number, row in json_files.read_lines(path, _ADVICE):
        where = f"line {number} of {path}"
        record = _record_of(where, row, records)
        if record.file in added:
            raise InputError(f"{where} is about the same image as an earlier line: {_ADVICE}", code="repeated-id")
        reasons = row["reason"].splitlines()
        added[record.file] = Verdict(record.file, record.sha256, row["correct"], reasons, GENEVAL_DETECTOR)
    if lacking := [record for record in records.values() if record.file not in added]:
        raise InputError(
            f"{path} lacks {len(lacking):,} of the {len(records):,} images, such as {lacking[0].file}: {_ADVICE}",
            code="incomplete-row",
        )
    verdicts = {**known, **added}
    write_verdicts(run, verdicts.values())
    return verdicts


def _by_place(run: Images, model: str | None) -> dict[tuple[str, str], ImageRecord]:
    """The images of a model by the names of folder and file in the published layout, of five digits each."""
    if model is None and len(run.models) != 1:
        named = ", ".join(known.label for known in run.models)
        raise InputError(f"{run.folder} has images of several models: name one of {named}", code="nothing-named")
    label = run.models[0].label if model is None else run.model(model).label
    for prompt in run.prompts:
        content = prompt.content
        if not isinstance(content, Mapping) or "include" not in content or content.get("tag") != prompt.category:
            raise InputError(
                f"{run.folder} has other prompts than GenEval's: generate with --prompts=geneval:FILE",
                code="no-content",
            )
    return {(record.prompt.id, f"{record.seed:05d}"): record for record in run.records if record.model == label}


def _record_of(where: str, row: Any, records: Mapping[tuple[str, str], ImageRecord]) -> ImageRecord:
    texts = ("filename", "tag", "prompt", "reason")
    whole = isinstance(row, dict) and all(isinstance(row.get(name), str) for name in texts)
    if not whole or not isinstance(row.get("correct"), bool):
        raise InputError(f"{where} lacks {', '.join(texts)} or correct: {_ADVICE}", code="missing-field")
    parts = row["filename"].replace("\\", "/").split("/")
    names = (parts[-3], parts[-1].removesuffix(".png")) if len(parts) > 2 and parts[-2] == "samples" else ()
    key = tuple(name.lstrip("0").rjust(5, "0") for name in names)  # other programs write fewer zeros
    record = records.get(key)
    if record is None:
        raise InputError(
            f"{where} is about {options.quote(row['filename'])}, which is not <number>/samples/<seed>.png of this run:"
            f" {_ADVICE}",
            code="unknown-name",
        )
    if (row["prompt"], row["tag"]) != (record.prompt.text, record.prompt.category):
        raise InputError(
            f"{where} has the prompt {options.quote(row['prompt'])} ({row['tag']}), but image {record.file} is of"
            f" {options.quote(record.prompt.text)} ({record.prompt.category}): {_ADVICE}",
            code="contradicting-rows",
        )
    return record
