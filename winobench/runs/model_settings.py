"""Options of models: how they are loaded, asked and sampled. Several configs have them."""

from __future__ import annotations

import dataclasses
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.base.options import option
from winobench.runs import settings


@dataclasses.dataclass(frozen=True)
class Weights:
    revision: str | None = option(None, options.text(255).or_none(), "the hub repository's branch, tag or commit")
    allow_pickle: bool = option(False, options.flag(), "load .bin weights through a restricted unpickler")
    dtype: str = option("float32", options.DTYPE, f"compute dtype: {options.DTYPE_NAMES}")


@dataclasses.dataclass(frozen=True)
class Checkpoint(Weights):
    model: str = option(
        "clevr-tiny",
        options.text(),
        "a name of winobench eval --list_models, a folder, a hub id, or a .safetensors file",
    )
    variant: str | None = option(None, options.text(255).or_none(), "which of several weight files, such as fp16")


@dataclasses.dataclass(frozen=True)
class Pipeline(Checkpoint):
    lora: str | None = option(
        None,
        options.PATH.or_none(),
        "LoRA for the model: a file, a folder, or a hub id. None for the model as it is",
        only_for=(settings.DIFFUSION,),
    )
    lora_scale: float = option(
        1.0, options.SCALE, "what the LoRA's effect is multiplied by", only_for=(settings.DIFFUSION,)
    )
    embeddings: tuple | None = option(
        None,
        options.items(options.PATH, 1, 1_000).or_none(),
        "learned words (textual inversion): files, folders or hub ids, with commas",
        only_for=(settings.DIFFUSION,),
    )
    image_size: int | None = option(
        None,
        options.IMAGE_SIZE.or_none(),
        "pixels that images are resized to. None for the model's own size",
        only_for=(settings.DIFFUSION,),
    )


def read_fields(text: str | None) -> dict[str, Any] | None:
    """The fields in ``extra_body``. Raises InputError for a text that is not a JSON object."""
    if text is None:
        return None
    body, reason = None, ""
    try:
        body = json_files.parse(text)
    except json_files.NotJSON as error:
        reason = f" ({error})"
    if not isinstance(body, dict):
        raise InputError(
            f"--api.extra_body is {options.quote(text)}, which is not a JSON object{reason}: write one such as"
            ' \'{"reasoning_effort": "low"}\'',
            code="not-json",
        )
    return body


@dataclasses.dataclass(frozen=True)
class Connection:
    """The options of all hosted models, for ``--api.NAME``."""

    base_url: str | None = option(
        None,
        options.text(4_096).or_none(),
        "URL of the server. None for the one in the model's name, or the provider's own",
    )
    concurrency: int = option(8, options.whole(1, 1_024), "calls under way at a time")
    timeout: float = option(
        300.0,
        options.number(above=0, high=86_400),
        "seconds after which a call, to its last byte, is given up and tried again",
    )
    attempts: int = option(8, options.whole(1, 1_000), "how often a call is tried")
    extra_body: str | None = option(
        None,
        options.text().or_none(),
        'further fields of every call as JSON, such as \'{"reasoning_effort": "low"}\'',
        read=read_fields,
    )
    price: tuple | None = option(
        None,
        options.items(options.number(0, 1e6), 2, 2).or_none(),
        "dollars per million tokens read and written, such as 0.15,0.60. None for the known prices",
    )


@dataclasses.dataclass(frozen=True)
class Api(Connection):
    """The options of a hosted model that answers questions."""

    send_temperature: bool = option(True, options.flag(), "false for models that refuse the field")
    max_tokens_field: str = option(
        "auto",
        options.choice("auto", "max_tokens", "max_completion_tokens"),
        "max_tokens, max_completion_tokens, or auto for the one that the server takes",
    )
    logprobs: bool | None = option(
        None,
        options.flag().or_none(),
        "options about images: by log-probabilities (true) or by votes (false). None goes by the name",
    )
    votes: int | None = option(
        None,
        options.whole(1, 1_000).or_none(),
        "options about images: answers that vote where there are no log-probabilities. None for 5",
    )


_WORD = options.text(100).or_none()


@dataclasses.dataclass(frozen=True)
class ImageFields:
    """Fields of a request for an image. Those that are not None are sent."""

    size: str | None = option(None, _WORD, "the field size, such as 1536x1024. image_size gives a square")
    quality: str | None = option(None, _WORD, "the field quality, such as low")
    output_format: str | None = option(None, _WORD, "the field output_format, such as webp. Images are kept as PNG")
    background: str | None = option(None, _WORD, "the field background, such as opaque. Transparent parts become white")


@dataclasses.dataclass(frozen=True)
class ImageCall(ImageFields):
    """How images are requested and paid for."""

    send_seed: bool = option(False, options.flag(), "true for servers that take a seed: the image's own is sent")
    image_price: float | None = option(
        None, options.number(0, 1e6).or_none(), "dollars for an image, of models that are not billed by tokens"
    )


@dataclasses.dataclass(frozen=True)
class ImageApi(ImageCall, Connection):
    """The options of a hosted model that makes images."""


@dataclasses.dataclass(frozen=True)
class Responder(Weights):
    model: str = option(
        "flan-t5-base",
        options.text(),
        "a name of --list_models, a folder, a hub id, API:MODEL (openai:MODEL), recorded:FILE. Or several",
    )
    int8: bool = option(False, options.flag(), "keep the weights of dense layers in 8 bits")
    model_parallel: int = option(1, options.DEVICES, "devices that share one copy of the model; 1 gives each its own")
    chat_template: str = option("auto", options.choice("auto", "tokenizer", "plain"), "auto, tokenizer, or plain")
    batch_size: int | None = option(
        None, options.BATCH_SIZE.or_none(), "requests at once on each device. None chooses by their length"
    )
    seed: int = option(
        0, options.SEED, "random seed for sampled texts, and for the noise of a diffusion model that judges"
    )
    api: Api = options.group(Api)


@dataclasses.dataclass(frozen=True)
class Sampler:
    num_steps: int | None = option(
        None, options.whole(1, options.MAX_TIMESTEPS).or_none(), "steps of the sampler. None for the usual number"
    )
    guidance_scale: float | None = option(
        None,
        options.GUIDANCE.or_none(),
        "classifier-free guidance; 1 or less for none. None for the model's usual scale",
    )
    sampler: str | None = option(
        None,
        options.text(255).or_none(),
        "a name in winobench.SAMPLERS, such as ddim or dpm_solver, or flow_euler of flow models. None follows"
        " the model's folder, or takes ddim where its scheduler is not among these",
    )
    image_size: int | None = option(
        None, options.IMAGE_SIZE.or_none(), "height and width in pixels. None for the model's own"
    )
    batch_size: int = option(8, options.BATCH_SIZE, "images at once on each device")
    encoders: str = option(
        "resident",
        options.choice("resident", "staged"),
        "resident, or staged: text encoders and denoiser are never on the devices together",
    )
