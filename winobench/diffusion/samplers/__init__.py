"""Samplers: from noise to latents, step by step, in one compiled loop. One file each, and a line in `SAMPLERS`."""

from __future__ import annotations

from typing import Any

from winobench.base import options
from winobench.base.errors import InputError
from winobench.diffusion.samplers.base import Plan as Plan
from winobench.diffusion.samplers.base import Sampler
from winobench.diffusion.samplers.base import sample as sample
from winobench.diffusion.samplers.ddim import Ddim
from winobench.diffusion.samplers.dpm_solver import DpmSolver
from winobench.diffusion.samplers.euler import Euler
from winobench.diffusion.samplers.euler_ancestral import EulerAncestral
from winobench.diffusion.samplers.flow_euler import FlowEuler
from winobench.diffusion.schedules import Schedule

SAMPLERS: dict[str, Sampler] = {
    "ddim": Ddim(),
    "euler": Euler(),
    "euler_ancestral": EulerAncestral(),
    "dpm_solver": DpmSolver(),
    "flow_euler": FlowEuler(),
}
"""Name -> sampler. The first of a kind of schedule, flow or not, serves folders whose own one is not here."""

_OF_FOLDERS = {
    "DDIMScheduler": "ddim",
    "FlowMatchEulerDiscreteScheduler": "flow_euler",
    "EulerDiscreteScheduler": "euler",
    "EulerAncestralDiscreteScheduler": "euler_ancestral",
    "DPMSolverMultistepScheduler": "dpm_solver",
}


def has_own(schedule: Schedule) -> bool:
    """True where the scheduler that a model's folder names is among the samplers."""
    return schedule.scheduler_class in _OF_FOLDERS


def find_sampler(name: Any, schedule: Schedule) -> Sampler:
    fitting = [key for key, sampler in SAMPLERS.items() if sampler.is_continuous == schedule.is_continuous]
    if name is None:
        return SAMPLERS[_OF_FOLDERS.get(schedule.scheduler_class, fitting[0])]
    if not isinstance(name, str) or name not in SAMPLERS:
        raise InputError(
            f"the sampler is {options.quote(name)}, but it must be one of {', '.join(SAMPLERS)}", code="unknown-name"
        )
    if name not in fitting:
        kinds = "models of numbered timesteps, and this is a flow model", "flow models, which this is not"
        raise InputError(
            f"the sampler {name} is for {kinds[not schedule.is_continuous]}: use {', '.join(fitting)}",
            code="wrong-kind-of-sampler",
        )
    return SAMPLERS[name]
