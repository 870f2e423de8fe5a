"""The schedule of rectified flow models, such as Stable Diffusion 3 and FLUX: a straight path from latents to noise.

At the noise level s, from 0 to 1, the noisy latents are (1 - s) z + s eps, and the network answers eps - z (Liu et al.
2023; Esser et al. 2024). The 1,000 levels are evenly spaced and then shifted towards noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from winobench.base import options
from winobench.base.errors import InputError
from winobench.diffusion.schedules import RHO, Schedule, frozen, read_keys

SCHEDULER_CLASS = "FlowMatchEulerDiscreteScheduler"
# Schedulers with the same training levels.
_CLASSES = (SCHEDULER_CLASS, "FlowMatchHeunDiscreteScheduler", "FlowMatchLCMScheduler")
SHIFT_TYPES = ("exponential", "linear")

# Fields of the file that decide the levels, and their allowed values.
_FIELDS = {
    "num_train_timesteps": options.whole(2, options.MAX_TIMESTEPS),
    "shift": options.number(above=0, high=1e6),
    "use_dynamic_shifting": options.flag(),
    "base_shift": options.number(-100, 100),
    "max_shift": options.number(-100, 100),
    "base_image_seq_len": options.whole(1, 1 << 30),
    "max_image_seq_len": options.whole(1, 1 << 30),
    "time_shift_type": options.choice(*SHIFT_TYPES),
}
# Keys that would make another path or other levels of it: accepted only with the value that leaves them alone.
_NEUTRAL_VALUES = {"invert_sigmas": (False, None)}
_BETA = (0.6, 0.6)  # of Lee et al. 2024, arXiv 2407.12173


def _beta_spaced(high: float, low: float, steps: int) -> np.ndarray:
    import scipy.special  # late: few models need it

    return low + (high - low) * scipy.special.betaincinv(*_BETA, np.linspace(1, 0, steps))


# Spacings of a run's levels between the highest and the lowest level. A run uses at most one.
_CONVERSIONS = {
    "use_karras_sigmas": lambda high, low, steps: np.linspace(high ** (1 / RHO), low ** (1 / RHO), steps) ** RHO,
    "use_exponential_sigmas": lambda high, low, steps: np.exp(np.linspace(math.log(high), math.log(low), steps)),
    "use_beta_sigmas": _beta_spaced,
}
# Keys that shape a run alone. Scoring ignores them.
_SAMPLER_KEYS = ("shift_terminal", "stochastic_sampling", *_CONVERSIONS, "scale_factors", "upscale_mode")
_TERMINAL = options.number(above=0, below=1)


@dataclasses.dataclass(frozen=True)
class FlowSchedule(Schedule):
    """Levels of a rectified flow. Hashable. Timesteps are noise levels, float32, above 0 and at most 1.

    For u = 1/T, ..., 1 a level s is shift u / (1 + (shift - 1) u), or, with ``use_dynamic_shifting``, e^m / (e^m + 1/u
    - 1): m is a straight line in the number of positions, from ``base_shift`` at ``base_image_seq_len`` to
    ``max_shift`` at ``max_image_seq_len``. ``time_shift_type="linear"`` has m instead of e^m.
    """

    is_continuous: ClassVar[bool] = True
    prediction: ClassVar[str] = "flow"

    num_train_timesteps: int = 1000
    shift: float = 1.0
    use_dynamic_shifting: bool = False
    base_shift: float = 0.5
    max_shift: float = 1.15
    base_image_seq_len: int = 256
    max_image_seq_len: int = 4096
    time_shift_type: str = "exponential"
    positions: int | None = None  # of the images (`for_positions`). Nothing is shifted dynamically without
    sampler_options: tuple[tuple[str, Any], ...] = ()  # the file's other keys, for runs and for writing back. Sorted
    scheduler_class: str = SCHEDULER_CLASS  # the scheduler that the file names. It does not change an error

    def __post_init__(self):
        for name, allowed in _FIELDS.items():
            object.__setattr__(self, name, allowed.check(f"the noise schedule's {name}", getattr(self, name)))
        if self.max_image_seq_len <= self.base_image_seq_len:
            raise InputError(
                f"the noise schedule's max_image_seq_len is {self.max_image_seq_len}, but it must be more than"
                f" base_image_seq_len, {self.base_image_seq_len}",
                code="out-of-range",
            )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FlowSchedule:
        """Reads a ``scheduler_config.json`` of a flow scheduler, or of a solver that has flow levels."""
        if isinstance(config, Mapping) and config.get("use_flow_sigmas"):
            return cls._of_solver(config)
        known = {*_FIELDS, *_SAMPLER_KEYS}
        kind, content = read_keys(config, _CLASSES, SCHEDULER_CLASS, _NEUTRAL_VALUES, known)
        # Fields that a file leaves out or empty have their defaults.
        fields = {key: content[key] for key in _FIELDS if content.get(key) is not None}
        others = sorted((key, frozen(value)) for key, value in content.items() if key not in _FIELDS)
        return cls(**fields, sampler_options=tuple(others), scheduler_class=kind)

    @classmethod
    def _of_solver(cls, config: Mapping[str, Any]) -> FlowSchedule:
        kind, prediction = config.get("_class_name"), config.get("prediction_type")
        if prediction != "flow_prediction" or config.get("use_dynamic_shifting"):
            raise InputError(
                f"{kind} has flow levels, but predicts {options.quote(prediction)}: this form is not supported",
                code="unsupported-option",
            )
        total, shift = config.get("num_train_timesteps"), config.get("flow_shift")
        return cls(1000 if total is None else total, 1.0 if shift is None else shift, scheduler_class=str(kind))

    def to_config(self) -> dict[str, Any]:
        named = {"_class_name": self.scheduler_class}
        if self.scheduler_class in _CLASSES:
            return {**named, **self.training, **dict(self.sampler_options)}
        levels = {"num_train_timesteps": self.num_train_timesteps, "flow_shift": self.shift}
        return {**named, **levels, "use_flow_sigmas": True, "prediction_type": "flow_prediction"}

    @property
    def training(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    def for_positions(self, positions: int) -> FlowSchedule:
        return dataclasses.replace(self, positions=positions) if self.use_dynamic_shifting else self

    def shifted(self, u: np.ndarray) -> np.ndarray:
        """Evenly spaced levels as the model's: float64, like ``u``, above 0 and at most 1."""
        u = np.asarray(u, np.float64)
        if not self.use_dynamic_shifting:
            return self.shift * u / (1 + (self.shift - 1) * u)
        if self.positions is None:
            return u
        span = self.max_image_seq_len - self.base_image_seq_len
        slope = (self.max_shift - self.base_shift) / span
        shift = slope * (self.positions - self.base_image_seq_len) + self.base_shift
        factor = math.exp(shift) if self.time_shift_type == "exponential" else shift
        return factor / (factor + (1 / u - 1))

    @functools.cached_property
    def noise_rates(self) -> np.ndarray:
        """The levels, rising: float32 ``[T]``."""
        total = self.num_train_timesteps
        levels = self.shifted(np.arange(1, total + 1) / total).astype(np.float32)
        levels.setflags(write=False)
        return levels

    @property
    def signal_rates(self) -> np.ndarray:
        return np.float32(1) - self.noise_rates

    @property
    def model_times(self) -> np.ndarray:
        """The levels times T, as schedulers have them: float32 ``[T]``."""
        return self.noise_rates * np.float32(self.num_train_timesteps)

    def sampling_levels(self, num_steps: int, *, evenly: bool) -> np.ndarray:
        """Levels of a run of Euler's method, as in diffusers: float32 [num_steps + 1], falling to 0, the image."""
        # The lowest level is shifted twice, but not one whose shift depends on the image.
        lowest = 1 / self.num_train_timesteps if self.use_dynamic_shifting else float(self.noise_rates[0])
        last = 1 / num_steps if evenly else lowest
        levels = self.shifted(np.linspace(1.0, last, num_steps))
        chosen = self.run_options
        if "shift_terminal" in chosen:
            if levels[-1] == 1:
                raise InputError(
                    "the scheduler's shift_terminal needs at least 2 steps: raise num_steps", code="out-of-range"
                )
            levels = 1 - (1 - levels) * (1 - chosen["shift_terminal"]) / (1 - levels[-1])
        for name in chosen.keys() & _CONVERSIONS.keys():
            levels = _CONVERSIONS[name](levels[0], levels[-1], num_steps)
        return np.append(levels, 0).astype(np.float32)

    @property
    def run_options(self) -> dict[str, Any]:
        """The file's options that change the levels of a run, where they are set. Raises InputError for others."""
        chosen = {name: value for name, value in self.sampler_options if value and name in _SAMPLER_KEYS}
        if "shift_terminal" in chosen:
            chosen["shift_terminal"] = _TERMINAL.check("the scheduler's shift_terminal", chosen["shift_terminal"])
        conversions = sorted(chosen.keys() & _CONVERSIONS.keys())
        if len(conversions) > 1:
            raise InputError(
                f"scheduler_config.json sets {' and '.join(conversions)}, but a run can use one of them: remove the"
                " others",
                code="options-exclude-each-other",
            )
        for name in ("stochastic_sampling", "scale_factors"):
            if name in chosen:
                raise InputError(
                    f"scheduler_config.json sets {name}, with which images cannot be generated here: remove it",
                    code="unsupported-option",
                )
        chosen.pop("upscale_mode", None)
        return {name: True if name in _CONVERSIONS else value for name, value in chosen.items()}

    def published_levels(self, num_samples: int, left_out: int) -> np.ndarray:
        """The levels that Self-Bench judges on (arXiv 2505.17955): float32 [number of levels], rising.

        Every int(T / num_samples)-th level from the noisiest on, without the first and the last few. Its code gives the
        scheduler no image size, so nothing is shifted dynamically.
        """
        total = self.num_train_timesteps
        num_samples = options.whole(1, total).check("num_samples of timesteps='published'", num_samples)
        from_noisiest = np.arange(left_out, total - left_out, int(total / num_samples))
        unshifted = dataclasses.replace(self, positions=None)
        return unshifted.shifted(1 - from_noisiest[::-1] / total).astype(np.float32)

    # Timesteps as noise levels ------------------------------------------------------------------------------------

    def timesteps_at(self, numbers: ArrayLike) -> Any:
        if isinstance(numbers, np.ndarray):
            return self.noise_rates[numbers]
        return jnp.asarray(self.noise_rates)[numbers]

    def as_whole_numbers(self, timesteps: np.ndarray) -> np.ndarray:
        """Levels as int32 of the same bits."""
        return np.asarray(timesteps, np.float32).view(np.int32)

    def from_whole_numbers(self, numbers: jax.Array) -> jax.Array:
        return jax.lax.bitcast_convert_type(numbers, jnp.float32)

    def rates(self, timesteps: ArrayLike, ndim: int) -> tuple[jax.Array, jax.Array]:
        levels = jnp.asarray(timesteps, jnp.float32)
        levels = levels.reshape(levels.shape + (1,) * (ndim - levels.ndim))
        return 1 - levels, levels

    def model_time(self, timesteps: ArrayLike) -> jax.Array:
        return jnp.asarray(timesteps, jnp.float32) * jnp.float32(self.num_train_timesteps)
