"""The checked pipelines of diffusers, and the settings that their own code leaves open."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from winobench.base import extensions
from winobench.base.errors import InputError
from winobench.contrib.torch_pipelines import refusals


@dataclasses.dataclass(frozen=True)
class Family:
    """The settings by which winobench runs a pipeline class of diffusers.

    Attributes:
      denoiser: the part that predicts.
      autoencoder: the part between images and latents.
      call: keywords of ``__call__`` while one prediction is made.
      encode: keywords of ``encode_prompt``.
      further: keywords of each further call of ``encode_prompt``, whose results follow the first call's.
      prompts: texts -> the keywords of ``encode_prompt`` that hold them.
      constants: places among the results of ``encode_prompt`` that are the same for all texts.
      fill: (results of ``encode_prompt``, tokens at most) -> the same with shapes that do not depend on the texts.
      restore: results of ``fill`` -> results of ``encode_prompt`` as ``__call__`` takes them.
      tokens: the keyword with the most tokens of a text. None where the family has no such keyword.
      limit: (pipeline, tokens at most) -> a context in which longer texts are cut off, where the keyword does not.
      guidance: the keyword of classifier-free guidance. Its value 1 means without guidance. None where the call has no
        such keyword.
      embedded: the keyword of the guidance that the network takes as a number.
      pack: (pipeline, latents [n, c, h, w]) -> latents as ``__call__`` takes them. None where it takes them so.
      unpack: (pipeline, prediction, height, width in pixels) -> [n, c, h, w]. None where it has that shape.
      side: latents along one side of a position of the denoiser.
      encodes_by_forward: whether ``encode_prompt`` only calls the text encoders, and they can be traced. Others stay on
        the host, such as encoders whose parts or ``generate`` are called.
      generates: whether winobench generates images: the denoiser runs without ``during``, and the loop is complete.
      pixels: pipeline -> pixels along one side of a latent.
      together: several texts are encoded at once. False where the conditions of a text depend on the others.
      size: height and width of the images, in pixels, where no config has them.
      without: parts that are not loaded, since winobench does not use them.
      scale: (autoencoder, input of its decoder) -> latents as in training. None for the rule of its class.
      times: times [n] -> the time that the loop takes. None for the times themselves.
      schedule: (pipeline, its scheduler's schedule) -> the pipeline's schedule. InputError for unsupported variants.
      during: (pipeline, latents [n, c, h, w], results of ``fill``) -> a context in which the call can be traced.
      rounding: the largest rounding error of a float32 prediction, as a share of its root mean square.
    """

    denoiser: str = "transformer"
    autoencoder: str = "vae"
    call: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    encode: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    further: tuple[Mapping[str, Any], ...] = ()
    prompts: Callable[[list[str]], Mapping[str, Any]] = lambda texts: {"prompt": texts}
    constants: tuple[int, ...] = ()
    fill: Callable[[tuple[Any, ...], int], tuple[Any, ...]] | None = None
    restore: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    tokens: str | None = "max_sequence_length"
    limit: Callable[[Any, int], contextlib.AbstractContextManager[None]] | None = None
    guidance: str | None = "guidance_scale"
    embedded: str | None = None
    pack: Callable[[Any, Any], Any] | None = None
    unpack: Callable[[Any, Any, int, int], Any] | None = None
    side: int = 1
    encodes_by_forward: bool = True
    generates: bool = True
    pixels: Callable[[Any], int] = lambda pipe: pipe.vae_scale_factor
    together: bool = True
    size: int | None = None
    without: tuple[str, ...] = ()
    scale: Callable[[Any, Any], Any] | None = None
    times: Callable[[Any], Any] | None = None
    schedule: Callable[[Any, Any], Any] | None = None
    during: Callable[[Any, Any, tuple[Any, ...]], contextlib.AbstractContextManager[Any]] | None = None
    rounding: float = 1e-4


def pack_squares(pipe: Any, latents: Any) -> Any:
    """Latents as rows of 2 x 2 squares, as in FLUX.1."""
    return pipe._pack_latents(latents, *latents.shape)


def unpack_squares(pipe: Any, prediction: Any, height: int, width: int) -> Any:
    unpacked = pipe._unpack_latents(prediction, height, width, pipe.vae_scale_factor)
    return unpacked[:, :, 0] if unpacked.ndim == 5 else unpacked


def padded_with_mask(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """(states [n, length, width], mask or None) -> padded states and their mask, of ``tokens`` tokens."""
    import torch

    states, mask = results
    mask = torch.ones(states.shape[:2], dtype=torch.long) if mask is None else mask
    missing = tokens - states.shape[1]
    return torch.nn.functional.pad(states, (0, 0, 0, missing)), torch.nn.functional.pad(mask, (0, missing))


def padded(states: Any, tokens: int) -> Any:
    """States [n, length, ...] or a mask [n, length], with zeros up to ``tokens``."""
    import torch

    missing = tokens - states.shape[1]
    if missing < 0:
        raise InputError(f"a text has {states.shape[1]} tokens, but at most {tokens} can be used", code="too-long")
    return torch.nn.functional.pad(states, (0, 0) * (states.ndim - 2) + (0, missing))


def limit_of(name: str) -> Callable[[Any, int], contextlib.AbstractContextManager[None]]:
    """A context that gives an attribute of the pipeline the most tokens of a text."""

    def limit(pipe: Any, tokens: int) -> contextlib.AbstractContextManager[None]:
        from winobench.torch_modules.bridge import replaced

        return replaced(pipe, name, tokens)

    return limit


def fixed_shift(schedule: Any, shift: float) -> Any:
    """The schedule with one shift for all image sizes, if its shift depends on the size."""
    return dataclasses.replace(schedule, base_shift=shift, max_shift=shift)


def without_shift(vae: Any, latents: Any) -> Any:
    """Scales latents for pipelines that leave out ``shift_factor``."""
    return latents * vae.config.scaling_factor


def normalized_squares(vae: Any, latents: Any, epsilon: float | None = None) -> Any:
    n, c, h, w = latents.shape
    mean, variance = (values.view(1, c, 1, 2, 1, 2) for values in (vae.bn.running_mean, vae.bn.running_var))
    deviation = (variance + (vae.config.batch_norm_eps if epsilon is None else epsilon)).sqrt()
    return ((latents.view(n, c, h // 2, 2, w // 2, 2) - mean) / deviation).view(n, c, h, w)


def from_squares(pipe: Any, prediction: Any, height: int, width: int) -> Any:
    """Rows of squares [n, s, 4 c], or [n, 4 c, h / 2, w / 2], as [n, c, h, w]."""
    if prediction.ndim == 3:
        side = 2 * pipe.vae_scale_factor
        prediction = prediction.transpose(1, 2).unflatten(2, (height // side, width // side))
    return pipe._unpatchify_latents(prediction)


SQUARES_AS_CHANNELS: dict[str, Any] = {
    "pack": lambda pipe, latents: pipe._patchify_latents(latents),
    "unpack": from_squares,
    "side": 2,
}
# No guidance by perturbed attention.
_PAG = {"pag_scale": 0.0}


def with_pag(family: Family) -> Family:
    """The family of a class with perturbed attention."""
    return dataclasses.replace(family, call={**family.call, **_PAG})


# The families that JAX traces as they are -----------------------------------------------------------------------


def _krea2_schedule(pipe: Any, schedule: Any) -> Any:
    """The distilled model has one shift for all sizes."""
    return fixed_shift(schedule, 1.15) if pipe.config.is_distilled else schedule


class _Always:
    """Greater than any number."""

    def __gt__(self, other: Any) -> bool:
        return True


def _lumina_fill(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    states, mask, *others = results
    return padded(states, tokens), padded(mask, tokens), *others


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Times [n], for a loop that reads its time as a single number."""

    times: Any

    def float(self) -> _Rows:
        return self

    def view(self, *shape: int) -> Any:
        return self.times

    def __truediv__(self, divisor: Any) -> _Rows:
        return _Rows(self.times / divisor)


_SQUARES: dict[str, Any] = {"pack": pack_squares, "unpack": unpack_squares, "side": 2}
# The native family's default guidance.
_FLUX = Family(
    **_SQUARES, constants=(2,), call={"guidance_scale": 0.0}, guidance="true_cfg_scale", embedded="guidance_scale"
)
_KOLORS = Family(encodes_by_forward=False, denoiser="unet", tokens=None)
# Cleaning of texts would depend on the installed packages.
_PIXART = Family(
    call={"use_resolution_binning": False, "clean_caption": False},
    encode={"clean_caption": False},
    side=2,
    # Web addresses and the like stay in a text.
)
_SANA = Family(call={"use_resolution_binning": False})

FAMILIES: dict[str, Family] = {
    "BriaPipeline": Family(**_SQUARES, constants=(2,), pixels=lambda pipe: pipe.vae_scale_factor // 2, size=1024),
    "ChromaPipeline": Family(**_SQUARES, constants=(1,)),
    "CogView3PlusPipeline": Family(side=2),
    "Flux2KleinKVPipeline": Family(**SQUARES_AS_CHANNELS, constants=(1,), guidance=None),
    "Flux2KleinPipeline": Family(**SQUARES_AS_CHANNELS, constants=(1,)),
    "Flux2Pipeline": Family(
        **SQUARES_AS_CHANNELS, constants=(1,), call={"guidance_scale": 4.0}, embedded="guidance_scale"
    ),
    "FluxKontextPipeline": _FLUX,
    "FluxPipeline": _FLUX,
    "KolorsPAGPipeline": with_pag(_KOLORS),
    "KolorsPipeline": _KOLORS,
    "Krea2Pipeline": Family(
        call={"guidance_scale": 0.0},
        pack=pack_squares,
        unpack=lambda pipe, prediction, height, width: pipe._unpack_latents(prediction, height, width)[:, :, 0],
        side=2,
        size=1024,
        schedule=_krea2_schedule,
    ),
    "LatentConsistencyModelPipeline": Family(
        denoiser="unet", call={"guidance_scale": 8.5}, tokens=None, embedded="guidance_scale"
    ),
    "LongCatImagePipeline": Family(
        **_SQUARES,
        call={"enable_prompt_rewrite": False},
        constants=(1,),
        tokens=None,
        without=("text_processor",),
    ),
    "LuminaPipeline": Family(
        call={"clean_caption": False, "scaling_watershed": _Always()},
        encode={"clean_caption": False, "max_sequence_length": 256},
        fill=_lumina_fill,
        limit=limit_of("max_sequence_length"),
        side=2,
        together=False,
        scale=without_shift,
    ),
    "OvisImagePipeline": Family(**_SQUARES, constants=(2,)),
    "PixArtAlphaPipeline": _PIXART,
    "PixArtSigmaPAGPipeline": with_pag(_PIXART),
    "PixArtSigmaPipeline": _PIXART,
    "PRXPipeline": Family(call={"use_resolution_binning": False}, tokens="tokenizer_max_length", side=2, times=_Rows),
    "QwenImagePipeline": Family(**_SQUARES, fill=padded_with_mask, guidance="true_cfg_scale"),
    "SanaPAGPipeline": with_pag(_SANA),
    "SanaPipeline": _SANA,
    "StableDiffusion3PAGPipeline": Family(call=_PAG, side=2),
    "StableDiffusion3Pipeline": Family(side=2),
    "StableDiffusionPAGPipeline": Family(denoiser="unet", call=_PAG, tokens=None),
    "StableDiffusionPipeline": Family(denoiser="unet", tokens=None),
    "StableDiffusionXLPAGPipeline": Family(denoiser="unet", call=_PAG, tokens=None),
    "StableDiffusionXLPipeline": Family(denoiser="unet", tokens=None),
}
"""``_class_name`` of ``model_index.json`` -> the family. Tests found all these classes equal to diffusers.

Classes that JAX can trace only with changes come from other packages, by entry points.
"""


def names() -> list[str]:
    """The classes that can be scored, also by packages that plug in."""
    return sorted({*FAMILIES, *extensions.added(extensions.TORCH_FAMILIES)}, key=str.lower)


def knows(name: str) -> bool:
    """Whether a pipeline class of diffusers can be scored, or there is a reason to refuse it."""
    return name in names() or refusals.reason(name) is not None


def family_of(name: str) -> Family:
    """The family of a pipeline class of diffusers."""
    if name in FAMILIES:
        return FAMILIES[name]
    if name in extensions.added(extensions.TORCH_FAMILIES):
        return extensions.find(extensions.TORCH_FAMILIES, name)
    reason = refusals.reason(name) or "it is not among the classes that were found equal to diffusers"
    raise InputError(
        f"{name} of diffusers cannot be used: {reason}. docs/reference/diffusers_classes.md lists the classes that can",
        code="wrong-kind-of-model",
    )
