"""Images by a pipeline's own loop and scheduler. Its denoiser and its decoder run on the devices."""

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
from winobench.contrib.torch_pipelines import compiled, prediction
from winobench.diffusion.generation import Run
from winobench.diffusion.pure_functions import Decoded

if TYPE_CHECKING:
    from winobench.contrib.torch_pipelines.torch_parts import TorchParts

# Names that denoisers have for their noisy latents.
_LATENTS = ("hidden_states", "sample", "x")


def check(pipeline: TorchParts) -> None:
    """Raises InputError where images cannot be generated."""
    if not pipeline.family.generates:
        raise InputError(
            f"{pipeline.diffusers_class} can be scored here, but generates no images: use diffusers itself",
            code="unsupported-option",
        )


def draw(
    pipeline: TorchParts, run: Run, texts: Sequence[str], noise: jax.Array, keys: jax.Array
) -> tuple[np.ndarray, Decoded | None]:
    """See `winobench.diffusion.generation.ImageGeneration`."""
    check(pipeline)
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
        with _on_devices(pipeline, run.mesh, len(rows), scheduler, encode, decoding=run.decoding):
            return _called(pipeline, np.asarray(noise)[rows], keywords)

    return _in_batches(batch, len(texts), run.batch_size if _takes_rows(pipeline) else 1)


def decode(pipeline: TorchParts, latents: np.ndarray, batch_size: int, mesh: Mesh) -> Decoded:
    """Images of latents ``[n, h, w, c]``: the pipeline's loop without a step."""
    height, width = (side * pipeline.family.pixels(pipeline.diffusers) for side in latents.shape[1:3])

    def batch(rows: np.ndarray) -> Decoded:
        keywords = {"prompt": [""] * len(rows), "num_inference_steps": 1, "height": height, "width": width}
        keywords |= _guidance(pipeline, 0.0, len(rows))
        scheduler = prediction.one_time(pipeline.diffusers.scheduler, np.zeros(len(rows), np.float32))
        scheduler.timesteps = []
        calls = pipeline.texts.repeated(len(rows))
        with _on_devices(pipeline, mesh, len(rows), scheduler, lambda *_, **__: next(calls)):
            try:
                return _called(pipeline, latents[rows], keywords)[1]
            except UnboundLocalError as error:
                raise InputError(
                    f"{pipeline.diffusers_class} decodes nothing but the result of its last step: generate images",
                    code="unsupported-option",
                ) from error

    return _in_batches(batch, len(latents), batch_size if _takes_rows(pipeline) else 1)


def _takes_rows(pipeline: TorchParts) -> bool:
    """True where an image does not depend on its batch, and the call takes the noise."""
    return pipeline.family.together and "latents" in inspect.signature(type(pipeline.diffusers).__call__).parameters


def _in_batches(batch: Callable[[np.ndarray], Any], total: int, batch_size: int) -> Any:
    """Results of all rows, ``batch_size`` at a time. The last row fills the last batch."""
    starts = range(0, total, batch_size)
    results = [batch(np.minimum(np.arange(start, start + batch_size), total - 1)) for start in starts]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:total], *results)


def _called(
    pipeline: TorchParts, latents: np.ndarray, keywords: Mapping[str, Any]
) -> tuple[np.ndarray, Decoded | None]:
    """The latents that the autoencoder took, and the images unless it stopped the call."""
    from winobench.torch_modules import bridge

    pipe, family = pipeline.diffusers, pipeline.family
    tensor = bridge.to_torch(np.ascontiguousarray(np.moveaxis(latents, -1, 1)))
    tensor = tensor if family.pack is None else family.pack(pipe, tensor)
    of_call = inspect.signature(type(pipe).__call__).parameters
    keywords = {**family.call, **pipeline.texts.call, **keywords, "latents": tensor}
    keywords |= {"return_dict": False, "output_type": "np"}
    keywords["max_area"] = keywords["height"] * keywords["width"]  # where the call would choose another size
    kept = {name: value for name, value in keywords.items() if name in of_call}
    own_noise = contextlib.nullcontext()
    if "latents" not in of_call:
        own_noise = bridge.replaced(pipe, "prepare_latents", lambda *_, **__: tensor)
        (kept["prompt"],) = kept["prompt"]
    before, result = bridge.torch.get_rng_state(), None
    try:
        with own_noise:
            result = pipe(**kept)[0]
    except prediction.Stopped:
        pass
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{pipeline.diffusers_class} refuses these settings: {reason}", code="unsupported-option"
        ) from error
    if not bridge.torch.equal(before, bridge.torch.get_rng_state()):
        raise InputError(
            f"{type(pipe.scheduler).__name__} samples random numbers for all images at once, so that an image would"
            " depend on the others: choose another scheduler in scheduler_config.json",
            code="unsupported-option",
        )
    vae = getattr(pipe, family.autoencoder)
    if result is None:
        return vae.latents, None
    images = np.nan_to_num(np.asarray(result, np.float32))
    return vae.latents, Decoded(np.round(images * 255).astype(np.uint8), vae.finite)


def _guidance(pipeline: TorchParts, guidance_scale: float, rows: int) -> dict[str, Any]:
    """The keywords of guidance. A network that takes guidance as a number gets the scale that way."""
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
    pipeline: TorchParts,
    mesh: Mesh,
    rows: int,
    scheduler: Any,
    encode: Callable[..., Any],
    *,
    decoding: bool = True,
) -> Iterator[None]:
    """The pipeline with its networks on the devices, another scheduler and another `encode_prompt`.

    Its autoencoder keeps its input ``latents`` [n, h, w, c], and which rows of the result are ``finite``.
    """
    from winobench.torch_modules import bridge

    def module(name: str, network: Any, params: Any, **options: Any) -> Any:
        return compiled.stand_in(network, lambda: pipeline._copied(name, params, mesh), mesh, rows, **options)

    pipe = pipeline.diffusers
    network = module("denoiser", pipeline.network, pipeline.denoiser_function()[1])
    vae = module("autoencoder", pipeline.vae, pipeline.image_function()[1], method="decode")
    forward, decode = network.forward, vae.decode

    def rounded(*arguments: Any, **keywords: Any) -> Any:
        """Some pipelines keep latents in float32."""
        arguments = (*(_rounded(latents, network.dtype) for latents in arguments[:1]), *arguments[1:])
        keywords |= {name: _rounded(keywords[name], network.dtype) for name in _LATENTS if name in keywords}
        return forward(*arguments, **keywords)

    def recorded(scaled: Any, *arguments: Any, **keywords: Any) -> Any:
        latents = scaled[:, :, 0] if scaled.ndim == 5 else scaled
        vae.latents = np.moveaxis(pipeline.vae.encoder.scale(vae, latents.float()).numpy(), 1, -1)
        if not decoding:
            raise prediction.Stopped
        result = decode(scaled, *arguments, **keywords)
        images = result[0] if isinstance(result, tuple) else result.sample
        vae.finite = np.isfinite(images.numpy()).reshape(rows, -1).all(axis=1)
        return result

    with (
        bridge.in_torch(),
        # Some pipelines read a few numbers of their networks.
        pipeline.network.with_arrays(bridge.to_torch),
        pipeline.vae.with_arrays(bridge.to_torch),
        bridge.replaced(network, "forward", rounded),
        bridge.replaced(vae, "decode", recorded),
        bridge.replaced(type(pipe), "device", bridge.torch.device("cpu")),
        bridge.replaced(type(pipe), "_execution_device", bridge.torch.device("cpu")),
        bridge.replaced(pipe, pipeline.family.denoiser, network),
        bridge.replaced(pipe, pipeline.family.autoencoder, vae),
        bridge.replaced(pipe, "scheduler", scheduler),
        bridge.replaced(pipe, "encode_prompt", encode),
    ):
        yield


def _rounded(latents: Any, dtype: Any) -> Any:
    return latents.to(dtype) if getattr(latents, "is_floating_point", bool)() else latents


def _with_generators(scheduler: Any, seeds: np.ndarray) -> Any:
    """A copy of a scheduler whose random steps take a generator for each row. Seeds are [n, 2], of 32 bits each."""
    from winobench.torch_modules import bridge

    generators = [bridge.torch.Generator().manual_seed(int(high) << 32 | int(low)) for high, low in seeds]
    scheduler = copy.deepcopy(scheduler)
    step = scheduler.step
    if "generator" in inspect.signature(step).parameters:

        @functools.wraps(step)
        def step_of_rows(*arguments: Any, **keywords: Any) -> Any:
            return step(*arguments, **{**keywords, "generator": generators})

        scheduler.step = step_of_rows
    return scheduler
