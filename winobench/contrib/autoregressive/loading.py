"""Loads generators from folders and repositories in transformers' layout, and compares their states with torch's."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench.base import files, options
from winobench.base.errors import InputError
from winobench.checkpoints import models, sources, vision_language
from winobench.checkpoints.tensors import FileTensor
from winobench.contrib.autoregressive import network as networks
from winobench.contrib.autoregressive.emu3 import Emu3
from winobench.contrib.autoregressive.family import Family
from winobench.contrib.autoregressive.glm_image import GlmImage
from winobench.contrib.autoregressive.janus import Janus
from winobench.contrib.autoregressive.network import TokenNetwork
from winobench.models import snapshots
from winobench.scorers import networks as scorer_networks
from winobench.scorers import pairs
from winobench.torch_modules import bridge, comparison, loading

FAMILIES: dict[str, type[Family]] = {"janus": Janus, "emu3": Emu3, "glm_image": GlmImage}
"""``model_type`` of config.json -> layout."""

# ``model_type`` of the original layouts -> repositories of the same models in transformers' layout.
_CONVERTED = {
    "multi_modality": "deepseek-community/Janus-Pro-1B or deepseek-community/Janus-Pro-7B",
    "Emu3": "BAAI/Emu3-Gen-hf",
}
# Places of an image's sequence whose states are compared with torch's. A host computes a few tokens quickly.
_COMPARED = 16
_TEXTS = ("a dog to the left of a cat", "", "two birds")
_EQUAL_CODES = 0.98
# Parameters for each value of a file: quantised weights have several.
_LARGEST_SHARE = 8
# The attribute of transformers' classes that names modules of float32.
_STRICT = "_keep_in_fp32_modules_strict"


@dataclasses.dataclass(frozen=True)
class Generator:
    """A generator that is ready for use: its network and the processor of transformers with its tokenizer."""

    network: TokenNetwork
    processor: Any

    @property
    def family(self) -> Family:
        return self.network.family


def load(
    source: Any,
    dtype: str = "float32",
    *,
    image_size: int | None = None,
    variant: str | None = None,
    revision: str | None = None,
) -> Generator:
    """Loads a generator, whose states and codes have to equal torch's.

    Args:
      source: a registered name, a folder or a hub id.
      dtype: of the decoder: ``float32``, ``bfloat16`` or ``float16``. Codes of images are always found in float32.
      image_size: height and width of generated images in pixels, where the model has a choice.
      variant: of the weight files.
      revision: of a repository on the hub.

    Raises:
      InputError: files are missing or damaged, or are in an original layout. Or the states differ from torch's.
    """
    dtype = jnp.dtype(models.as_dtype(dtype)).name
    source = sources.resolve(source, revision=revision)
    folder, processor, layout, without_weights = describe(source, image_size)
    kind, part = type(layout), layout.SUBFOLDERS[0]
    model_class: Any = getattr(bridge.transformers, kind.MODEL)
    strict = {*kind.FLOAT32, *(getattr(model_class, _STRICT, None) or ())}
    ((found, tensors),) = loading.weight_files(source, {part: model_class}, variant).values()
    _check_fits(source, without_weights, tensors)
    loading.check_memory(source, {part: tensors}, {"default": dtype})
    with bridge.replaced(model_class, _STRICT, strict):
        model = loading.load_network(source, folder, part, model_class, found, tensors, dtype, False)
    networks.use_causal_attention(model)
    made = Generator(TokenNetwork(layout, model), processor)
    _check_finite(source, made.network, strict)
    identity = files.digest([models.weights_sha256(made.network), str(made.family), comparison.versions()])
    comparison.check_once(identity, kind.MODEL, functools.partial(_differences, made))
    return made


def prompts(network: TokenNetwork, processor: Any, texts: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
    """Token ids of the prompts of texts, and of the same without the texts. The prompt of "" is the latter.

    Raises:
      InputError: the model has no positions for so long a text and an image, or a text has its word for images.
    """
    check_words(processor, texts)
    prompts = network.family.prompts(processor, texts)
    without = [network.family.unconditional(processor, prompt) for prompt in prompts]
    prompts = [none if text == "" else ids for text, ids, none in zip(texts, prompts, without, strict=True)]
    longest = network.longest_prompt
    for text, prompt in zip(texts, prompts, strict=True):
        if len(prompt) > longest:
            raise InputError(
                f"the text {options.quote(text)} has {len(prompt):,} tokens with its prompt, but this model has"
                f" positions for {longest:,} before an image: shorten it",
                code="too-long",
            )
    return prompts, without


def check_words(processor: Any, texts: Sequence[str]) -> None:
    """Raises InputError for a text with the word in whose place transformers wants an image."""
    for text in texts:
        if processor.image_token in text:
            raise vision_language.image_slot_in_text(text)


def prompt_identity(network: TokenNetwork, processor: Any) -> dict[str, Any]:
    """Everything about the layout of texts and images that can change a likelihood, as JSON values."""
    return {
        "layout": {"family": type(network.family).__name__, **dataclasses.asdict(network.family)},
        "tokenizer": files.digest(scorer_networks.tokenizer_identity(processor.tokenizer)),
        "chat_template": processor.chat_template,
    }


def family_of(source: sources.Source) -> type[Family]:
    """The layout of a folder, by its config. Refuses original layouts."""
    is_pipeline = (index := source.find("model_index.json")) is not None
    name = sources.read_json(index).get("_class_name") if index is not None else None
    if is_pipeline and name != "GlmImagePipeline":
        message = f"{index} is of a {name!r}, but models that predict tokens are {', '.join(FAMILIES)}"
        raise InputError(message, code="wrong-kind-of-model")
    path = source.require(
        sources.join(GlmImage.SUBFOLDERS[0] if is_pipeline else "", "config.json"), "so its kind is unknown"
    )
    model_type = sources.read_json(path).get("model_type")
    if model_type in _CONVERTED:
        raise InputError(
            f"{path} is in the original layout ({model_type}), whose code would come with it: name the same model in"
            f" transformers' layout, such as {_CONVERTED[model_type]}",
            code="unsupported-checkpoint",
        )
    if model_type not in FAMILIES:
        message = f"{path} is of a {model_type!r}, but must be one of {', '.join(FAMILIES)}"
        raise InputError(message, code="wrong-kind-of-model")
    return FAMILIES[model_type]


def describe(source: sources.Source, image_size: int | None) -> tuple[str, Any, Family, Any]:
    """A model by its small files: folder, processor, layout, and the model without weights. Refuses unusable files.

    The model of transformers is on torch's meta device.
    """
    kind, folder, processor, config = small_files(source)
    with loading.quietly(f"{source} does not describe a {kind.MODEL}"), bridge.torch.device("meta"):
        model = getattr(bridge.transformers, kind.MODEL)(config)
    layout = kind.read(model, processor, image_size)
    _check_prompts(source, processor, layout, model.config.text_config.max_position_embeddings)
    return folder, processor, layout, model


def small_files(source: sources.Source) -> tuple[type[Family], str, Any, Any]:
    """A model's layout, the folder of its small files, its processor and its config, of transformers."""
    kind, transformers = family_of(source), bridge.transformers
    folder = loading.folder_of(source, kind.SUBFOLDERS)
    processor = loading.load_other(source, folder, kind.SUBFOLDERS[1], getattr(transformers, kind.PROCESSOR))
    path = source.require(sources.join(kind.SUBFOLDERS[0], "config.json"), "so its sizes are unknown")
    values = sources.read_json(path)
    if missing := [name for name in kind.NEEDS if not values.get(name)]:
        message = f"{path} has no {missing[0]}, which a {kind.MODEL} needs: get it from the model's repository again"
        raise InputError(message, code="unsupported-checkpoint")
    with loading.quietly(f"{path} does not describe a {kind.MODEL}"):
        return kind, folder, processor, getattr(transformers, kind.MODEL).config_class.from_dict(values)


def _check_prompts(source: sources.Source, processor: Any, layout: Family, positions: int) -> None:
    """Refuses a processor whose prompts do not hold the text, and images that leave no space for one."""
    with loading.quietly(f"the processor of {source} makes no prompts"):
        prompts = layout.prompts(processor, _TEXTS)
    if prompts[0] == prompts[-1]:
        message = f"the chat template of {source} leaves out the text: get its files again"
        raise InputError(message, code="unsupported-checkpoint")
    space = positions - layout.length
    if min(map(len, prompts)) >= space:
        raise InputError(
            f"{source} has {positions:,} positions, but an image takes {layout.length:,}, which leaves too little space"
            " for a text: choose a smaller image_size, or check config.json",
            code="out-of-range",
        )


def _check_fits(source: sources.Source, model: Any, tensors: Mapping[str, FileTensor]) -> None:
    """Refuses a config without its sizes, or of fewer blocks than the weights: transformers accepts both in silence."""
    needed = sum(parameter.numel() for parameter in model.parameters())
    held = sum(math.prod(tensor.shape) for tensor in tensors.values())
    if needed > _LARGEST_SHARE * held:
        raise sources.mismatch(
            f"config.json of {source} describes a {type(model).__name__} of {needed:,} parameters, but the weights are"
            f" {held:,} values"
        )
    # From the first numbered block on, since names in older files begin differently.
    block = re.compile(r"\w+\.\d+\..*")
    known = {match[0] for name in model.state_dict() if (match := block.search(name))}
    kinds = {re.sub(r"\d+", "#", name) for name in known}
    held_blocks = {name: match[0] for name in tensors if (match := block.search(name))}
    left = [name for name, end in held_blocks.items() if end not in known and re.sub(r"\d+", "#", end) in kinds]
    if left:
        raise sources.mismatch(
            f"the weights of {source} have {len(left):,} tensors of blocks that config.json does not describe"
            f" ({sources.shorten(sorted(left), 2)})"
        )


def _check_finite(source: sources.Source, network: TokenNetwork, modules: Collection[str]) -> None:
    """Refuses damaged weights of modules that make tokens of images: the most similar code would hide them."""
    for name, array in network.arrays.items():
        if {*name.split(".")} & {*modules} and not np.isfinite(array.get_value()).all():
            message = f"{name} of {source} has NaN or infinite numbers: get its weights again"
            raise InputError(message, code="not-finite")


def _differences(made: Generator) -> dict[str, tuple[float, float]]:
    """Measures what `winobench.torch_modules.comparison.check_once` compares."""
    network, family = made.network, made.family
    structure, params = snapshots.split(network)
    random = np.random.default_rng(0)
    images = [random.uniform(-1, 1, (2, side, side, 3)).astype(np.float32) for side in family.sides]
    codes = np.asarray(jax.jit(lambda params, images: structure.module(params).image_codes(images))(params, images))
    wanted = network.apply_in_torch(family.image_codes, *(np.moveaxis(image, -1, 1) for image in images))
    measured = {"codes of images": (float(np.mean(codes != wanted)), 1 - _EQUAL_CODES)}
    prompts = family.prompts(made.processor, _TEXTS)
    rows = pairs.token_rows(prompts, 0, max(map(len, prompts)))
    inputs = rows[:, :-1], rows[:, -1], codes[[0, 1, 0]]
    states = functools.partial(networks.states_of, family, places=family.scored_places()[:_COMPARED])
    computed = jax.jit(lambda params, *inputs: structure.module(params).apply(states, *inputs))(params, *inputs)
    between = comparison.difference(computed, network.apply_in_torch(states, *inputs), network.dtype)
    return {**measured, "states": (between, comparison.TOLERANCES[network.dtype.name])}


class FromPretrained:
    """The part of classes that loads a generator by its name."""

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: str = "float32",
        *,
        mesh: Mesh | None = None,
        image_size: int | None = None,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        **others: Any,
    ) -> Self:
        """Loads a model and makes it ready.

        Args:
          source: a registered name, such as ``janus-pro-1b``, a folder in transformers' layout, or a hub id.
          dtype: of the decoder: ``float32``, ``bfloat16`` or, for likelihoods and images, ``float16``. Codes of images
            are found in float32.
          mesh: the devices, from `winobench.parallel.make_mesh`. Chosen by the parameters' size when None.
          image_size: height and width of generated images in pixels, of Emu3 (720) and GLM-Image (1,024).
          variant: of the weight files, such as ``fp16``.
          revision: branch, tag or commit of a hub id.
          allow_pickle: has no effect. Weights are read from safetensors files.
          **others: of the class.

        Raises:
          InputError: files are missing or damaged, the model cannot do what the class does, or an option is not one of
            its choices.
        """
        scorer_networks.check_options(cls, others)
        found = sources.resolve(source, revision=revision)
        cls._check_files(found, dtype, others)
        return cls._made(found, load(found, dtype, image_size=image_size, variant=variant), mesh, others)

    @classmethod
    def _check_files(cls, source: sources.Source, dtype: str, others: dict[str, Any]) -> None:
        """Raises InputError, before weights are read, for a model or an option that does not suit the class."""

    @classmethod
    def _made(cls, source: sources.Source, generator: Generator, mesh: Mesh | None, others: dict[str, Any]) -> Self:
        made: Any = cls
        return made(generator, mesh=mesh, **others)
