"""Noise schedules: how much noise the latents of each timestep hold, and what a network predicts.

A `scheduler_config.json` names a sampler (PNDM, DDIM, Euler, ...). Samplers step differently but share one training
schedule, and only that decides an error.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from winobench.base import options
from winobench.base.errors import InputError

PREDICTIONS = ("epsilon", "v", "flow")
# As ``scheduler_config.json`` names them -> as above.
_PREDICTION_NAMES = {"epsilon": "epsilon", "v_prediction": "v"}
PREDICTION_TYPES = tuple(_PREDICTION_NAMES)
BETA_SCHEDULES = ("linear", "scaled_linear", "squaredcos_cap_v2")

# beta_start, beta_end and beta_schedule where the file leaves them out: each sampler class has its own.
_USUAL_DEFAULTS = (0.0001, 0.02, "linear")
_LATENT_LINEAR = (0.00085, 0.012, "linear")
_LATENT_SCALED = (0.00085, 0.012, "scaled_linear")
_USUAL_CLASSES = """
    DDIMInverseScheduler DDIMParallelScheduler DDIMScheduler DDPMParallelScheduler DDPMScheduler DEISMultistepScheduler
    DPMSolverMultistepInverseScheduler DPMSolverMultistepScheduler DPMSolverSinglestepScheduler
    EulerAncestralDiscreteScheduler EulerDiscreteScheduler LMSDiscreteScheduler PNDMScheduler SASolverScheduler
    UniPCMultistepScheduler
"""
_CLASS_DEFAULTS = {
    **dict.fromkeys(_USUAL_CLASSES.split(), _USUAL_DEFAULTS),
    "DPMSolverSDEScheduler": _LATENT_LINEAR,
    "HeunDiscreteScheduler": _LATENT_LINEAR,
    "KDPM2AncestralDiscreteScheduler": _LATENT_LINEAR,
    "KDPM2DiscreteScheduler": _LATENT_LINEAR,
    "LCMScheduler": _LATENT_SCALED,
    "TCDScheduler": _LATENT_SCALED,
}

# Keys that shape the sampler's steps alone: kept for writing the file back. The last two are of 2022's files.
_SAMPLER_KEYS = """
    algorithm_type clip_sample clip_sample_range corrector_order disable_corrector dynamic_thresholding_ratio
    euler_at_final final_sigmas_type flow_shift interpolation_type lambda_min_clipped lower_order_final
    noise_sampler_seed original_inference_steps predict_x0 predictor_order sample_max_value set_alpha_to_one
    shift_terminal sigma_max sigma_min skip_prk_steps solver_order solver_p solver_type steps_offset tau_func
    thresholding time_shift_type timestep_scaling timestep_spacing use_beta_sigmas use_dynamic_shifting
    use_exponential_sigmas use_karras_sigmas use_lu_lambdas variance_type tensor_format timestep_values
"""

# Keys that would make another training schedule of it: accepted only with the value that leaves it alone.
_NEUTRAL_VALUES = {
    "predict_epsilon": (True, None),
    "timestep_type": ("discrete",),
    "use_flow_sigmas": (False, None),
}

# Of the levels of Karras et al. 2022, Eq. 5.
RHO = 7.0

# The fields that decide an error. A model's fingerprint holds these and no others, so that runs recorded with one
# sampler's file continue with another's.
_TRAINING_FIELDS = {
    "num_train_timesteps": options.whole(2, options.MAX_TIMESTEPS),
    "beta_start": options.number(0, 1),
    "beta_end": options.number(0, 1),
    "beta_schedule": options.choice(*BETA_SCHEDULES),
    "trained_betas": options.items(options.number(0, 1), 0, options.MAX_TIMESTEPS).or_none(),
    "rescale_betas_zero_snr": options.flag(),
    "prediction_type": options.choice(*PREDICTION_TYPES),
}

_COSINE_OFFSET = 0.008
_COSINE_MAX_BETA = 0.999


class Schedule(abc.ABC):
    """The rule by which noise enters latents, and the prediction of the network.

    With the rates a and b of a timestep, the noisy latents are z_t = a z + b eps. A perfect network would answer

    - ``epsilon``: the noise eps (Ho et al. 2020);
    - ``v``: the velocity a eps - b z (Salimans and Ho 2022, Appendix D);
    - ``flow``: the velocity eps - z of the straight path between the two (Liu et al. 2023).

    Subclasses are frozen dataclasses, so that equal schedules share a compilation. All methods are pure, and broadcast:
    timesteps are ``[B, ...]``, and the arrays that they belong to have further axes behind these. Timesteps are int,
    rows of the tables. In a continuous schedule, `timesteps_at` turns these numbers into timesteps.
    """

    is_continuous: ClassVar[bool] = False
    """True where timesteps are noise levels: any float32 from 0 to 1."""
    scheduler_class: str
    """The sampler that a folder of the model names."""

    num_train_timesteps: int

    def published_levels(self, num_samples: int, left_out: int) -> np.ndarray:
        """The levels that Self-Bench judges on: float32 [number of levels], rising. Of continuous schedules alone."""
        raise NotImplementedError

    @property
    @abc.abstractmethod
    def prediction(self) -> str:
        """The prediction of the network: one of `PREDICTIONS`."""

    @property
    @abc.abstractmethod
    def signal_rates(self) -> np.ndarray:
        """The factor of the clean latents at each timestep: float32 ``[T]``."""

    @property
    @abc.abstractmethod
    def noise_rates(self) -> np.ndarray:
        """The factor of the noise at each timestep: float32 ``[T]``."""

    @property
    @abc.abstractmethod
    def model_times(self) -> np.ndarray:
        """The time that the network takes at each timestep: float32 ``[T]``."""

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
        """The answer of a perfect network. Arguments and result as in `add_noise`."""
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
          noisy: z_t, the input of the network, like ``prediction``.
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
        """The times that the network takes: float32, like ``timesteps``."""
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

    def __post_init__(self) -> None:
        try:
            pairs = [(str(key), value) for key, value in self.sampler_options]
        except (TypeError, ValueError):
            field = f"the noise schedule's sampler_options is {options.quote(self.sampler_options)}"
            raise InputError(f"{field}, but it must be pairs of a name and a value", code="wrong-type") from None
        sampler_options = tuple(sorted((key, frozen(value)) for key, value in pairs))
        object.__setattr__(self, "sampler_options", sampler_options)
        options.text().check("the noise schedule's scheduler_class", self.scheduler_class)
        for name, allowed in _TRAINING_FIELDS.items():
            if name != "beta_schedule" or self.trained_betas is None:
                fault = "unsupported-option" if name == "prediction_type" else "out-of-range"
                allowed.check(f"the noise schedule's {name}", getattr(self, name), fault)
        if self.trained_betas is not None and len(self.trained_betas) != self.num_train_timesteps:
            raise InputError(
                f"the noise schedule lists {len(self.trained_betas)} trained_betas for"
                f" {self.num_train_timesteps} timesteps: the two numbers must be equal",
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
        known = {*_TRAINING_FIELDS, *_SAMPLER_KEYS.split()}
        scheduler_class, content = read_keys(config, _CLASS_DEFAULTS, "DDIMScheduler", _NEUTRAL_VALUES, known)
        defaults = zip(("beta_start", "beta_end", "beta_schedule"), _CLASS_DEFAULTS[scheduler_class], strict=True)
        values: dict[str, Any] = {"num_train_timesteps": 1000, **dict(defaults)}
        values |= {key: content[key] for key in _TRAINING_FIELDS if content.get(key) is not None}
        if "trained_betas" in values:
            betas = values["trained_betas"]
            if isinstance(betas, list | tuple | np.ndarray):
                betas = np.ravel(np.asarray(betas, object)).tolist()
                # The check of the fields refuses other values than numbers.
                values["trained_betas"] = tuple(float(b) if isinstance(b, numbers.Real) else b for b in betas)
        sampler_options = {key: value for key, value in content.items() if key not in _TRAINING_FIELDS}
        if str(config.get("_class_name")).startswith("DDIM"):
            sampler_options.setdefault("clip_sample", True)  # as diffusers reads a file of this class
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
        """The prediction of the network: ``epsilon`` or ``v``."""
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


def read_keys(
    config: Any, classes: Iterable[str], default: str, neutral: Mapping[str, tuple[Any, ...]], known: Iterable[str]
) -> tuple[str, dict[str, Any]]:
    """(class, keys and values) of a ``scheduler_config.json``.

    Raises InputError for another class than one of ``classes``, for another value of a key than its ``neutral`` ones,
    and for keys that are neither neutral nor ``known``.
    """
    if not isinstance(config, Mapping) or not all(isinstance(key, str) for key in config):
        raise InputError(
            f"scheduler_config.json must hold an object, not {options.quote(config)}", code="not-an-object"
        )
    named = config.get("_class_name", default)
    if not isinstance(named, str) or named not in classes:
        raise InputError(
            f"scheduler_config.json names the scheduler {options.quote(named)}, whose training schedule is not known"
            f" here: it must be one of {', '.join(sorted(classes))}",
            code="unknown-scheduler",
        )
    content = {key: value for key, value in config.items() if not key.startswith("_")}
    for key, allowed in neutral.items():
        if key in content and content[key] not in allowed:
            raise InputError(
                f"scheduler_config.json sets {key} to {options.quote(content[key])}, which is not supported: only"
                f" {allowed[0]!r} is",
                code="unsupported-option",
            )
    if unknown := sorted(content.keys() - neutral.keys() - set(known)):
        raise InputError(
            f"scheduler_config.json has the unknown key{'s' if len(unknown) > 1 else ''} {', '.join(unknown)},"
            " which might change the noise schedule: remove keys that are not needed",
            code="unknown-field",
        )
    return named, content


def _read_only(table: np.ndarray) -> np.ndarray:
    table.setflags(write=False)
    return table


def frozen(value: Any) -> Any:
    """An option's value that can be hashed: lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, Mapping):
        raise InputError(
            "scheduler_config.json holds an object among the sampler's options, which has no meaning there",
            code="wrong-type",
        )
    return value
