"""The base class of samplers, and the loop that all of them run in, with guidance as one batch."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.diffusion.schedules import Schedule

Denoiser = Callable[[jax.Array, jax.Array, Any], jax.Array]
Row = Mapping[str, jax.Array]  # name -> float32 scalar: one step's entries of `Plan.tables`


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps of a run, S of them, computed on the host. A pytree, so that one compiled loop takes any of S steps."""

    prediction: str = dataclasses.field(metadata={"static": True})  # one of `schedules.PREDICTIONS`
    numbers: np.ndarray  # int32 ``[S]``. A run that begins with an image lacks the first ones
    times: np.ndarray  # float32 ``[S]``, the network's
    input_scale: np.ndarray  # float32 ``[S]``, of the latents for the network
    tables: dict[str, np.ndarray]  # name -> float32 ``[S]``, the sampler's own
    noise_scale: np.ndarray  # float32, of standard normal noise where a run begins with nothing else
    start: np.ndarray  # float32 ``[2]``, of the clean latents and the noise where it begins with an image


def make_plan(
    schedule: Schedule,
    first: int,
    *,
    times: np.ndarray,
    tables: Mapping[str, np.ndarray],
    start: tuple[Any, Any],
    noise_scale: Any = 1.0,
    input_scale: np.ndarray | None = None,
) -> Plan:
    """A float32 `Plan` of the steps from number ``first`` on, from tables ``[num_steps]`` of all steps.

    ``start`` has the rates of signal and noise of all steps.
    """
    input_scale = np.ones(len(times)) if input_scale is None else input_scale
    return Plan(
        prediction=schedule.prediction,
        numbers=np.arange(first, len(times), dtype=np.int32),
        times=np.float32(times[first:]),
        input_scale=np.float32(input_scale[first:]),
        tables={name: np.float32(table[first:]) for name, table in tables.items()},
        noise_scale=np.float32(noise_scale),
        start=np.float32([rate[first] for rate in start]),
    )


class Sampler(abc.ABC):
    """A way from noise to latents. Subclasses are frozen dataclasses: static arguments of ``jax.jit``."""

    is_continuous: ClassVar[bool] = False  # for flow models
    is_random: ClassVar[bool] = False  # every step adds noise

    @abc.abstractmethod
    def plan(self, schedule: Schedule, num_steps: int, *, first: int = 0, evenly: bool = False) -> Plan:
        """The steps of a run."""

    def identity(self, schedule: Schedule) -> dict[str, Any]:
        """The schedule's options that change the steps and that earlier records lack, as JSON values."""
        return {}

    def carry(self, latents: jax.Array) -> Any:
        """The first step's carry, a pytree of arrays."""
        return ()

    @abc.abstractmethod
    def step(
        self, kind: str, prediction: jax.Array, latents: jax.Array, row: Row, carry: Any, noise: jax.Array | None
    ) -> tuple[jax.Array, Any]:
        """One step of a prediction, guidance included, ``[B, h, w, c]``: (latents, carry) for the next. Pure."""

    def first_step(self, num_steps: int, strength: float) -> int:
        """The number of the first step of a run that begins with an image, by the rule of diffusers."""
        # These pipelines round the steps that are left out, and those below the steps that are taken: both downwards.
        first = int(num_steps - num_steps * strength) if self.is_continuous else num_steps - int(num_steps * strength)
        if first >= num_steps:
            raise InputError(
                f"a strength of {strength:g} leaves none of {num_steps} steps: raise strength or num_steps",
                code="no-steps-left",
            )
        return first


def check_num_steps(num_steps: Any, most: int, name: str = "the number of sampling steps") -> int:
    if isinstance(num_steps, bool) or not isinstance(num_steps, int | np.integer):
        raise InputError(f"{name} is {options.quote(num_steps)}, but it must be a whole number", code="wrong-type")
    if not 1 <= num_steps <= most:
        raise InputError(f"{name} is {num_steps}, but it must be from 1 to {most}", code="out-of-range")
    return int(num_steps)


def sample(
    sampler: Sampler,
    denoise: Denoiser,
    plan: Plan,
    noise: jax.Array,
    text_states: Any,
    *,
    guidance: tuple[Any, float | jax.Array] | None = None,
    clean: jax.Array | None = None,
    step_noise: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Generates latents. Pure: call it within ``jax.jit``, with ``sampler`` static.

    Args:
      denoise: ``(noisy latents [n, h, w, c], times float32 [n], conditions) -> prediction``.
      noise: float32 ``[B, h, w, c]``, standard normal.
      text_states: conditions, arrays ``[B, ...]``.
      guidance: conditions of the empty text, ``[1, ...]`` or ``[B, ...]``, and the scale. None for no guidance.
      step_noise: number of a step -> its noise, like ``noise``. Random samplers need it.

    Returns:
      Latents, float32 ``[B, h, w, c]``, scaled as in training.
    """
    noise = jnp.asarray(noise, jnp.float32)
    start = plan.noise_scale * noise if clean is None else plan.start[0] * clean + plan.start[1] * noise
    predict = _predictor(denoise, text_states, guidance)

    def step(state: tuple[jax.Array, Any], of_step: tuple[Any, ...]) -> tuple[tuple[jax.Array, Any], None]:
        (latents, carry), (number, time, scale, row) = state, of_step
        added = step_noise(number) if sampler.is_random and step_noise is not None else None
        prediction = predict(scale * latents, time)
        return sampler.step(plan.prediction, prediction, latents, row, carry, added), None

    steps = (plan.numbers, plan.times, plan.input_scale, plan.tables)
    (latents, _), _ = jax.lax.scan(step, (start, sampler.carry(start)), steps)
    return latents


def _predictor(
    denoise: Denoiser, text_states: Any, guidance: tuple[Any, float | jax.Array] | None
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """(latents, time) -> float32 prediction. With and without the text in one batch."""

    def predicted(latents: jax.Array, time: jax.Array, states: Any) -> jax.Array:
        return denoise(latents, jnp.broadcast_to(time, latents.shape[:1]), states).astype(jnp.float32)

    if guidance is None:
        return lambda latents, time: predicted(latents, time, text_states)
    empty_states, scale = guidance
    states = jax.tree.map(
        lambda empty, text: jnp.concatenate([jnp.broadcast_to(empty, text.shape), text]), empty_states, text_states
    )

    def predict(latents: jax.Array, time: jax.Array) -> jax.Array:
        empty, text = jnp.split(predicted(jnp.concatenate([latents, latents]), time, states), 2)
        return empty + scale * (text - empty)

    return predict
