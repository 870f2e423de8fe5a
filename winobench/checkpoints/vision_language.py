"""Vision-language models from transformers' folders and hub ids: BLIP-2, InstructBLIP, LLaVA 1.5, Qwen2.5-VL, Qwen3-VL.

Weights go from the files straight to the devices, as in `winobench.checkpoints.language_models`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

from winobench.base import options
from winobench.base.errors import InputError
from winobench.base.texts import check_placeholder
from winobench.checkpoints import encoder_layouts, language_models, models, processor_files, sources, weights
from winobench.checkpoints.loaded import Loaded, spread_by_default
from winobench.checkpoints.tensors import FileTensor
from winobench.data.patches import PatchProcessor
from winobench.data.processors import ImageProcessor
from winobench.models import snapshots, vision_language
from winobench.models.blip_2 import Blip2ForConditionalGeneration, InstructBlipForConditionalGeneration
from winobench.models.llava import LlavaForConditionalGeneration
from winobench.models.opt_config import OPTConfig
from winobench.models.qwen2_5_vl import Qwen25VLForConditionalGeneration
from winobench.models.qwen3_vl import Qwen3VLForConditionalGeneration
from winobench.models.vision_language import PromptForm, VisionLanguageNetwork

_PENALTY = options.number(0.01, 100)
# In characters. Published ones have some thousands.
_LONGEST_TEMPLATE = 1 << 20

NETWORKS: dict[str, type[VisionLanguageNetwork]] = {
    "blip-2": Blip2ForConditionalGeneration,
    "instructblip": InstructBlipForConditionalGeneration,
    "llava": LlavaForConditionalGeneration,
    "qwen2_5_vl": Qwen25VLForConditionalGeneration,
    "qwen3_vl": Qwen3VLForConditionalGeneration,
}
"""``model_type`` of a ``config.json`` -> the network that reads it."""


@dataclasses.dataclass(frozen=True)
class LoadedVisionLanguageModel(Loaded):
    """A vision-language model, ready to be computed with."""

    network: tuple[Any, Any]  # (graph, state) of `flax.nnx.split`, the state on the devices of `mesh`
    config: Any
    processor: ImageProcessor | PatchProcessor
    tokenizer: Any  # of transformers, of the language model
    qformer_tokenizer: Any  # None unless a Q-Former reads questions
    fingerprint: str  # 64 hexadecimal digits, of everything that answers depend on
    mesh: Mesh
    stop_ids: tuple[int, ...]  # tokens that end an answer, sorted
    form: PromptForm
    penalty: float = 1.0  # `winobench.responders.decoding.Program.penalty` of texts
    origin: snapshots.WeakSnapshot | None = None  # the arrays that the fingerprint is of; None where they are not known

    @property
    def end(self) -> int:
        """The token that ends an answer: the tokenizer's, but an OPT's is in its config (a new line in BLIP-2)."""
        text = self.config.text_config
        return text.eos_token_id if isinstance(text, OPTConfig) else self.tokenizer.eos_token_id

    def tokens(self, template: str, texts: Sequence[str]) -> tuple[tuple[int, ...], list[list[int]]]:
        """Texts in a template as tokens of the language model."""
        slot, once = self.config.image_token_index, int(self.form.names_image)
        encoded = self.tokenizer([template.replace("{}", text) for text in texts], padding=False)["input_ids"]
        for text, ids in zip(texts, encoded, strict=True):
            if ids.count(slot) != once:
                raise image_slot_in_text(text)
        if not once:
            # As transformers' generate without a prompt, where a tokenizer puts nothing before texts.
            start = getattr(self.config.text_config, "bos_token_id", None)
            return (), [ids or [start] * (start is not None) for ids in encoded]
        return tuple(encoded[0][: encoded[0].index(slot)]), [ids[ids.index(slot) + 1 :] for ids in encoded]


def network_class(source: sources.Source) -> type[VisionLanguageNetwork]:
    """The network in a folder or hub repository. Raises InputError where it is not a vision-language model."""
    path = source.require("config.json", "so it is not a vision-language model: name one in transformers' layout")
    model_type = sources.read_json(path).get("model_type")
    if isinstance(model_type, str) and model_type in NETWORKS:
        return NETWORKS[model_type]
    refuse_text_only(path, model_type)
    found = f"{path} has the model_type {options.quote(model_type)}"
    message = f"{found}, but the supported vision-language models are {', '.join(NETWORKS)}: {BY_A_SERVER}"
    raise InputError(message, code="wrong-kind-of-model")


BY_A_SERVER = "serve it by vLLM, SGLang or llama.cpp, and name openai:MODEL@http://HOST:PORT/v1"
"""The way to use other vision-language models that write."""


def is_text_only(model_type: Any) -> bool:
    """Whether a ``model_type`` is a language model's that reads no images."""
    kind = language_models.KINDS.get(model_type) if isinstance(model_type, str) else None
    return kind in ("decoder", "t5", "bert") and model_type != "llava"


def refuse_text_only(path: str, model_type: Any) -> None:
    """Raises InputError for the ``config.json`` of such a model."""
    if is_text_only(model_type):
        raise InputError(
            f"{path} has the model_type {options.quote(model_type)}, which is a text-only language model: name a"
            " vision-language model, such as Salesforce/instructblip-flan-t5-xl, or judge it with --config=winoviz or"
            " --config=wscplus",
            code="wrong-kind-of-model",
        )


def image_slot_in_text(text: str) -> InputError:
    """The error for a text that has the token which holds an image's place."""
    return InputError(
        f"the text {options.quote(text)} has the token that holds an image's place: take it out",
        code="image-slot-in-text",
    )


def check_template(name: str, template: Any, form: PromptForm) -> None:
    """Raises InputError for a template without the text or the image. ``name`` is the option's."""
    check_placeholder(name, template)
    if not form.names_image:
        return
    _, *behind = template.split(form.image_token)
    # Without other words behind the image, an empty text would leave nothing to read there.
    if len(behind) != 1 or "{}" not in behind[0] or not behind[0].replace("{}", "").strip():
        raise InputError(
            f"{name} is {options.quote(template)}, but this model reads the image at {form.image_token}:"
            f" write that once, before {{}} and other words, as in {options.quote(form.template)}",
            code="bad-template",
        )


@spread_by_default
def load_vision_language(
    source: str | os.PathLike[str] | sources.Source,
    dtype: Any = "float32",
    *,
    mesh: Mesh | None = None,
    int8: bool = False,
    max_pixels: int | None = None,
    variant: str | None = None,
    allow_pickle: bool = False,
    templates: Mapping[str, str | None] | None = None,
) -> LoadedVisionLanguageModel:
    """Loads a vision-language model, in float32 or bfloat16, straight onto the devices.

    Args:
      mesh: the devices. When None, all of this process, or as many CPUs as have memory for copies of the
        parameters for. Devices of an axis ``model`` share one copy.
      int8: the dense kernels of the language model's layers hold numbers of 8 bits with a scale for each output
        channel.
      max_pixels: of models for images of any shape, the size above which an image is made smaller. Every image takes
        as much work and memory as one of that size. When None, `winobench.data.patches.MAX_PIXELS`, or the files' limit
        if that is less.
    """
    source = sources.resolve(source)
    cls = network_class(source)
    config = models.read_config(cls, source)
    form = cls.form_of(config)
    for name, template in (templates or {}).items():
        if template is not None:
            check_template(name, template, form)
    dtype = language_models.language_model_dtype(dtype)
    processor = processor_files.read_image_processor(source, cls.image_processor, max_pixels)
    tokenizer = language_models.load_tokenizer(source, config.text_config.vocab_size)
    qformer_tokenizer = None
    if cls.reads_text:
        vocab_size = config.qformer_config.vocab_size
        qformer_tokenizer = encoder_layouts.read_bert_tokenizer(source, vocab_size, subfolder="qformer_tokenizer")
    _check_parts(source, config, processor, tokenizer, form)
    penalty = _read_penalty(source) if form.names_image else 1.0
    paths = weights.find_weights(source, None, "model", variant=variant, allow_pickle=allow_pickle)
    config, network, digest = build_vision_language(
        cls, config, weights.read_weights(paths), dtype, mesh=mesh, int8=int8
    )
    fingerprint = language_models.model_fingerprint(
        digest,
        config,
        tokenizer,
        dtype=dtype.name,
        int8=int8,
        processor=dataclasses.asdict(processor),
        qformer_tokenizer=qformer_tokenizer and _digest(qformer_tokenizer),
    )
    stop_ids = language_models.find_stop_ids(source, config.text_config.eos_token_id, tokenizer)
    return LoadedVisionLanguageModel(
        network, config, processor, tokenizer, qformer_tokenizer, fingerprint, mesh, stop_ids, form, penalty
    ).as_loaded()


def _read_penalty(source: sources.Source) -> float:
    """The ``repetition_penalty`` of a ``generation_config.json``, by which transformers writes texts, too."""
    path = source.find("generation_config.json")
    value = sources.read_json(path).get("repetition_penalty") if path is not None else None
    return 1.0 if value is None else _PENALTY.check(f"repetition_penalty of {path}", value)


def build_vision_language(
    cls: type[VisionLanguageNetwork],
    config: Any,
    tensors: Mapping[str, FileTensor],
    dtype: Any = "float32",
    *,
    mesh: Mesh | None = None,
    int8: bool = False,
) -> tuple[Any, tuple[Any, Any], str]:
    """Builds a network and fills it with tensors, keys in torch's naming -> values, all of which are used.

    Returns the config, which now states whether the language model has a head besides the embeddings; (graph, state) of
    the network, and a digest of the tensors.
    """
    models._check_depth(cls.__name__, config, tensors, "config.json")
    named = models.rename(cls.__name__, tensors, cls.file_keys)
    # As for T5, the config cannot be relied on here.
    table = "shared" if config.start is not None else "embed_tokens"
    head, embeddings = (named.get(f"language_model.{name}.weight") for name in ("lm_head", table))
    is_tied = language_models.is_copy(head, embeddings)
    if is_tied:
        named.pop("language_model.lm_head.weight", None)
    config = dataclasses.replace(
        config, text_config=dataclasses.replace(config.text_config, tie_word_embeddings=is_tied)
    )
    shardings = vision_language.parameter_shardings
    network, digest = language_models.build_network(cls, config, named, shardings, dtype, mesh=mesh, int8=int8)
    return config, network, digest


def _check_parts(
    source: sources.Source, config: Any, processor: ImageProcessor | PatchProcessor, tokenizer: Any, form: PromptForm
) -> None:
    """Refuses a processor or a tokenizer of another model, before the weights, which take long."""
    made, taken = _sizes(config.vision_config, processor)
    if made != taken:
        raise sources.mismatch(f"the image processor of {source} makes {made}, but the network takes {taken}")
    path = source.find("processor_config.json")
    queries = sources.read_json(path).get("num_query_tokens") if path is not None else None
    made = getattr(config, "num_query_tokens", queries)
    if queries is not None and queries != made:
        fault = f"{path} has num_query_tokens={options.quote(queries)}"
        raise sources.mismatch(f"{fault} for an image, but the network makes {made} of it")
    _check_tokens(source, config, tokenizer.get_vocab(), form)
    if form.names_image:
        _check_chat_template(source, form)


def _check_chat_template(source: sources.Source, form: PromptForm) -> None:
    """Refuses a chat template in which no image has a place: it is a text-only model's."""
    templates = {}
    if (path := source.find("chat_template.jinja")) is not None:
        with open(path, encoding="utf-8", errors="replace") as file:
            templates[path] = file.read(_LONGEST_TEMPLATE)
    if (path := source.find("chat_template.json")) is not None:
        templates[path] = str(sources.read_json(path).get("chat_template"))
    if templates and not any(form.image_token in text for text in templates.values()):
        message = f"{next(iter(templates))} has no {form.image_token} for an image: take the model's own chat template"
        raise InputError(message, code="mismatched-parts")


def _sizes(config: Any, processor: ImageProcessor | PatchProcessor) -> tuple[str, str]:
    """The images that a processor makes, and those that a vision tower takes, in words."""
    if isinstance(processor, PatchProcessor):
        sides = (processor.patch_size, processor.temporal_patch_size, processor.merge_size)
        taken = (config.patch_size, config.temporal_patch_size, config.spatial_merge_size)
        made, taken = (
            f"patches of {side} x {side} pixels and {frames} frames, merged {merged} by {merged}"
            for side, frames, merged in (sides, taken)
        )
        return made, taken
    sizes = (processor.size, (config.image_size, config.image_size))
    made, taken = (f"images of {height} x {width} pixels" for height, width in sizes)
    return made, taken


def _check_tokens(source: sources.Source, config: Any, vocabulary: Mapping[str, int], form: PromptForm) -> None:
    uses = {form.image_token: "holds an image's place"} if form.names_image else {}
    uses |= {token: "the model's prompts are made of" for token in form.tokens if token not in uses}
    if missing := [used for used in uses if used not in vocabulary]:
        what = f"{missing[0]}, which {uses[missing[0]]}"
        message = f"the tokenizer of {source} has no token {what}: take the model's own tokenizer"
        raise InputError(message, code="mismatched-parts")
    token = vocabulary.get(form.image_token)
    if token is not None and config.image_token_index is not None and token != config.image_token_index:
        key = "image_token_id" if getattr(config, "image_token_id", None) is not None else "image_token_index"
        raise sources.mismatch(
            f"{form.image_token} is token {token} of the tokenizer of {source}, but {key}={config.image_token_index} of"
            " config.json"
        )


def _digest(tokenizer: Any) -> str:
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
