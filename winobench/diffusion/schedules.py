"""Noise schedules: how much noise the latents of each timestep hold, and what a network is asked to predict.

A `Schedule` is three tables over the timesteps and a kind of prediction. It is a value: equal and hashed over all that
changes a result, so it can be a static argument of ``jax.jit``. `NoiseSchedule` is that of Stable Diffusion. It is read
from the ``scheduler_config.json`` of a diffusers folder, whichever sampler wrote the file: the samplers (PNDM, DDIM,
Euler, DPM-Solver, ...) differ in how they step, but share one training schedule, and only that decides an error.
Its timesteps are integers in ``[0, num_train_timesteps)``. Those of flow models are noise levels
(`winobench.diffusion.flow_schedule`).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import numbers
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from winobench.base.errors import InputError

PREDICTIONS = ("epsilon", "v", "flow")
# As ``scheduler_config.json`` names them -> as above.
_PREDICTION_NAMES = {"epsilon": "epsilon", "v_prediction": "v"}
PREDICTION_TYPES = tuple(_PREDICTION_NAMES)
BETA_SCHEDULES = ("linear", "scaled_linear", "squaredcos_cap_v2")

# What beta_start, beta_end and beta_schedule are when the file leaves them out: each sampler class has its own.
_USUAL_DEFAULTS = (0.0001, 0.02, "linear")
_LATENT_LINEAR = (0.00085, 0.012, "linear")
_LATENT_SCALED = (0.00085, 0.012, "scaled_linear")
_CLASS_DEFAULTS = {
    "DDIMInverseScheduler": _USUAL_DEFAULTS,
    "DDIMParallelScheduler": _USUAL_DEFAULTS,
    "DDIMScheduler": _USUAL_DEFAULTS,
    "DDPMParallelScheduler": _USUAL_DEFAULTS,
    "DDPMScheduler": _USUAL_DEFAULTS,
    "DEISMultistepScheduler": _USUAL_DEFAULTS,
    "DPMSolverMultistepScheduler": _USUAL_DEFAULTS,
    "DPMSolverSDEScheduler": _LATENT_LINEAR,
    "DPMSolverSinglestepScheduler": _USUAL_DEFAULTS,
    "EulerAncestralDiscreteScheduler": _USUAL_DEFAULTS,
    "EulerDiscreteScheduler": _USUAL_DEFAULTS,
    "HeunDiscreteScheduler": _LATENT_LINEAR,
    "KDPM2AncestralDiscreteScheduler": _LATENT_LINEAR,
    "KDPM2DiscreteScheduler": _LATENT_LINEAR,
    "LCMScheduler": _LATENT_SCALED,
    "LMSDiscreteScheduler": _USUAL_DEFAULTS,
    "PNDMScheduler": _USUAL_DEFAULTS,
    "SASolverScheduler": _USUAL_DEFAULTS,
    "TCDScheduler": _LATENT_SCALED,
    "UniPCMultistepScheduler": _USUAL_DEFAULTS,
}

# Keys that shape the sampler's steps and nothing else: kept for writing the file back, otherwise ignored.
_SAMPLER_KEYS = frozenset(
    {
        "algorithm_type",
        "clip_sample",
        "clip_sample_range",
        "corrector_order",
        "disable_corrector",
        "dynamic_thresholding_ratio",
        "euler_at_final",
        "final_sigmas_type",
        "flow_shift",
        "interpolation_type",
        "lambda_min_clipped",
        "lower_order_final",
        "noise_sampler_seed",
        "original_inference_steps",
        "predict_x0",
        "predictor_order",
        "sample_max_value",
        "set_alpha_to_one",
        "shift_terminal",
        "sigma_max",
        "sigma_min",
        "skip_prk_steps",
        "solver_order",
        "solver_p",
        "solver_type",
        "steps_offset",
        "tau_func",
        "thresholding",
        "time_shift_type",
        "timestep_scaling",
        "timestep_spacing",
        "use_beta_sigmas",
        "use_exponential_sigmas",
        "use_karras_sigmas",
        "use_lu_lambdas",
        "variance_type",
        # Of the files of 2022. Both were dropped from diffusers before 0.10.
        "tensor_format",
        "timestep_values",
    }
)

# Keys that would make another training schedule of it: accepted only with the value that leaves it alone.
_NEUTRAL_VALUES = {
    "predict_epsilon": (True, None),
    "timestep_type": ("discrete",),
    "use_dynamic_shifting": (False, None),
    "use_flow_sigmas": (False, None),
}

# More than any published schedule has, and few enough that a table of them is nothing.
_MAX_TIMESTEPS = 1_000_000

# The fields that decide an error. A model's fingerprint holds these and no others, so that runs recorded with one
# sampler's file continue with another's.
_TRAINING_FIELDS = (
    "num_train_timesteps",
    "beta_start",
    "beta_end",
    "beta_schedule",
    "trained_betas",
    "rescale_betas_zero_snr",
    "prediction_type",
)

_COSINE_OFFSET = 0.008
_COSINE_MAX_BETA = 0.999


class Schedule(abc.ABC):
    """How noise enters latents, and what the network answers.

    With the rates a and b of a timestep, the noisy latents are z_t = a z + b eps. A perfect network would answer

    - ``epsilon``: the noise eps (Ho et al. 2020);
    - ``v``: the velocity a eps - b z (Salimans and Ho 2022, Appendix D);
    - ``flow``: the velocity eps - z of the straight path between the two (Liu et al. 2023).

    Subclasses are frozen dataclasses, so that equal schedules share a compilation. All methods are pure, and broadcast:
    timesteps are ``[B, ...]``, and the arrays that they belong to have further axes behind these. Timesteps are int,
    rows of the tables. Or, of a schedule that is continuous, whatever it makes of these numbers (`timesteps_at`).
    """

    is_continuous: ClassVar[bool] = False
    """Whether timesteps are noise levels, float32 from 0 to 1, and any of them will do."""
    scheduler_class: str
    """The sampler that a folder of the model names."""

    num_train_timesteps: int

    @property
    @abc.abstractmethod
    def prediction(self) -> str:
        """What the network answers: one of `PREDICTIONS`."""

    @property
    @abc.abstractmethod
    def signal_rates(self) -> np.ndarray:
        """What the clean latents are multiplied by at each timestep: float32 ``[T]``."""

    @property
    @abc.abstractmethod
    def noise_rates(self) -> np.ndarray:
        """What the noise is multiplied by at each timestep: float32 ``[T]``."""

    @property
    @abc.abstractmethod
    def model_times(self) -> np.ndarray:
        """What the network is told at each timestep: float32 ``[T]``."""

    @property
    @abc.abstractmethod
    def training(self) -> dict[str, Any]:
        """Field -> value of all that can change an error, ready for JSON: a model's fingerprint holds it."""

    @abc.abstractmethod
    def to_config(self) -> dict[str, Any]:
        """The content of a ``scheduler_config.json`` that it is read from again."""

    def for_positions(self, positions: int) -> Self:
        """The schedule for images of so many positions, as the network counts them: most do not depend on it."""
        return self

    def timesteps_at(self, numbers: ArrayLike) -> Any:
        """The timesteps of these numbers, from 0, that with the least noise, to T - 1."""
        return numbers

    def as_whole_numbers(self, timesteps: np.ndarray) -> np.ndarray:
        """Timesteps as they travel with other indices: int32, like ``timesteps``."""
        return np.asarray(timesteps).astype(np.int32)

    def from_whole_numbers(self, numbers: jax.Array) -> jax.Array:
        """The timesteps that `as_whole_numbers` has turned into int32."""
        return numbers

    def rates(self, timesteps: ArrayLike, ndim: int) -> tuple[jax.Array, jax.Array]:
        """The rates of signal and noise, float32, of the timesteps' shape with further axes of 1 up to ``ndim``."""
        timesteps = jnp.asarray(timesteps)
        shape = timesteps.shape + (1,) * (ndim - timesteps.ndim)
        signal, noise = (
            jnp.asarray(table)[timesteps].reshape(shape) for table in (self.signal_rates, self.noise_rates)
        )
        return signal, noise

    def add_noise(self, latents: ArrayLike, noise: ArrayLike, timesteps: ArrayLike) -> jax.Array:
        """The noisy latents z_t.

        Args:
          latents: z, ``[B, ...]``, scaled as in training.
          noise: eps, like ``latents``.
          timesteps: int ``[B]``.

        Returns:
          float32, like ``latents``.
        """
        signal_rate, noise_rate = self.rates(timesteps, jnp.ndim(latents))
        return signal_rate * latents + noise_rate * noise

    def target(self, latents: ArrayLike, noise: ArrayLike, timesteps: ArrayLike) -> jax.Array:
        """What a perfect network would answer. Arguments and result as in `add_noise`."""
        if self.prediction == "epsilon":
            return jnp.asarray(noise, jnp.float32)
        if self.prediction == "flow":
            return jnp.asarray(noise, jnp.float32) - jnp.asarray(latents, jnp.float32)
        signal_rate, noise_rate = self.rates(timesteps, jnp.ndim(latents))
        return signal_rate * noise - noise_rate * latents

    def as_noise(self, prediction: ArrayLike, noisy: ArrayLike, timesteps: ArrayLike) -> jax.Array:
        """The noise that a network's answer implies.

        Args:
          prediction: the network's answer, ``[B, ...]``.
          noisy: z_t, what the network was given, like ``prediction``.
          timesteps: int ``[B]``.

        Returns:
          float32, like ``prediction``.
        """
        if self.prediction == "epsilon":
            return jnp.asarray(prediction, jnp.float32)
        signal_rate, noise_rate = self.rates(timesteps, jnp.ndim(prediction))
        if self.prediction == "flow":
            return (noisy + signal_rate * prediction) / (signal_rate + noise_rate)
        return signal_rate * prediction + noise_rate * noisy

    def model_time(self, timesteps: ArrayLike) -> jax.Array:
        """What the network is told of timesteps: float32, like ``timesteps``."""
        return jnp.asarray(self.model_times)[jnp.asarray(timesteps)]


@dataclasses.dataclass(frozen=True)
class NoiseSchedule(Schedule):
    """A discrete, variance-preserving training schedule. Hashable.

    Two schedules are equal when nothing differs that can change a result: the training schedule, which alone decides
    errors, and what samplers read. A schedule can therefore be a static argument of ``jax.jit``. ``training`` is the
    part that a model's fingerprint holds.

    Attributes:
      num_train_timesteps: T, the number of timesteps.
      beta_start: variance added at the first timestep (``linear`` and ``scaled_linear``).
      beta_end: variance added at the last one.
      beta_schedule: ``linear``, ``scaled_linear`` (linear in the square root; Stable Diffusion) or
        ``squaredcos_cap_v2`` (Nichol and Dhariwal 2021, Eq. 17).
      trained_betas: explicit betas, which take the place of the four fields above, or None.
      rescale_betas_zero_snr: shift and scale so that the last timestep is pure noise (Lin et al. 2023, Algorithm 1).
      prediction_type: what the network predicts: ``epsilon`` (the noise) or ``v_prediction`` (Salimans and Ho 2022).
      scheduler_class: the sampler that the file names. It does not change an error.
      sampler_options: the file's other keys, for samplers and for writing the file back. Sorted, lists as tuples.
    """

    num_train_timesteps: int = 1000
    beta_start: float = 0.00085
    beta_end: float = 0.012
    beta_schedule: str = "scaled_linear"
    trained_betas: tuple[float, ...] | None = None
    rescale_betas_zero_snr: bool = False
    prediction_type: str = "epsilon"
    scheduler_class: str = "DDIMScheduler"
    sampler_options: tuple[tuple[str, Any], ...] = (
        ("clip_sample", False),
        ("set_alpha_to_one", False),
        ("steps_offset", 1),
    )

    def __post_init__(self):
        options = tuple(sorted((str(key), _frozen(value)) for key, value in self.sampler_options))
        object.__setattr__(self, "sampler_options", options)
        if not isinstance(self.prediction_type, str) or self.prediction_type not in PREDICTION_TYPES:
            raise InputError(
                f"the noise schedule's prediction_type is {self.prediction_type!r}, but only"
                f" {' and '.join(PREDICTION_TYPES)} can be scored: use a checkpoint that predicts one of these",
                code="unsupported-option",
            )
        for name in ("beta_start", "beta_end"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value <= 1:
                raise InputError(
                    f"the noise schedule's {name} is {_shown(value)}, but it must be a number from 0 to 1",
                    code="out-of-range",
                )
        if not isinstance(self.rescale_betas_zero_snr, bool):
            raise InputError(
                f"the noise schedule's rescale_betas_zero_snr is {_shown(self.rescale_betas_zero_snr)}, but it must be"
                " true or false",
                code="out-of-range",
            )
        if self.trained_betas is not None:
            is_list = isinstance(self.trained_betas, tuple | list | np.ndarray)
            if not is_list or not all(isinstance(beta, numbers.Real) for beta in self.trained_betas):
                raise InputError(
                    f"the noise schedule's trained_betas are {_shown(self.trained_betas)}, but they must be a list of"
                    " numbers",
                    code="out-of-range",
                )
        if self.trained_betas is None and self.beta_schedule not in BETA_SCHEDULES:
            raise InputError(
                f"the noise schedule's beta_schedule is {self.beta_schedule!r}, but it must be one of"
                f" {', '.join(BETA_SCHEDULES)}",
                code="out-of-range",
            )
        steps = self.num_train_timesteps
        if isinstance(steps, bool) or not isinstance(steps, int) or not 2 <= steps <= _MAX_TIMESTEPS:
            raise InputError(
                f"the noise schedule has {_shown(steps)} timesteps (num_train_timesteps), but it must have a whole"
                f" number of them, from 2 to {_MAX_TIMESTEPS:,}",
                code="out-of-range",
            )
        betas = self._betas_before_rescaling()
        if not (np.isfinite(betas).all() and (betas >= 0).all() and (betas <= 1).all()):
            raise InputError(
                "the noise schedule's betas leave the range from 0 to 1: check beta_start, beta_end or trained_betas",
                code="out-of-range",
            )
        if len(betas) != self.num_train_timesteps:
            raise InputError(
                f"the noise schedule lists {len(betas)} trained_betas for {self.num_train_timesteps} timesteps:"
                " the two numbers must be equal",
                code="wrong-number-of-betas",
            )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> NoiseSchedule:
        """Reads the content of a ``scheduler_config.json``.

        Args:
          config: the file's keys and values. Keys that the file leaves out have the default of the sampler class that
            it names.

        Returns:
          The training schedule.

        Raises:
          InputError: for a sampler class, a key or a value that means another training schedule (flow matching,
            continuous timesteps, ``prediction_type="sample"``), or that is unknown and might.
        """
        if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):
            raise InputError(f"scheduler_config.json must hold an object, not {_shown(config)}", code="not-an-object")
        options = {key: value for key, value in config.items() if not key.startswith("_")}
        scheduler_class = config.get("_class_name", "DDIMScheduler")
        if not isinstance(scheduler_class, str) or scheduler_class not in _CLASS_DEFAULTS:
            raise InputError(
                f"scheduler_config.json names the scheduler {scheduler_class!r}, whose training schedule is not known:"
                f" it must be one of {', '.join(sorted(_CLASS_DEFAULTS))}",
                code="unknown-scheduler",
            )
        for key, neutral in _NEUTRAL_VALUES.items():
            if key in options and options[key] not in neutral:
                raise InputError(
                    f"scheduler_config.json sets {key} to {options[key]!r}, a training schedule that is not supported:"
                    f" only {neutral[0]!r} is",
                    code="unsupported-option",
                )
        fields = set(_TRAINING_FIELDS)
        known = fields | _SAMPLER_KEYS | _NEUTRAL_VALUES.keys()
        if unknown := sorted(options.keys() - known):
            raise InputError(
                f"scheduler_config.json has the unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)},"
                " which might change the noise schedule: remove what is not needed",
                code="unknown-field",
            )
        defaults = zip(("beta_start", "beta_end", "beta_schedule"), _CLASS_DEFAULTS[scheduler_class], strict=True)
        values: dict[str, Any] = {"num_train_timesteps": 1000, **dict(defaults)}
        values |= {key: options[key] for key in fields if options.get(key) is not None}
        if "trained_betas" in values:
            betas = values["trained_betas"]
            if isinstance(betas, list | tuple | np.ndarray):
                betas = np.ravel(np.asarray(betas, object)).tolist()
                # What is not a number is left to the check of the fields.
                values["trained_betas"] = tuple(float(b) if isinstance(b, numbers.Real) else b for b in betas)
        sampler_options = {key: value for key, value in options.items() if key not in fields}
        if str(config.get("_class_name")).startswith("DDIM"):
            sampler_options.setdefault("clip_sample", True)  # what diffusers takes a file of this class to say
        try:
            return cls(**values, scheduler_class=scheduler_class, sampler_options=tuple(sampler_options.items()))
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"scheduler_config.json holds a value of the wrong kind: {error}", code="wrong-type"
            ) from error

    def to_config(self) -> dict[str, Any]:
        """Returns the content of a ``scheduler_config.json`` that diffusers and :meth:`from_config` read."""
        config = {"_class_name": self.scheduler_class}
        config |= self.training
        if self.trained_betas is not None:
            config["trained_betas"] = list(self.trained_betas)
        if not self.rescale_betas_zero_snr:
            # Not every sampler class has this option. Those without it would warn about the key.
            del config["rescale_betas_zero_snr"]
        return config | dict(self.sampler_options)

    @property
    def training(self) -> dict[str, Any]:
        """Field -> value of the training schedule: all that can change an error, ready for JSON."""
        return {name: getattr(self, name) for name in _TRAINING_FIELDS}

    @functools.cached_property
    def alphas_cumprod(self) -> np.ndarray:
        """Share of the signal's variance that is left at each timestep: float32 ``[T]``, falling, in [0, 1].

        Computed in float64 and rounded once: a float32 running product drifts by up to 1e-6 over 1,000 steps.
        """
        signal = np.cumprod(1.0 - self._betas_before_rescaling())
        if self.rescale_betas_zero_snr:
            root = np.sqrt(signal)
            root = (root - root[-1]) * root[0] / (root[0] - root[-1])
            signal = root**2
        return _read_only(signal.astype(np.float32))

    @property
    def prediction(self) -> str:
        """What the network answers: ``epsilon`` or ``v``."""
        return _PREDICTION_NAMES[self.prediction_type]

    @functools.cached_property
    def signal_rates(self) -> np.ndarray:
        """sqrt(abar_t), float32 ``[T]``."""
        return _read_only(np.sqrt(self.alphas_cumprod))

    @functools.cached_property
    def noise_rates(self) -> np.ndarray:
        """sqrt(1 - abar_t), float32 ``[T]``."""
        return _read_only(np.sqrt(np.float32(1) - self.alphas_cumprod))

    @functools.cached_property
    def model_times(self) -> np.ndarray:
        """The timesteps themselves, float32 ``[T]``."""
        return _read_only(np.arange(self.num_train_timesteps, dtype=np.float32))

    def _betas_before_rescaling(self) -> np.ndarray:
        if self.trained_betas is not None:
            return np.asarray(self.trained_betas, np.float64)
        steps = self.num_train_timesteps
        if self.beta_schedule == "linear":
            return np.linspace(self.beta_start, self.beta_end, steps)
        if self.beta_schedule == "scaled_linear":
            return np.linspace(math.sqrt(self.beta_start), math.sqrt(self.beta_end), steps) ** 2
        time = np.arange(steps + 1) / steps
        signal = np.cos((time + _COSINE_OFFSET) / (1 + _COSINE_OFFSET) * np.pi / 2) ** 2
        return np.minimum(1 - signal[1:] / signal[:-1], _COSINE_MAX_BETA)


def _read_only(table: np.ndarray) -> np.ndarray:
    table.setflags(write=False)
    return table


def _frozen(value: Any) -> Any:
    """A JSON value as a hashable one."""
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, Mapping):
        raise InputError(
            "scheduler_config.json holds an object among the sampler's options, which has no meaning there",
            code="wrong-type",
        )
    return value


def _shown(value: Any) -> str:
    """A value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
