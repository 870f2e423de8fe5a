"""The numbers of the paper's tables, and which of them to print beside ours."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from winobench.base import json_files, registry

if TYPE_CHECKING:
    from winobench.report.published_texts import TextNumber

_PATH = pathlib.Path(__file__).resolve().parents[1] / "assets" / "published_numbers.json"

# The hub ids under which the papers' authors found them, of which the registry names today's copies.
_SAME_CHECKPOINT = {
    "stabilityai/stable-diffusion-2-1-base": "sd21-base",
    "stabilityai/stable-diffusion-2-base": "sd20-base",
    "runwayml/stable-diffusion-v1-5": "sd15",
}
GDBENCH = "gdbench"
"""The paper whose tables most numbers are from."""

# Tasks with the published shuffles, which the numbers are of. Those with ours have a note next to them.
_PUBLISHED_SHUFFLES = {f"aro_{of}_order_published": f"aro_{of}_order" for of in ("coco", "flickr")}
_PAPERS_MODEL = "sd21-base"
# Which negatives our training says that a LoRA had -> the paper's name of it.
_FINETUNINGS = {
    "none": "noneg",
    "random_text": "randneg_txt",
    "hard_text": "hardneg_txt",
    "hard_image": "hardneg_img",
    "mixed": "hardneg",
}


@dataclasses.dataclass(frozen=True)
class PublishedNumber:
    """One cell of a table of a paper, and which number of ours it stands next to.

    Attributes:
      table: ``"1a"``, or what else the numbers are called where they stand.
      row: heading of its row as printed, with that of its block before a slash.
      column: heading of its column as printed, with that of its block before a slash.
      printed: the cell as printed, ``"61.5"``, ``"0.94*"``.
      value: the number in the printed unit.
      unit: ``percent``, ``proportion`` or ``effect size``.
      task: our task.
      metric: its key in our results, ``"recall@1"``, ``"spatial/accuracy"``, ``"Christian-Muslim"``.
      model: the model's name in our registry. What was fine-tuned, for a fine-tuned one.
      finetuning: which of the paper's fine-tunings the model has had; None for the model as released.
      normalize: ``none`` or ``unconditional`` where that makes a difference (image retrieval), None elsewhere.
      num_samples: noise and timestep samples a pair; None for models that need none.
      significant: whether it bears the star of p < 0.01; None where the table has no stars.
      paper: whose it is, a name that `source` knows.
      note: what else is to be known of it, as the end of a sentence that begins with the number; ``""`` for most.
      exactly: it stands next to a number of the same model and number of samples alone, and not of near ones.
    """

    table: str
    row: str
    column: str
    printed: str
    value: float
    unit: str
    task: str
    metric: str
    model: str
    finetuning: str | None = None
    normalize: str | None = None
    num_samples: int | None = None
    significant: bool | None = None
    paper: str = GDBENCH
    note: str = ""
    exactly: bool = False

    @property
    def in_our_unit(self) -> float:
        """The number as our results state it: proportions in [0, 1], effect sizes as they are."""
        return self.value / 100 if self.unit == "percent" else self.value

    @property
    def place(self) -> str:
        """Where the paper has it: ``Table 1a``."""
        return f"Table {self.table}" if self.paper == GDBENCH else source(self.paper)["short"]

    @property
    def method(self) -> str:
        """The paper's name of what was measured: the heading of the row, or of the column in Tables 3, 5 and 6."""
        return self.column if self.table in ("3", "5", "6") else self.row


def source(paper: str = GDBENCH) -> dict[str, str]:
    """Where numbers are from: ``arxiv`` (its id), ``authors``, ``title``, ``venue``, ``short`` (to cite it by)."""
    return dict(_content()["papers"][paper])


@functools.cache
def numbers() -> tuple[PublishedNumber, ...]:
    """Every number of Tables 1a, 1b, 2a, 2b, 3, 5 and 6 of the paper, in the order of print, then those of its
    checkpoints and of Self-Bench.

    Source: Krojer et al. 2023, arXiv 2305.16397, and Jeong et al. 2025, arXiv 2505.17955. The file
    `winobench/assets/published_numbers.json`.
    """
    found = []
    for table in _content()["tables"]:
        for row in table["rows"]:
            for column, printed in zip(table["columns"], row["values"], strict=True):
                properties = {**table, **row, **column}
                has_stars = properties.pop("stars", False)
                for key in ("columns", "rows", "values"):
                    del properties[key]
                found.append(
                    PublishedNumber(
                        **properties,
                        printed=printed,
                        value=float(printed.rstrip("*")),
                        significant=printed.endswith("*") if has_stars else None,
                    )
                )
    return tuple(found)


def reference(
    task: str,
    metric: str,
    *,
    model: str,
    kind: str,
    finetuned: bool = False,
    negatives: str | None = None,
    normalize: str = "auto",
    num_samples: int | None = None,
) -> PublishedNumber | None:
    """The number of the paper to print next to one of ours.

    - Next to a baseline: that of the same model, or none.
    - Next to a diffusion model: that of the same model where the paper has it, otherwise that of Stable Diffusion 2.1,
      which shows where the field stands. The caller can tell by the number's ``model``.
    - Of the numbers for image retrieval, that with our normalisation: Diffusion Classifier for ``none``, DiffusionITM
      otherwise.
    - Of those with 10 and with 250 samples, the one that is nearer to ours by ratio (10 up to 49, 250 from 50 on).
    - Next to a fine-tuned model: that of the paper's fine-tuning with the same negatives. None where they are unknown.
    - Numbers of the published checkpoints: only with the same model and as many samples.

    Args:
      task: our task's name.
      metric: key of its results, also of a sub-task or a target pair.
      model: a registry name, a hub id, or anything else, which the paper does not have.
      kind: ``diffusion`` or ``baseline``.
      finetuned: whether the model is used with a LoRA.
      negatives: those of its training, as a LoRA of ours says; None where they are unknown.
      normalize: what the run was asked for, one of `winobench.metrics.normalization.NORMALIZATIONS`, or ``auto``.
      num_samples: samples a pair; None for the paper's most.

    Raises:
      ValueError: another kind.
    """
    if kind not in ("diffusion", "baseline"):
        raise ValueError(f"kind is diffusion or baseline, not {kind!r}.")
    if finetuned and negatives not in _FINETUNINGS:
        return None
    if (other := _PUBLISHED_SHUFFLES.get(task)) is not None:
        found = reference(
            *(other, metric),
            **{"model": model, "kind": kind, "finetuned": finetuned, "negatives": negatives},
            **{"normalize": normalize, "num_samples": num_samples},
        )
        return found and dataclasses.replace(found, task=task, note="")
    wanted = "none" if normalize == "none" else "unconditional"
    of_cell = [
        number
        for number in _by_cell().get((task, metric), ())
        if number.finetuning == (_FINETUNINGS[negatives] if finetuned else None) and number.normalize in (None, wanted)
    ]
    model = _registry_name(model)
    of_cell = [n for n in of_cell if not n.exactly or (n.model, n.num_samples) == (model, num_samples)]
    same = [number for number in of_cell if number.model == model]
    if not same and kind == "diffusion":
        same = [number for number in of_cell if number.model == _PAPERS_MODEL]

    def distance(number: PublishedNumber) -> float:
        if number.num_samples is None:
            return 0.0
        return abs(math.log(number.num_samples / num_samples)) if num_samples else -number.num_samples

    return min(same, key=distance, default=None)


def references(results: Mapping[str, Any]) -> dict[tuple[str, str], PublishedNumber | TextNumber]:
    """(task, metric) -> the number to print next to it, for all numbers of a run that have one.

    Of a run of text tasks these are numbers of `winobench.report.published_texts`.

    Args:
      results: what `winobench.evaluate` returns, or the content of a ``results.json``. The model is ``config.model``.
        That it is a diffusion model, and its number of samples, is told by the scorer's fingerprint and the config.
    """
    if "protocols" in results:
        from winobench.report import published_texts

        return published_texts.references(results)
    config = results.get("config") or {}
    scorer = (results.get("versions") or {}).get("scorer") or {}
    sampling = config.get("sampling") or {}
    settings = {
        "model": config.get("model") or "",
        "kind": "diffusion" if scorer.get("scorer") == "diffusion_itm" else "baseline",
        "finetuned": bool(config.get("lora")),
        "negatives": (scorer.get("lora") or {}).get("negatives"),
        "normalize": config.get("normalize") or "auto",
        "num_samples": sampling.get("num_samples"),
    }
    found = {
        (task, metric): reference(task, metric, **settings)
        for task, entries in results["tasks"].items()
        for metric, entry in entries.items()
        if not entry.get("left_out")  # an average over other pairs of groups
    }
    return {key: number for key, number in found.items() if number is not None}


@functools.cache
def _by_cell() -> dict[tuple[str, str], list[PublishedNumber]]:
    """(task, metric) -> its numbers, in the order of print."""
    found: dict[tuple[str, str], list[PublishedNumber]] = {}
    for number in numbers():
        found.setdefault((number.task, number.metric), []).append(number)
    return found


@functools.cache
def _content() -> dict[str, Any]:
    return json_files.read(_PATH)


def _registry_name(model: str) -> str:
    if model in registry.MODELS:
        return model
    of_source = {entry.source: name for name, entry in registry.MODELS.items()}
    return of_source.get(model) or _SAME_CHECKPOINT.get(model, model)
