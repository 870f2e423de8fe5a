"""What a sampler is, and the loop that all of them run in, with guidance as one batch."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import options, random_numbers
from winobench.base.errors import InputError
from winobench.diffusion.schedules import Schedule

Denoiser = Callable[[Any, jax.Array, jax.Array, Any], jax.Array]
Row = Mapping[str, jax.Array]
"""Name -> float32 scalar: one step's entries of `Plan.tables`."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps of a run, S of them, computed on the host. A pytree, so that one compiled loop takes any of S steps.

    Attributes:
      prediction: what the network answers, one of `winobench.diffusion.schedules.PREDICTIONS`. Part of the structure.
      numbers: int32 ``[S]``, of the steps in a run from pure noise: one that begins later has not the first ones.
      times: float32 ``[S]``, what the network is told.
      input_scale: float32 ``[S]``, what latents are multiplied by for the network.
      tables: name -> float32 ``[S]``, of the sampler's own.
      noise_scale: float32, what standard normal noise is multiplied by where a run begins with nothing else.
      start: float32 ``[2]``, what the clean latents and the noise are multiplied by where it begins with an image.
    """

    prediction: str
    numbers: np.ndarray
    times: np.ndarray
    input_scale: np.ndarray
    tables: dict[str, np.ndarray]
    noise_scale: np.ndarray
    start: np.ndarray


jax.tree_util.register_dataclass(
    Plan,
    data_fields=("numbers", "times", "input_scale", "tables", "noise_scale", "start"),
    meta_fields=("prediction",),
)


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
    """A `Plan` of the steps from number ``first`` on, of tables ``[num_steps]`` of all steps. Rounded to float32.

    Args:
      start: (signal's rate, noise's rate) of all steps ``[num_steps]``.
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
    """A way from noise to latents. Subclasses are frozen dataclasses: static arguments of ``jax.jit``.

    Attributes:
      is_continuous: whether it is for flow models, and not for those of timesteps.
      is_random: whether every step adds noise.
    """

    is_continuous: ClassVar[bool] = False
    is_random: ClassVar[bool] = False

    @abc.abstractmethod
    def plan(self, schedule: Schedule, num_steps: int, *, first: int = 0, evenly: bool = False) -> Plan:
        """The steps of a run."""

    def identity(self, schedule: Schedule) -> dict[str, Any]:
        """What the schedule's file changes about the steps that earlier records do not tell, as JSON values."""
        return {}

    def carry(self, latents: jax.Array) -> Any:
        """What the first step is given of those before it: a pytree of arrays."""
        return ()

    @abc.abstractmethod
    def step(
        self, kind: str, prediction: jax.Array, latents: jax.Array, row: Row, carry: Any, noise: jax.Array | None
    ) -> tuple[jax.Array, Any]:
        """One step. Pure.

        Args:
          prediction: its answer, guidance included, float32 ``[B, h, w, c]``.

        Returns:
          (latents, carry) for the next step.
        """

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
    """Returns a number of steps. Raises InputError unless it is a whole number from 1 to ``most``."""
    if isinstance(num_steps, bool) or not isinstance(num_steps, int | np.integer):
        raise InputError(f"{name} is {options.shown(num_steps)}, but it must be a whole number", code="wrong-type")
    if not 1 <= num_steps <= most:
        raise InputError(f"{name} is {num_steps}, but it must be from 1 to {most}", code="out-of-range")
    return int(num_steps)


def sample(
    sampler: Sampler,
    denoiser: Denoiser,
    params: Any,
    plan: Plan,
    noise: jax.Array,
    text_states: Any,
    empty_states: Any | None,
    *,
    guidance_scale: float | jax.Array = 1.0,
    clean: jax.Array | None = None,
    step_noise: jax.Array | None = None,
    keys: jax.Array | None = None,
) -> jax.Array:
    """Generates latents. Pure: call it inside of a ``jax.jit``, with ``sampler`` and ``denoiser`` static.

    Args:
      denoiser: ``(params, noisy latents [n, h, w, c], times float32 [n], conditions) -> prediction``.
      noise: float32 ``[B, h, w, c]``, standard normal.
      text_states: conditions, arrays ``[B, ...]``.
      empty_states: those of the empty text, ``[1, ...]`` or ``[B, ...]``; None for sampling without guidance, which
        halves the work.
      step_noise: of a random sampler: float32 ``[S, B, h, w, c]``, the noise of each step of the plan, standard normal.
        Or else
      keys: ``[B]``, each image's. The noise of a step is generated from the image's key and the step's number.

    Returns:
      Latents, float32 ``[B, h, w, c]``, scaled as in training: divide by the VAE's scaling factor before decoding.
    """
    noise = jnp.asarray(noise, jnp.float32)
    start = plan.noise_scale * noise if clean is None else plan.start[0] * clean + plan.start[1] * noise
    predict = _guided(denoiser, params, text_states, empty_states, guidance_scale)

    def step(state: tuple[jax.Array, Any], of_step: tuple[Any, ...]) -> tuple[tuple[jax.Array, Any], None]:
        (latents, carry), (number, time, scale, row, added) = state, of_step
        if sampler.is_random and added is None:
            added = jax.vmap(lambda key: _of_step(key, number, latents.shape[1:]))(keys)
        prediction = predict(scale * latents, time)
        return sampler.step(plan.prediction, prediction, latents, row, carry, added), None

    steps = (plan.numbers, plan.times, plan.input_scale, plan.tables, step_noise)
    (latents, _), _ = jax.lax.scan(step, (start, sampler.carry(start)), steps)
    return latents


def _of_step(key: jax.Array, number: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return random_numbers.normal(jax.random.fold_in(key, number), shape)


def _guided(
    denoiser: Denoiser, params: Any, text_states: Any, empty_states: Any | None, guidance_scale: float | jax.Array
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """(latents, time) -> float32 prediction. With and without the text in one batch."""
    states = text_states
    if empty_states is not None:
        states = jax.tree.map(
            lambda empty, text: jnp.concatenate([jnp.broadcast_to(empty, text.shape), text]), empty_states, text_states
        )

    def predict(latents: jax.Array, time: jax.Array) -> jax.Array:
        inputs = latents if empty_states is None else jnp.concatenate([latents, latents])
        times = jnp.broadcast_to(time, inputs.shape[:1])
        prediction = denoiser(params, inputs, times, states).astype(jnp.float32)
        if empty_states is None:
            return prediction
        empty, text = jnp.split(prediction, 2)
        return empty + guidance_scale * (text - empty)

    return predict
