"""Image processors from the files of vision-language models."""

from __future__ import annotations

from typing import Any

from winobench.base.errors import InputError
from winobench.checkpoints import sources
from winobench.data import patches
from winobench.data.patches import PatchProcessor
from winobench.data.processors import ImageProcessor


def read_image_processor(
    source: sources.Source, family: str = "blip", max_pixels: int | None = None
) -> ImageProcessor | PatchProcessor:
    """Reads how images are made ready. Transformers 5 writes it into the processor's file, earlier ones on its own."""
    path = source.find("processor_config.json")
    options = own_options(path)
    if options is None:
        path = source.require("preprocessor_config.json", "which states how images are resized: get it again")
        options = sources.read_json(path)
    if max_pixels is not None and family != patches.FAMILY:
        message = f"max_pixels is for models that take images of any shape, but {source} takes one size: leave it out"
        raise InputError(message, code="option-of-others")
    with sources.blame(path):
        if family == patches.FAMILY:
            return PatchProcessor.from_config(options, max_pixels)
        return ImageProcessor.from_config(family, options)


def check_size(source: sources.Source, processor: ImageProcessor, size: int) -> None:
    """Refuses a processor whose images have another size than the network's."""
    if processor.size != (size, size):
        made = " x ".join(map(str, processor.size))
        raise sources.mismatch(f"{source} makes images of {made} pixels, but its network takes {size} x {size}")


def own_options(path: str | None) -> dict[str, Any] | None:
    """The image processor's options in a ``processor_config.json`` and the class of the whole, or None."""
    content = sources.read_json(path) if path is not None else {}
    options = content.get("image_processor")
    if not isinstance(options, dict):
        return None
    return {"processor_class": content.get("processor_class"), **options}
