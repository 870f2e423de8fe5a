"""The pipelines of diffusers that are known to be right here, and what their own code leaves open."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from winobench.base import options
from winobench.base.errors import InputError


@dataclasses.dataclass(frozen=True)
class Family:
    """What is to be known of a pipeline class besides its code.

    Attributes:
      denoiser: the part that predicts.
      call: keywords of ``__call__`` while one prediction is made.
      encode: keywords of ``encode_prompt``.
      constants: places among the results of ``encode_prompt`` that are the same for all texts.
      fill: (results of ``encode_prompt``, tokens at most) -> the same with shapes that do not depend on the texts.
      restore: what ``fill`` gave -> what ``__call__`` takes.
      tokens: the keyword with the most tokens of a text. None where the family has no such keyword.
      guidance: the keyword of classifier-free guidance, of which 1 is none.
      embedded: the keyword of a guidance that the network is given as a number.
      pack: (pipeline, latents [n, c, h, w]) -> latents as ``__call__`` takes them. None for those that it makes itself.
      unpack: (pipeline, prediction, height, width in pixels) -> [n, c, h, w].
      side: latents along one side of a position of the denoiser.
      limits: what texts can change besides the conditions, for the documentation.
    """

    denoiser: str = "transformer"
    call: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    encode: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    constants: tuple[int, ...] = ()
    fill: Callable[[tuple[Any, ...], int], tuple[Any, ...]] | None = None
    restore: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    tokens: str | None = "max_sequence_length"
    guidance: str = "guidance_scale"
    embedded: str | None = None
    pack: Callable[[Any, Any], Any] | None = None
    unpack: Callable[[Any, Any, int, int], Any] | None = None
    side: int = 1
    limits: str = ""


def pack_squares(pipe: Any, latents: Any) -> Any:
    """Latents as rows of 2 x 2 squares, as FLUX.1 and those that followed it have them."""
    return pipe._pack_latents(latents, *latents.shape)


def unpack_squares(pipe: Any, prediction: Any, height: int, width: int) -> Any:
    unpacked = pipe._unpack_latents(prediction, height, width, pipe.vae_scale_factor)
    return unpacked[:, :, 0] if unpacked.ndim == 5 else unpacked


def padded_with_mask(results: tuple[Any, ...], tokens: int) -> tuple[Any, ...]:
    """(states [n, length, width], mask or None) -> both with ``tokens`` tokens, and a mask in any case."""
    import torch

    states, mask = results
    mask = torch.ones(states.shape[:2], dtype=torch.long) if mask is None else mask
    missing = tokens - states.shape[1]
    return torch.nn.functional.pad(states, (0, 0, 0, missing)), torch.nn.functional.pad(mask, (0, missing))


_SQUARES: dict[str, Any] = {"pack": pack_squares, "unpack": unpack_squares, "side": 2}

FAMILIES: dict[str, Family] = {
    "PixArtSigmaPipeline": Family(call={"use_resolution_binning": False}, side=2),
    "QwenImagePipeline": Family(**_SQUARES, fill=padded_with_mask, guidance="true_cfg_scale"),
    "SanaPipeline": Family(call={"use_resolution_binning": False}),
}
"""``_class_name`` of ``model_index.json`` -> the family. A class that was not seen equal to diffusers is not here."""

REFUSED: dict[str, str] = {}
"""Other text-to-image classes -> why they cannot be scored."""


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
    reason = REFUSED.get(name, "it is not among the checked pipelines")
    raise InputError(
        f"diffusers' {name} cannot be used: {reason}. Name a model of another class: {', '.join(sorted(FAMILIES))}",
        code="wrong-kind-of-model",
    )
