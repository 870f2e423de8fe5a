"""One prediction by a pipeline's own `__call__`.

winobench traces the call with a scheduler that has one time for each row, and that stops the call at its first step.
The input of this step is the prediction, as diffusers defines it: with packing, scaling of times, guidance as a number,
halves of learned variances, and the sign.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from winobench.contrib.torch_pipelines.families import Family
from winobench.contrib.torch_pipelines.texts import own_options
from winobench.models import states
from winobench.torch_modules.network import TorchConfig, TorchNetwork


class Stopped(Exception):
    """Carries a prediction out of a pipeline's loop."""


def one_time(scheduler: Any, times: Any, offered: Any = None) -> Any:
    """A scheduler like this one, with one time for each row, float [n], and no step.

    The loop takes ``offered`` instead of the times, unless it is None.
    """

    def step(self: Any, prediction: Any, *others: Any, **keywords: Any) -> None:
        raise Stopped(prediction)

    def set_timesteps(self: Any, num_inference_steps: Any = None, device: Any = None, **keywords: Any) -> None:
        pass

    kind = type(scheduler)
    known = inspect.signature(kind.set_timesteps).parameters
    # Pipelines look up the parameter names before they pass custom levels.
    set_timesteps.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [value.replace(default=None) if name != "self" else value for name, value in known.items()]
    )
    end = times * 0
    values = {
        "step": step,
        "set_timesteps": set_timesteps,
        "set_begin_index": lambda self, begin_index=0: None,
        "scale_model_input": lambda self, sample, timestep=None: sample,
        "timesteps": [times if offered is None else offered],
        "sigmas": [times / scheduler.config.num_train_timesteps, end],
        "init_noise_sigma": 1.0,
        "order": 1,
        "step_index": 0,
        "begin_index": 0,
    }
    stand_in = object.__new__(type(kind.__name__, (kind,), values))
    vars(stand_in).update({name: value for name, value in vars(scheduler).items() if name not in values})
    return stand_in


@contextlib.contextmanager
def _without_texts(pipe: Any, device: Any, scheduler: Any, results: tuple[Any, ...], calls: int) -> Iterator[None]:
    """The pipeline on another device, with another scheduler and with given results of its calls of `encode_prompt`."""
    from winobench.torch_modules.bridge import replaced

    size = len(results) // calls
    answers = (results[start : start + size] for start in range(0, len(results), size))

    with (
        replaced(type(pipe), "_execution_device", device),
        replaced(pipe, "scheduler", scheduler),
        replaced(pipe, "encode_prompt", lambda *_, **__: next(answers)),
    ):
        yield


def predict(
    pipe: Any, family: Family, latents: Any, times: Any, results: tuple[Any, ...], call: Mapping[str, Any]
) -> Any:
    """The prediction for noisy latents [n, c, h, w], times [n] and results of `encode_prompt`, all tensors."""
    height, width = (side * family.pixels(pipe) for side in latents.shape[2:])
    taken = inspect.signature(type(pipe).__call__).parameters
    keywords = {
        "prompt": [""] * len(latents),
        "latents": latents if family.pack is None else family.pack(pipe, latents),
        "height": height,
        "width": width,
        "num_inference_steps": 1,
        "output_type": "latent",
        **({} if family.guidance is None else {family.guidance: 1.0}),
        **({"max_area": height * width} if "max_area" in taken else {}),
        **family.call,
        **{name: value for name, value in call.items() if name in taken},
    }
    changes = family.during(pipe, latents, results) if family.during else contextlib.nullcontext()
    results = family.restore(results) if family.restore else results
    scheduler = one_time(pipe.scheduler, times, family.times(times) if family.times else None)
    try:
        with changes, _without_texts(pipe, latents.device, scheduler, results, 1 + len(family.further)):
            pipe(**keywords)
    except Stopped as stopped:
        (prediction,) = stopped.args
    else:
        raise RuntimeError(f"{type(pipe).__name__} never stepped")
    if family.unpack is not None:
        prediction = family.unpack(pipe, prediction, height, width)
    return prediction


class TorchDenoiser(TorchNetwork):
    """A pipeline's denoiser, called as the pipeline calls it."""

    def __init__(self, pipe: Any, family: Family, config: TorchConfig, call: Mapping[str, Any], constants: Any):
        """Args: ``call``: more keywords of ``__call__``. ``constants``: see `TextEncoding`."""
        self.pipeline = PipelineCall(pipe, family, dict(call), constants)
        super().__init__(getattr(pipe, family.denoiser), config, key=self.pipeline)

    def __call__(self, noisy: jax.Array, times: jax.Array, conditions: Mapping[str, jax.Array]) -> jax.Array:
        """Noisy latents ``[n, h, w, c]``, times ``[n]`` and conditions: a prediction like the latents."""
        prediction = self.run(jnp.transpose(noisy, (0, 3, 1, 2)), times, dict(conditions))
        return jnp.transpose(prediction, (0, 2, 3, 1))

    def follow_pipeline(self, config: TorchConfig, constants: Any) -> None:
        """Takes over changes of the pipeline. The arrays stay."""
        self.pipeline = PipelineCall(self.pipeline.pipe, self.pipeline.family, self.pipeline.call, constants)
        self.follow(config, self.pipeline)

    def compute(self, module: Any, *tensors: Any) -> Any:
        """Noisy latents [n, c, h, w], times and conditions: a prediction like the latents."""
        return self.pipeline(*tensors)


class PipelineCall:
    """A pipeline with the keywords of its call. Equal to all that have the same trace."""

    def __init__(self, pipe: Any, family: Family, call: Mapping[str, Any], constants: Mapping[int, Any]):
        self.pipe, self.family, self.call, self.constants = pipe, family, call, constants
        self._options = self._read_options()
        parts: list[Any] = [self._options, sorted(call.items())]
        for number, array in sorted(constants.items()):
            parts += [number, None if array is None else (array.dtype.name, array.shape, array.tobytes())]
        self._key = hashlib.sha256(repr(parts).encode()).hexdigest()

    def _read_options(self) -> str:
        autoencoder = getattr(self.pipe, self.family.autoencoder)
        return states.options_digest(own_options(self.pipe), self.pipe.scheduler, autoencoder)

    def __call__(self, latents: Any, times: Any, conditions: Mapping[str, Any]) -> Any:
        states.check_same(self._options, self._read_options(), type(self.pipe).__name__)
        return predict(self.pipe, self.family, latents, times, self.results(conditions), self.call)

    def results(self, conditions: Mapping[str, Any]) -> tuple[Any, ...]:
        """The results of `encode_prompt` that belong to conditions."""
        total = len(conditions) + len(self.constants)
        like = next(iter(conditions.values()))

        def result(number: int) -> Any:
            if number not in self.constants:
                return conditions[str(number)]
            value = self.constants[number]
            return None if value is None else _like(like, value)

        return tuple(map(result, range(total)))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PipelineCall) and self._key == other._key


def _like(tensor: Any, array: Any) -> Any:
    from winobench.torch_modules import bridge

    return bridge.as_torch(array) if tensor.device.type == bridge.JAX else bridge.to_torch(array)
