"""Images by a pipeline's own loop, with its own scheduler: its denoiser and its decoder run on the devices."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

from winobench.base.errors import InputError
from winobench.diffusion.drawing import Run
from winobench.diffusion.pure_functions import Decoded
from winobench.torch_pipelines import compiled, prediction

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
    seeds = np.asarray(jax.random.key_data(keys), np.uint64)
    size = {"height": run.image_size, "width": run.image_size}

    def batch(rows: np.ndarray) -> tuple[np.ndarray, Decoded | None]:
        scheduler = _with_generators(pipeline.diffusers.scheduler, seeds[rows])
        encode = functools.partial(pipeline.texts.as_called, run.mesh, lambda: pipeline._copies.pop("denoiser", None))
        keywords = {"prompt": [texts[row] for row in rows], "num_inference_steps": run.num_steps, **size}
        keywords |= _guidance(pipeline, run.guidance_scale, len(rows))
        with _on_devices(pipeline, run.mesh, len(rows), scheduler, encode):
            return _called(pipeline, np.asarray(noise)[rows], keywords, decoding=run.decoding)

    return _in_batches(batch, len(texts), run.batch_size)


def decode(pipeline: TorchPipeline, latents: np.ndarray, batch_size: int, mesh: Mesh) -> Decoded:
    """Images of latents ``[n, h, w, c]``: the pipeline's loop without a step."""
    height, width = (side * pipeline.diffusers.vae_scale_factor for side in latents.shape[1:3])

    def batch(rows: np.ndarray) -> Decoded:
        keywords = {"prompt": [""] * len(rows), "num_inference_steps": 1, "height": height, "width": width}
        keywords |= _guidance(pipeline, 1.0, len(rows))
        scheduler = prediction.one_time(pipeline.diffusers.scheduler, np.zeros(len(rows), np.float32))
        scheduler.timesteps = []
        encode = functools.partial(pipeline.texts.repeated, len(rows))
        with _on_devices(pipeline, mesh, len(rows), scheduler, encode):
            return _called(pipeline, latents[rows], keywords, decoding=True)[1]

    return _in_batches(batch, len(latents), batch_size)


def _in_batches(batch: Callable[[np.ndarray], Any], total: int, batch_size: int) -> Any:
    """Of rows ``[batch_size]`` at a time, the last one again where there are no more."""
    starts = range(0, total, batch_size)
    found = [batch(np.minimum(np.arange(start, start + batch_size), total - 1)) for start in starts]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:total], *found)


def _called(
    pipeline: TorchPipeline, latents: np.ndarray, keywords: Mapping[str, Any], *, decoding: bool
) -> tuple[np.ndarray, Decoded | None]:
    from winobench.torch_pipelines import bridge

    pipe, family = pipeline.diffusers, pipeline.family
    tensor = bridge.to_torch(np.ascontiguousarray(np.moveaxis(latents, -1, 1)))
    tensor = tensor if family.pack is None else family.pack(pipe, tensor)
    keywords = {**family.call, **pipeline.texts.call, **keywords, "latents": tensor, "return_dict": False}
    before = bridge.torch.get_rng_state()
    try:
        (result, *_) = pipe(**keywords, output_type="np" if decoding else "latent")
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
    if decoding:
        images = np.nan_to_num(np.asarray(result, np.float32))
        return pipe.vae.given, Decoded(np.round(images * 255).astype(np.uint8), pipe.vae.finite)
    if family.unpack is not None:
        result = family.unpack(pipe, result, keywords["height"], keywords["width"])
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
def _on_devices(
    pipeline: TorchPipeline, mesh: Mesh, rows: int, scheduler: Any, encode: Callable[..., Any]
) -> Iterator[None]:
    """The pipeline with its networks on the devices, another scheduler and another `encode_prompt`.

    Its autoencoder remembers what it was ``given`` to decode, and which rows of the result are ``finite``.
    """
    from winobench.torch_pipelines import bridge

    def module(name: str, network: Any, params: Any, **options: Any) -> Any:
        return compiled.stand_in(network, lambda: pipeline._copied(name, params, mesh), mesh, rows, **options)

    pipe = pipeline.diffusers
    network = module("denoiser", pipeline.network, pipeline.denoiser_function()[1])
    vae = module("autoencoder", pipeline.vae, pipeline.image_function()[1], method="decode")
    forward, decode = network.forward, vae.decode

    def rounded(*arguments: Any, **keywords: Any) -> Any:
        """Some pipelines keep latents in float32."""
        arguments = (*(_rounded(one, network.dtype) for one in arguments[:1]), *arguments[1:])
        keywords |= {name: _rounded(keywords[name], network.dtype) for name in _LATENTS if name in keywords}
        return forward(*arguments, **keywords)

    def recorded(latents: Any, *arguments: Any, **keywords: Any) -> Any:
        result = decode(latents, *arguments, **keywords)
        images = result[0] if isinstance(result, tuple) else result.sample
        vae.given = latents.float().numpy()
        vae.finite = np.isfinite(images.numpy()).reshape(rows, -1).all(axis=1)
        return result

    with (
        bridge.in_torch(),
        bridge.replaced(network, "forward", rounded),
        bridge.replaced(vae, "decode", recorded),
        bridge.replaced(type(pipe), "_execution_device", bridge.torch.device("cpu")),
        bridge.replaced(pipe, pipeline.family.denoiser, network),
        bridge.replaced(pipe, "vae", vae),
        bridge.replaced(pipe, "scheduler", scheduler),
        bridge.replaced(pipe, "encode_prompt", encode),
    ):
        yield


def _rounded(latents: Any, dtype: Any) -> Any:
    return latents.to(dtype) if getattr(latents, "is_floating_point", bool)() else latents


def _with_generators(scheduler: Any, seeds: np.ndarray) -> Any:
    """A copy of a scheduler, whose random steps have a generator for each row: of two numbers of 32 bits each."""
    from winobench.torch_pipelines import bridge

    generators = [bridge.torch.Generator().manual_seed(int(high) << 32 | int(low)) for high, low in seeds]
    scheduler = copy.deepcopy(scheduler)
    step = scheduler.step
    if "generator" in inspect.signature(step).parameters:

        @functools.wraps(step)
        def step_of_rows(*arguments: Any, **keywords: Any) -> Any:
            return step(*arguments, **{**keywords, "generator": generators})

        scheduler.step = step_of_rows
    return scheduler
