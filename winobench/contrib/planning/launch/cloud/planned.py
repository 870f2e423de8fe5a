"""Items at once, memory of a machine and time of a job, from a plan (`winobench plan --output=FILE`)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError

from .. import configuration
from .accelerators import Gpus, Slice

# What planning calls the kinds that targets know under other names.
_NAMES = {"v5litepod": "v5e", "a100-80gb": "a100-80"}
# A plan is bounds and compilers' estimates: a job may take half as long again, and an hour for its start.
_SLACK, _START_HOURS = 1.5, 1.0
# Weights are in a machine's memory twice while they are read, next to Python, the libraries and images on their way.
_COPIES, _OTHER_GB = 2, 16


@dataclasses.dataclass(frozen=True)
class Planned:
    """A job's defaults, which its command overrides."""

    batch_size: int | None  # passes or images at once on each device; None of a training
    accumulate: int | None  # micro-batches of a training's step; None of an evaluation
    memory: int  # GB of a machine
    hours: float  # the plan's own estimate, without slack
    dollars: float | None  # the same

    @property
    def time(self) -> str:
        """A time limit as Slurm reads it."""
        minutes = math.ceil((self.hours * _SLACK + _START_HOURS) * 60)
        return f"{minutes // 60}:{minutes % 60:02}:00"

    @property
    def note(self) -> str:
        cost = "" if self.dollars is None else f" and {self.dollars:,.2f} dollars"
        return f"by the plan, which is an estimate: {self.hours:,.1f} hours{cost}, {self.memory} GB of memory a machine"


def read(path: str, config: Any, accelerator: Gpus | Slice | None, nodes: int) -> Planned:
    content = json_files.read(path, "write it with winobench plan --output")
    plans = content.get("plans") if isinstance(content, dict) else None
    if not isinstance(plans, list) or not isinstance(content.get("config"), dict):
        raise InputError(f"--plan={path} is not a plan: write one with winobench plan --output.")
    _check_config(path, content["config"], configuration.plain(config))
    if accelerator is None or (isinstance(accelerator, Gpus) and not accelerator.kind):
        raise InputError(f"--plan={path} is of accelerators: name the kind with --accelerator.")
    kind = _NAMES.get(accelerator.kind.lower(), accelerator.kind.lower())
    count = accelerator.count if isinstance(accelerator, Gpus) else accelerator.chips
    try:
        return _planned(path, plans, kind, count * nodes)
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise InputError(f"--plan={path} lacks {error} of a plan: write it again with winobench plan.") from error


def _planned(path: str, plans: list[Any], kind: str, devices: int) -> Planned:
    of_kind = [plan for plan in plans if plan["target"].partition(":")[0] == kind]
    if not of_kind:
        targets = ", ".join(plan["target"] for plan in plans)
        raise InputError(f"--plan={path} is of {targets}, not of {kind}: plan for that with --accelerator={kind}:...")
    plan = of_kind[0]
    if "batches" in plan:
        raise InputError(f"--plan={path} is of a language model, for which jobs take no plan: leave --plan out.")
    if not plan["fits"] or not _has_programs(plan):
        raise InputError(f"--plan={path} says that this does not fit on {plan['target']}: take other devices.")
    durations = [duration for duration in plan["durations"] if duration["devices"] == devices]
    if not durations:
        how = f"--accelerator={kind}:..." if "accumulate" in plan else f"--devices={devices}"
        raise InputError(f"--plan={path} has no time for {devices} devices: plan with {how}.")
    hours = durations[0]["total"] / 3600
    return Planned(
        batch_size=_batch_size(plan),
        accumulate=plan.get("accumulate"),
        memory=math.ceil(_COPIES * _weights(plan) / 1e9 + _OTHER_GB),
        hours=hours,
        dollars=None if plan["price"] is None else hours * devices * plan["price"],
    )


def _has_programs(plan: dict[str, Any]) -> bool:
    if "generators" in plan:
        return bool(plan["generators"])
    return bool(plan["step"] if "accumulate" in plan else plan["programs"] and plan["programs"][0])


def _batch_size(plan: dict[str, Any]) -> int | None:
    if "generators" in plan:
        return min(generator["batch"] for generator in plan["generators"])
    return plan["programs"][0]["items"] if plan.get("per_second") == "passes/s" else None


def _weights(plan: dict[str, Any]) -> int:
    """Bytes of a copy of the model, or of the largest of several."""
    if "generators" in plan:
        return max(sum(generator["weights"].values()) for generator in plan["generators"])
    return plan["state"] if "accumulate" in plan else sum(plan["weights"].values())


def _check_config(path: str, planned: Any, asked: Any, field: str = "") -> None:
    if isinstance(planned, dict) and isinstance(asked, dict):
        for name in sorted(planned.keys() | asked.keys()):
            _check_config(path, planned.get(name), asked.get(name), f"{field}.{name}".lstrip("."))
    elif planned != asked:
        raise InputError(
            f"--plan={path} is of another run, with --{field}={planned} where this one has {asked}: plan this one."
        )
