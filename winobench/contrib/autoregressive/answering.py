"""Answers about images by a generator that also reads images: Janus and Janus-Pro.

transformers' code encodes the image, in a trace. The language model is winobench's decoder, with a cache, on the
generator's own arrays. So likelihoods and answers are of the same weights, which have one digest.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import files
from winobench.base.errors import InputError
from winobench.checkpoints import language_models, models, sources
from winobench.checkpoints.vision_language import LoadedVisionLanguageModel
from winobench.contrib.autoregressive import loading
from winobench.contrib.autoregressive.family import Family
from winobench.contrib.autoregressive.janus import Janus
from winobench.contrib.autoregressive.loading import Generator
from winobench.contrib.autoregressive.network import TokenNetwork
from winobench.data.processors import ImageProcessor
from winobench.models import functional
from winobench.models.decoder import Decoder
from winobench.models.decoder_config import DecoderConfig
from winobench.models.llava import LlavaForConditionalGeneration
from winobench.models.vision_language import PromptForm
from winobench.responders.vision_language import VisionLanguageModel
from winobench.scorers import common, networks
from winobench.scorers.vqa_score import VQAScore
from winobench.torch_modules import comparison
from winobench.torch_modules.bridge import torch

# Of the words of LLaVA's published VQAScore: none is published for Janus.
_QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
_PREFIX = "model.language_model."


@dataclasses.dataclass(frozen=True)
class QuestionImage(ImageProcessor):
    """Resizes the longer side of an image, and fills it up to a square of the mean colour, as Janus reads images."""

    shortest: int = 14  # pixels of the shorter side, at least

    @classmethod
    def of(cls, published: Any) -> Self:
        """Takes over the settings of transformers' image processor."""
        sides = published.size["height"], published.size["width"]
        mean, std = tuple(published.image_mean), tuple(published.image_std)
        filter_of_sides = int(published.resample)
        return cls(sides, None, mean, std, filter_of_sides, published.rescale_factor, shortest=published.min_size)

    def __call__(self, image: Any) -> np.ndarray:
        """Returns uint8 [side, side, 3], RGB."""
        pixels, (side, _) = self._opened(image), self.size
        scale = side / max(pixels.shape[:2])
        height, width = (max(round(length * scale), self.shortest) for length in pixels.shape[:2])
        resized = ImageProcessor((height, width), None, self.mean, self.std, self.resample)(pixels)
        square = np.empty((side, side, 3), np.uint8)
        square[:] = [int(255 * value) for value in self.mean]
        top, left = (side - height) // 2, (side - width) // 2
        square[top : top + height, left : left + width] = resized
        return square


@dataclasses.dataclass(frozen=True)
class AnsweringConfig:
    """Shape of a generator as a vision-language model. The names are as in `winobench.models.llava.LlavaConfig`."""

    text_config: DecoderConfig
    image_token_index: int
    image_states: int

    start = None  # an answer continues from the question

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "text_config": self.text_config.to_dict()}


class AnsweringNetwork(LlavaForConditionalGeneration):
    """A generator that reads an image in a text, as LLaVA does.

    Attributes:
      generator: all of its arrays.
    """

    def __init__(self, generator: TokenNetwork, config: AnsweringConfig):
        self.config: Any = config
        self.generator, self.dtype = generator, generator.dtype

    @property
    def language_model(self) -> Decoder:  # type: ignore[override]  # nobody sets it
        """The decoder with the generator's arrays, whose kernels are views. For one trace."""
        arrays, (graph, state) = self.generator.arrays, _empty_decoder(self.config.text_config, self.dtype.name)
        filled = []
        for key, (path, _) in models.torch_names(nnx.merge(graph, state)).items():
            array = arrays[key if key.startswith("lm_head.") else _PREFIX + key].get_value()
            filled.append((path, nnx.Param(array.T if path[-1] == "kernel" else array)))
        return nnx.merge(graph, nnx.from_flat_state(filled))

    def image_states(self, pixels: jax.Array) -> jax.Array:
        """Normalised pixels [B, side, side, 3] -> what the decoder reads of each image, [B, states, hidden_size]."""
        return self.generator.apply(_features, jnp.moveaxis(pixels, -1, 1))

    def prefix(self, image_states: jax.Array) -> jax.Array:
        return image_states


def _features(m: Any, pixels: torch.Tensor) -> torch.Tensor:
    return m.model.get_image_features(pixels, return_dict=True).pooler_output


@functools.lru_cache(maxsize=4)
def _empty_decoder(config: DecoderConfig, dtype: str) -> tuple[Any, Any]:
    return nnx.split(models.abstract_model(Decoder, config, dtype=dtype))


def check_reads(name: Any, family: type[Family], config: Mapping[str, Any]) -> None:
    """Raises InputError for a model that does not read images, by its layout and its config.json."""
    if family is not Janus:
        raise InputError(
            f"{name} is {family.MODEL}, which generates images and answers nothing: name a Janus, or score by its"
            " likelihood (winobench eval)",
            code="kind-not-answered",
        )
    if "vision_model" in config.get("untrained", ()):
        raise InputError(
            f"the part of {name} that reads images is not trained (untrained in config.json), so its answers mean"
            " nothing: name another Janus",
            code="kind-not-answered",
        )


def reader_of(generator: TokenNetwork, processor: Any) -> tuple[AnsweringNetwork, QuestionImage]:
    """A generator as a network that reads images, and how these are prepared."""
    whole: Any = generator.config
    text = {**whole.text_config, "tie_word_embeddings": "lm_head.weight" not in generator.arrays}
    config = AnsweringConfig(DecoderConfig.from_dict(text), whole.image_token_id, processor.num_image_tokens)
    return AnsweringNetwork(generator, config), QuestionImage.of(processor.image_processor)


def _check_processor(source: sources.Source, config: Any, processor: Any, image: QuestionImage) -> None:
    """Refuses a processor that prepares other images than the vision tower reads."""
    vision, token = config.vision_config, processor.image_token
    side, states = vision["image_size"], (vision["image_size"] // vision["patch_size"]) ** 2
    for name, has, needs in (
        ("size", tuple(image.size), (side, side)),
        ("num_image_tokens", processor.num_image_tokens, states),
        (f"id of {token}", processor.tokenizer.convert_tokens_to_ids(token), config.image_token_id),
    ):
        if has != needs:
            raise sources.mismatch(f"the processor of {source} has the {name} {has}, but config.json needs {needs}")


def form_of(processor: Any) -> PromptForm:
    """The prompts of the published code: a system prompt, and a turn with an image and a text."""
    from transformers.models.janus.processing_janus import DEFAULT_SYSTEM_PROMPT

    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "{}"}]}
    text = DEFAULT_SYSTEM_PROMPT + processor.apply_chat_template([turn], add_generation_prompt=True)
    image = processor.image_token
    template = text.replace(image, f"{processor.image_start_token}{image}{processor.image_end_token}")
    return dataclasses.replace(
        LlavaForConditionalGeneration.form,
        question=template.replace("{}", _QUESTION),
        template=template,
        on_square=False,
        before_answer=" ",
        image_token=image,
        tokens=(processor.image_start_token, processor.image_end_token),
        scores_end=False,
    )


class _Reader(loading.FromPretrained):
    """The part of classes that hold a generator as a vision-language model."""

    _described: Mapping[str, Any] = {}

    @classmethod
    def _check_files(cls, source: sources.Source, dtype: str, others: dict[str, Any]) -> None:
        of_class: Any = cls
        of_class._check_choices(**others)
        language_models.language_model_dtype(dtype)
        path = source.find("config.json")
        check_reads(source, loading.family_of(source), {} if path is None else sources.read_json(path))

    @classmethod
    def _made(cls, source: sources.Source, generator: Generator, mesh: Mesh | None, others: dict[str, Any]) -> Self:
        processor = generator.processor
        network, image = reader_of(generator.network, processor)
        _check_processor(source, generator.network.config, processor, image)
        # Before the arrays move to the devices.
        fingerprint = networks.fingerprint(generator.network)
        structure, params = functional.split(network)
        mesh = common.mesh_for(params, mesh)
        on_devices = nnx.split(structure.module(parallel.place_parameters(params, mesh)))
        config, tokenizer, form = network.config, processor.tokenizer, form_of(processor)
        stop_ids = language_models.find_stop_ids(source, config.text_config.eos_token_id, tokenizer)
        loaded = LoadedVisionLanguageModel(
            on_devices, config, image, tokenizer, None, fingerprint, mesh, stop_ids, form
        ).as_loaded()
        of_class: Any = cls
        made = of_class(loaded, **others)
        made._described = {
            "tokenizer": files.digest(networks.tokenizer_identity(tokenizer)),
            "image_processor": dataclasses.asdict(image),
            "versions": comparison.versions(),
        }
        return made

    def fingerprint(self) -> dict[str, Any]:
        """Everything that can change an answer. ``model`` is the digest that the model's likelihoods have as well."""
        of_class: Any = super()
        return {**of_class.fingerprint(), **self._described}


class ImageAnswers(_Reader, VisionLanguageModel):
    """Answers about images by a Janus or a Janus-Pro: texts, options, and how well texts match by VQAScore."""


class AnswerScore(_Reader, VQAScore):
    """Scores how well texts fit images by the answers of a Janus or a Janus-Pro (``--scored_by=answers``)."""
