"""The families by the names in ``model_index.json``, and whether a pipeline has a family's parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from winobench.base import options
from winobench.base.errors import InputError
from winobench.models.any_pipeline import AnyPipeline

FAMILIES: dict[str, str] = {
    "StableDiffusionPipeline": "winobench.diffusion.stable_diffusion:StableDiffusion",
    "StableDiffusionXLPipeline": "winobench.diffusion.stable_diffusion_xl:StableDiffusionXL",
    "FluxPipeline": "winobench.diffusion.flux:Flux",
    "Flux2KleinPipeline": "winobench.diffusion.flux_2:Flux2Klein",
    "StableDiffusion3Pipeline": "winobench.diffusion.stable_diffusion_3:StableDiffusion3",
    "ZImagePipeline": "winobench.diffusion.z_image:ZImage",
}
"""``_class_name`` of ``model_index.json`` -> the class of the family."""

_OTHER_TASKS = ("Img2Img", "Inpaint")
_LEGACY = {"StableDiffusionInpaintPipelineLegacy": "StableDiffusionPipeline"}


def mismatch(family: type[AnyPipeline], index: Mapping[str, Any]) -> str | None:
    """The reason why a ``model_index.json`` is not of this family, or None."""
    from winobench.checkpoints import fast_tokenizers

    for part, (library, known) in family.PARTS.items():
        named = index.get(part)
        if part in family.OPTIONAL and is_absent(named):
            continue
        name = named[1] if isinstance(named, list) and len(named) == 2 else None
        # The Flax classes of earlier diffusers wrote the same layout, and fast tokenizers the same files.
        names = {known, f"Flax{known}", f"{known.removesuffix('Fast')}Fast", known.removesuffix("Fast")}
        if part in family.TOKENIZERS and known != "CLIPTokenizer":
            names |= fast_tokenizers.ANY
        if not isinstance(name, str) or name not in names:
            return f"whose {part} is {name or 'missing'}, not {known}"
        # A class of this name that the repository brings along may compute something else.
        if named[0] != library:
            return f"whose {part} is {named[0]}.{name}, not {library}.{known}"
    others = {"text_encoder_2", "text_encoder_3", "transformer", "prior"} - family.PARTS.keys()
    if parts := sorted(others & index.keys()):
        return f"with {', '.join(parts)}"
    return None


def is_absent(named: Any) -> bool:
    return named is None or named == [None, None]


def family_name(kind: Any) -> str | None:
    """The key of ``FAMILIES``. diffusers' Flax, image-to-image and inpainting classes have the same parts."""
    if not isinstance(kind, str):
        return None
    kind = _LEGACY.get(kind, kind.removeprefix("Flax"))
    plain = {kind, *(kind.replace(f"{task}Pipeline", "Pipeline") for task in _OTHER_TASKS)}
    return next((name for name in FAMILIES if name in plain), None)


def refuse_code(path: object, part: str, names: Sequence[Any]) -> NoReturn:
    """Raises InputError for a part whose class is code of the repository."""
    raise InputError(
        f"{path} takes its {part} from {options.quote(names)}, which is code of the repository: such code is never run"
        " here, so take a model whose parts are classes of diffusers and transformers",
        code="foreign-code",
    )
