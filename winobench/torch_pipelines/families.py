"""The checked pipelines of diffusers, and the settings that their own code leaves open."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from winobench.base import options
from winobench.base.errors import InputError
from winobench.torch_pipelines import adaptations, changes, refusals


@dataclasses.dataclass(frozen=True)
class Family:
    """How winobench runs a pipeline class of diffusers.

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
      draws: whether winobench generates images: the denoiser runs without ``during``, and the loop is complete.
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
    draws: bool = True
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


_SQUARES: dict[str, Any] = {"pack": pack_squares, "unpack": unpack_squares, "side": 2}
# The native family's default guidance.
_FLUX = Family(
    **_SQUARES, constants=(2,), call={"guidance_scale": 0.0}, guidance="true_cfg_scale", embedded="guidance_scale"
)
_DREAM_LITE = Family(
    denoiser="unet",
    encode={"mode": "generate", "dtype": None},
    prompts=changes.dream_lite_prompts,
    fill=padded_with_mask,
    during=changes.dream_lite,
)
_HUNYUAN_DIT = Family(
    call={"use_resolution_binning": False},
    further=({"text_encoder_index": 1},),
    tokens=None,
    side=2,
    during=adaptations.times_in_lists,
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
_Z_IMAGE = Family(
    draws=False,
    call={"guidance_scale": 0.0},
    fill=changes.z_image_fill,
    restore=lambda results: (list(results[0]), []),
    side=2,
    size=1024,
    during=changes.z_image,
)
# No guidance by perturbed attention.
_PAG = {"pag_scale": 0.0}


def _with_pag(family: Family) -> Family:
    return dataclasses.replace(family, call={**family.call, **_PAG})


FAMILIES: dict[str, Family] = {
    "AuraFlowPipeline": Family(constants=(1,), side=2, during=adaptations.times_in_lists),
    "BriaFibo2Pipeline": Family(
        draws=False,
        encode={"max_sequence_length": 256},
        prompts=changes.fibo2_prompts,
        fill=changes.fibo2_fill,
        limit=changes.limit_of("tokenizer_max_length"),
        side=2,
        during=changes.fibo2,
    ),
    "BriaFiboPipeline": Family(
        encode={"max_sequence_length": 256},
        fill=changes.fibo_fill,
        restore=changes.fibo_restore,
        pack=changes.as_rows,
        unpack=changes.from_rows,
        together=False,
        during=changes.fibo,
    ),
    "BriaPipeline": Family(**_SQUARES, constants=(2,), pixels=lambda pipe: pipe.vae_scale_factor // 2, size=1024),
    "ChromaPipeline": Family(**_SQUARES, constants=(1,)),
    "CogView3PlusPipeline": Family(side=2),
    "CogView4Pipeline": Family(
        fill=adaptations.cogview4_fill,
        side=2,
        together=False,
        schedule=adaptations.cogview4_schedule,
        during=adaptations.cogview4_mask,
    ),
    "DreamLiteMobilePipeline": _DREAM_LITE,
    "DreamLitePipeline": _DREAM_LITE,
    "ErnieImagePipeline": Family(
        **changes.SQUARES_AS_CHANNELS,
        call={"use_pe": False},
        encode={"max_sequence_length": 512},
        fill=changes.ernie_fill,
        limit=changes.ernie_limit,
        pixels=lambda pipe: pipe.vae_scale_factor // 2,
        size=1024,
        without=("pe", "pe_tokenizer"),
        scale=changes.ernie_scale,
        times=lambda times: types.SimpleNamespace(item=lambda: times),
        during=changes.ernie,
    ),
    "Flux2KleinKVPipeline": Family(**changes.SQUARES_AS_CHANNELS, constants=(1,), guidance=None),
    "Flux2KleinPipeline": Family(**changes.SQUARES_AS_CHANNELS, constants=(1,)),
    "Flux2Pipeline": Family(
        **changes.SQUARES_AS_CHANNELS, constants=(1,), call={"guidance_scale": 4.0}, embedded="guidance_scale"
    ),
    "FluxKontextPipeline": dataclasses.replace(_FLUX, during=changes.flux_kontext),
    "FluxPipeline": _FLUX,
    "HiDreamImagePipeline": Family(
        draws=False,
        side=2,
        fill=changes.hidream_layers,
        restore=changes.hidream_layers,
        schedule=changes.hidream_schedule,
        during=changes.hidream,
    ),
    "HunyuanDiTPAGPipeline": _with_pag(_HUNYUAN_DIT),
    "HunyuanDiTPipeline": _HUNYUAN_DIT,
    "HunyuanImagePipeline": Family(
        draws=False,
        call={"distilled_guidance_scale": 3.25},
        tokens=None,
        guidance="distilled_guidance_scale",
        embedded="distilled_guidance_scale",
        without=("guider", "ocr_guider"),
        schedule=changes.hunyuan_image_schedule,
        during=changes.hunyuan_image,
    ),
    "Ideogram4Pipeline": Family(
        encodes_by_forward=False,
        draws=False,
        call={"guidance_scale": 1.0, "guidance_schedule": None, "max_sequence_length": 256},
        encode={"grid_h": 1, "grid_w": 1, "max_sequence_length": 256},
        fill=changes.ideogram_fill,
        limit=changes.ideogram_limit,
        restore=changes.ideogram_restore,
        pack=changes.ideogram_pack,
        unpack=changes.ideogram_unpack,
        side=2,
        size=2048,
        without=("unconditional_transformer", "prompt_enhancer_head"),
        scale=changes.ideogram_scale,
        rounding=1e-3,  # the network multiplies the last bit of a time by 10,000
        during=changes.ideogram,
    ),
    "Kandinsky3Pipeline": Family(
        denoiser="unet",
        autoencoder="movq",
        tokens=None,
        side=8,
        pixels=lambda pipe: 8,
        together=False,
        size=1024,
        during=changes.kandinsky3,
    ),
    "Kandinsky5T2IPipeline": Family(
        fill=changes.kandinsky5_fill,
        restore=changes.kandinsky5_restore,
        pack=lambda pipe, latents: latents.permute(0, 2, 3, 1)[:, None],
        unpack=lambda pipe, prediction, height, width: prediction[:, 0].permute(0, 3, 1, 2),
        side=2,
        pixels=lambda pipe: pipe.vae_scale_factor_spatial,
        together=False,
        size=1024,
        scale=changes.without_shift,
        times=changes.kandinsky5_times,
        rounding=5e-3,  # to 8 bits, of rotated queries and keys
        during=changes.kandinsky5,
    ),
    "KolorsPAGPipeline": _with_pag(_KOLORS),
    "KolorsPipeline": _KOLORS,
    "Krea2Pipeline": Family(
        call={"guidance_scale": 0.0},
        pack=pack_squares,
        unpack=lambda pipe, prediction, height, width: pipe._unpack_latents(prediction, height, width)[:, :, 0],
        side=2,
        size=1024,
        schedule=changes.krea2_schedule,
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
    "Lumina2Pipeline": Family(draws=False, side=2, schedule=changes.lumina2_schedule, during=changes.lumina2),
    "LuminaPipeline": Family(
        call={"clean_caption": False, "scaling_watershed": changes.Always()},
        encode={"clean_caption": False, "max_sequence_length": 256},
        fill=changes.lumina_fill,
        limit=changes.limit_of("max_sequence_length"),
        side=2,
        together=False,
        scale=changes.without_shift,
    ),
    "NucleusMoEImagePipeline": Family(
        draws=False,
        encode={"max_sequence_length": 1024},
        fill=padded_with_mask,
        pack=lambda pipe, latents: pipe._pack_latents(latents, *latents.shape, pipe.transformer.config.patch_size),
        unpack=lambda pipe, prediction, height, width: pipe._unpack_latents(
            prediction, height, width, pipe.transformer.config.patch_size, pipe.vae_scale_factor
        )[:, :, 0],
        side=2,
        together=False,
        during=changes.nucleus,
    ),
    "OvisImagePipeline": Family(**_SQUARES, constants=(2,)),
    "PixArtAlphaPipeline": _PIXART,
    "PixArtSigmaPAGPipeline": _with_pag(_PIXART),
    "PixArtSigmaPipeline": _PIXART,
    "PRXPipeline": Family(
        call={"use_resolution_binning": False}, tokens="tokenizer_max_length", side=2, times=adaptations.Rows
    ),
    "QwenImagePipeline": Family(**_SQUARES, fill=padded_with_mask, guidance="true_cfg_scale"),
    "SanaPAGPipeline": _with_pag(_SANA),
    "SanaPipeline": _SANA,
    "StableDiffusion3PAGPipeline": Family(call=_PAG, side=2),
    "StableDiffusion3Pipeline": Family(side=2),
    "StableDiffusionPAGPipeline": Family(denoiser="unet", call=_PAG, tokens=None),
    "StableDiffusionPipeline": Family(denoiser="unet", tokens=None),
    "StableDiffusionXLPAGPipeline": Family(denoiser="unet", call=_PAG, tokens=None),
    "StableDiffusionXLPipeline": Family(denoiser="unet", tokens=None),
    "ZImageOmniPipeline": dataclasses.replace(
        _Z_IMAGE, restore=lambda results: ([[text] for text in results[0]], []), without=("siglip", "siglip_processor")
    ),
    "ZImagePipeline": _Z_IMAGE,
}
"""``_class_name`` of ``model_index.json`` -> the family. Tests found all these classes equal to diffusers."""


def refuse_code(path: object, part: str, names: Sequence[Any]) -> NoReturn:
    """Raises InputError for a part whose class is code of the repository."""
    raise InputError(
        f"{path} takes its {part} from {options.quote(names)}, which is code of the repository: such code is never run"
        " here, so take a model whose parts are classes of diffusers and transformers",
        code="foreign-code",
    )


def family_of(name: str) -> Family:
    """The family of a pipeline class of diffusers."""
    if name in FAMILIES:
        return FAMILIES[name]
    reason = refusals.reason(name) or "it is not among the classes that were found equal to diffusers"
    raise InputError(
        f"{name} of diffusers cannot be used: {reason}. docs/reference/diffusers_classes.md lists the classes that can",
        code="wrong-kind-of-model",
    )
