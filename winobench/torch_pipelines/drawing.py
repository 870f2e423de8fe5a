"""Images by a pipeline's own loop, with its own scheduler: its denoiser and its decoder run on the devices."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from winobench.base.errors import InputError
from winobench.diffusion.drawing import Run
from winobench.diffusion.pure_functions import Decoded
from winobench.torch_pipelines import compiled

if TYPE_CHECKING:
    from winobench.torch_pipelines.pipeline import TorchPipeline

# What denoisers call their noisy latents.
_LATENTS = ("hidden_states", "sample", "x")


def draw(
    pipeline: TorchPipeline, run: Run, texts: Sequence[str], noise: jax.Array, keys: jax.Array
) -> tuple[np.ndarray, Decoded | None]:
    """See `winobench.diffusion.drawing.Drawing`. With images, the latents are those that the decoder was given."""
    if run.image is not None:
        raise InputError(
            f"{pipeline.diffusers_class} generates from noise alone here: leave out image", code="unsupported-option"
        )
    total, noise, seeds = len(texts), np.asarray(noise), np.asarray(jax.random.key_data(keys), np.uint64)
    batches = []
    for start in range(0, total, run.batch_size):
        # The last text again where a batch is not full.
        rows = np.minimum(np.arange(start, start + run.batch_size), total - 1)
        batches.append(_batch(pipeline, run, [texts[row] for row in rows], noise[rows], seeds[rows]))
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:total], *batches)


def _batch(
    pipeline: TorchPipeline, run: Run, texts: list[str], noise: np.ndarray, seeds: np.ndarray
) -> tuple[np.ndarray, Decoded | None]:
    from winobench.torch_pipelines import bridge

    pipe, family = pipeline.diffusers, pipeline.family
    generators = [bridge.torch.Generator().manual_seed(int(high << np.uint64(32) | low)) for high, low in seeds]
    latents = bridge.to_torch(np.ascontiguousarray(np.moveaxis(noise, -1, 1)))
    keywords = {
        "prompt": texts,
        "num_inference_steps": run.num_steps,
        "height": run.image_size,
        "width": run.image_size,
        "output_type": "np" if run.decoding else "latent",
        "return_dict": False,
        **family.call,
        **pipeline.texts.call,
        **_guidance(pipeline, run.guidance_scale, len(texts)),
    }
    with bridge.in_torch(), _on_devices(pipeline, run, generators) as given:
        latents = latents if family.pack is None else family.pack(pipe, latents)
        before = bridge.torch.get_rng_state()
        try:
            (result, *_) = pipe(latents=latents, **keywords)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"{pipeline.diffusers_class} refuses these settings: {reason}", code="unsupported-option"
            ) from error
        if not bridge.torch.equal(before, bridge.torch.get_rng_state()):
            raise InputError(
                f"{type(pipe.scheduler).__name__} draws random numbers for all images at once, so that an image would"
                " depend on the others: choose another scheduler in scheduler_config.json",
                code="unsupported-option",
            )
        if run.decoding:
            (latents, finite), images = given, np.asarray(result, np.float32)
            return latents, Decoded(np.round(np.nan_to_num(images) * 255).astype(np.uint8), finite)
        if family.unpack is not None:
            result = family.unpack(pipe, result, run.image_size, run.image_size)
        return np.moveaxis(result.float().numpy(), 1, -1), None


def _guidance(pipeline: TorchPipeline, guidance_scale: float, rows: int) -> dict[str, Any]:
    """The keywords of guidance: the one that the network is given as a number, where there is one."""
    family = pipeline.family
    none = family.call.get(family.guidance, 1.0)
    if family.embedded is not None:
        return {family.guidance: none, family.embedded: guidance_scale}
    keywords: dict[str, Any] = {family.guidance: max(guidance_scale, none)}
    if family.guidance == "true_cfg_scale" and guidance_scale > none:
        keywords["negative_prompt"] = [""] * rows
    return keywords


@contextlib.contextmanager
def _on_devices(pipeline: TorchPipeline, run: Run, generators: Sequence[Any]) -> Iterator[list[np.ndarray]]:
    """The pipeline with its networks on the devices.

    The list has what the decoder was given, and whether each row of what it gave is finite, once it was called.
    """
    from winobench.torch_pipelines import bridge

    pipe, rows, given = pipeline.diffusers, len(generators), []
    autoencoder = pipeline.image_function()[1]
    denoiser = pipeline.denoiser_function()[1]
    network = compiled.stand_in(
        pipeline.network, lambda: pipeline._copied("denoiser", denoiser, run.mesh), run.mesh, rows
    )
    vae = compiled.stand_in(
        pipeline.vae, lambda: pipeline._copied("autoencoder", autoencoder, run.mesh), run.mesh, rows, method="decode"
    )
    forward, decode = network.forward, vae.decode

    def rounded(*arguments: Any, **keywords: Any) -> Any:
        """Some pipelines keep latents in float32."""
        dtype = network.dtype
        arguments = (*(_rounded(one, dtype) for one in arguments[:1]), *arguments[1:])
        keywords |= {name: _rounded(keywords[name], dtype) for name in _LATENTS if name in keywords}
        return forward(*arguments, **keywords)

    def recorded(latents: Any, *arguments: Any, **keywords: Any) -> Any:
        result = decode(latents, *arguments, **keywords)
        images = result[0] if isinstance(result, tuple) else result.sample
        given[:] = latents.float().numpy(), np.isfinite(images.numpy()).reshape(rows, -1).all(axis=1)
        return result

    def make_room() -> None:
        pipeline._copies.pop("denoiser", None)

    encode = functools.partial(pipeline.texts.as_called, run.mesh, make_room)
    with (
        bridge.replaced(network, "forward", rounded),
        bridge.replaced(vae, "decode", recorded),
        bridge.replaced(type(pipe), "_execution_device", bridge.torch.device("cpu")),
        bridge.replaced(pipe, pipeline.family.denoiser, network),
        bridge.replaced(pipe, "vae", vae),
        bridge.replaced(pipe, "scheduler", _with_generators(pipe.scheduler, generators)),
        bridge.replaced(pipe, "encode_prompt", encode),
    ):
        yield given


def _rounded(latents: Any, dtype: Any) -> Any:
    return latents.to(dtype) if getattr(latents, "is_floating_point", bool)() else latents


def _with_generators(scheduler: Any, generators: Sequence[Any]) -> Any:
    """A copy of a scheduler, whose random steps have a generator for each row."""
    scheduler = copy.deepcopy(scheduler)
    step = scheduler.step
    if "generator" in inspect.signature(step).parameters:

        @functools.wraps(step)
        def step_of_rows(*arguments: Any, **keywords: Any) -> Any:
            return step(*arguments, **{**keywords, "generator": list(generators)})

        scheduler.step = step_of_rows
    return scheduler
