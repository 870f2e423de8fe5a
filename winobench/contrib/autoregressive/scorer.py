"""The likelihood of an image's tokens under a text, of generators that predict tokens: Janus, Emu3, GLM-Image.

An image becomes tokens once. A pair is one pass with all tokens known, as in training.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike

from winobench import parallel
from winobench.base import options
from winobench.base.texts import check_texts
from winobench.checkpoints import sources
from winobench.contrib.autoregressive import loading
from winobench.contrib.autoregressive.family import Family
from winobench.contrib.autoregressive.loading import Generator
from winobench.contrib.autoregressive.network import TokenNetwork
from winobench.data import images as image_files
from winobench.data.images import ImageSource
from winobench.data.processors import ImageProcessor
from winobench.engine.limits import Limit
from winobench.models import functional
from winobench.scorers import common, networks, pairs
from winobench.scorers.networks import NetworkFunction
from winobench.scorers.pairs import PairScorer
from winobench.torch_modules import comparison

# Raised whenever a score that is computed here could change by more than rounding.
SCORING_VERSION = 1

PREPROCESSING = ("squash", "crop")

# Tokens that each device works on at once.
_TOKENS = Limit(1 << 15, cpu=1 << 11)
# Tokens of a usual text, for the size of batches and tables.
_USUAL_TEXT = 64


@dataclasses.dataclass(frozen=True)
class ImagePreparation:
    """An image as bytes in each size that a generator reads."""

    processors: tuple[ImageProcessor, ...]

    @classmethod
    def of(cls, family: Family, preprocessing: str) -> ImagePreparation:
        """``squash`` keeps everything in sight. ``crop`` takes the middle, as in the published training."""
        mean, std = family.mean, family.std
        return cls(
            tuple(
                ImageProcessor(side if preprocessing == "crop" else (side, side), (side, side), mean, std)
                for side in family.sides
            )
        )

    @property
    def blank(self) -> tuple[np.ndarray, ...]:
        return tuple(processor.blank for processor in self.processors)

    def __call__(self, image: ImageSource) -> tuple[np.ndarray, ...]:
        opened = image_files.open_image(image)
        return tuple(processor(opened) for processor in self.processors)

    def normalize(self, images: Sequence[jax.Array]) -> list[jax.Array]:
        return [processor.normalize(pixels) for processor, pixels in zip(self.processors, images, strict=True)]


@dataclasses.dataclass(frozen=True)
class _Step:
    """Static argument of the step over pairs."""

    structure: functional.Structure
    guidance: float | None
    mesh: Mesh


@functools.partial(jax.jit, static_argnames="how")
def _score_pairs(how: _Step, params: Any, codes: jax.Array, texts: jax.Array, index: jax.Array) -> jax.Array:
    """One score for each column of ``index``, int32 [2, n]: image row, text row. Float32 [n]."""

    def pairs_of_one_device(params, codes, texts, index):
        network = how.structure.module(params)
        prompts = [
            (part[:, :-1], part[:, -1]) for part in jnp.split(texts[index[1]], 1 if how.guidance is None else 2, axis=1)
        ]
        more = {} if how.guidance is None else {"without": prompts[1], "guidance": how.guidance}
        with functional.precision(network.dtype):
            return network.log_ratios(prompts[0], codes[index[0]], **more).sum(axis=1)

    whole, split = PartitionSpec(), PartitionSpec(parallel.DATA_AXIS)
    in_specs = (whole, whole, whole, PartitionSpec(None, parallel.DATA_AXIS))
    return parallel.map_over_data(pairs_of_one_device, how.mesh, in_specs, split)(params, codes, texts, index)


def lower_step(
    structure: functional.Structure, guidance: float | None, mesh: Mesh, *arguments: Any
) -> jax.stages.Lowered:
    """The step over pairs, lowered for abstract arrays at their places."""
    return _score_pairs.lower(_Step(structure, guidance, mesh), *arguments)


def codes_function(structure: functional.Structure, preparation: ImagePreparation) -> NetworkFunction:
    """Prepared images -> their codes."""
    return NetworkFunction(structure, _codes, (preparation,))


def usual_batch_size(family: Family, mesh: Mesh) -> int:
    """Pairs that each device works on at once."""
    return max(1, _TOKENS.on(mesh) // (family.length + _USUAL_TEXT))


def text_width(tokens: int, guidance: float | None) -> int:
    """Numbers of a text's row: its tokens and their count. With guidance, the row has a second prompt."""
    return (tokens + 1) * (1 if guidance is None else 2)


def _codes(network: TokenNetwork, images: Sequence[jax.Array], preparation: ImagePreparation) -> jax.Array:
    return network.image_codes(preparation.normalize(images))


def _unchanged(network: TokenNetwork, texts: jax.Array) -> jax.Array:
    return texts


class ImageLikelihood(loading.FromPretrained, PairScorer):
    """Scores a text for an image by log p(tokens of the image | text), in nats.

    The sum over the image's tokens of the log-probability of each one under the text and the tokens before it. The
    text "" gives the unconditional prompt, with which the model was trained to generate without a text. To compare
    images for one text, subtract the score of "", as Eq. 5 of DiffusionITM (Krojer et al., 2023) does. Evaluations do.
    Tokens that the sampler forces, such as Emu3's ends of rows, do not count.

    Attributes:
      model: the network.
      guidance: of the logits, or None.
      preprocessing: ``squash`` or ``crop``.
      mesh: the devices.
      normalizes: evaluations may subtract the score of the text "".
      chance: log p of random tokens, in nats.
    """

    normalizes = True

    def __init__(
        self,
        generator: Generator,
        *,
        guidance: float | None = None,
        preprocessing: str = "squash",
        batch_size: int | None = None,
        table_rows: int | None = None,
        mesh: Mesh | None = None,
    ):
        """Puts a model on the devices.

        Args:
          generator: from `winobench.contrib.autoregressive.loading.load`.
          guidance: g of the guided log-probabilities, log-softmax of u + g (c - u) with logits c under the text and u
            under none: what generation samples from. Two passes a pair. None for the text's own logits.
          preprocessing: how an image becomes square: ``squash`` resizes it as a whole, ``crop`` resizes its shortest
            side and takes the middle, as in the published training.
          batch_size: pairs that each device works on at once. Chosen for the kind of device and the number of an
            image's tokens when None.
          table_rows: images, and texts, that are kept on the device. Chosen by their size when None.
          mesh: the devices, from `winobench.parallel.make_mesh`. All of this process when None, or those CPU devices
            whose memory holds a copy of the parameters each.

        Raises:
          InputError: an option is not one of its choices.
        """
        networks.check_made("generator", generator, "network", "processor")
        self.model, self.tokenizing = generator.network, generator.processor
        self.guidance = None if guidance is None else float(options.GUIDANCE.check("guidance", guidance))
        self.preprocessing = common.choice("preprocessing", preprocessing, PREPROCESSING)
        family = self.model.family
        self.chance = -family.scored * math.log(family.codes)
        mesh = common.mesh_for(functional.split(self.model)[1], mesh)
        if batch_size is None:
            batch_size = usual_batch_size(family, mesh)
        super().__init__(
            ImagePreparation.of(family, preprocessing),
            mesh,
            example_text=np.zeros(text_width(_USUAL_TEXT, self.guidance), np.int32),
            batch_size=batch_size,
            rows=table_rows,
        )

    @classmethod
    def _check_files(cls, source: sources.Source, dtype: str, others: dict[str, Any]) -> None:
        common.choice("preprocessing", others.get("preprocessing", PREPROCESSING[0]), PREPROCESSING)

    @classmethod
    def check(cls, source: Any, *, image_size: int | None = None, revision: str | None = None, **others: Any) -> None:
        """Raises InputError where small files show that a model cannot be loaded. As `from_pretrained`."""
        loading.describe(sources.resolve(source, revision=revision), image_size)

    def iter_scores(
        self, images: Sequence[Any], texts: Sequence[str], pairs: ArrayLike
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """See `PairScorer`. Scores are float64: a float32 near 70,000 nats would have steps of 0.008."""
        rows = super().iter_scores(images, texts, pairs)
        return ((numbers, scores.astype(np.float64) + self.chance) for numbers, scores in rows)

    def fingerprint(self) -> dict[str, Any]:
        """Everything about this scorer that can change a score by more than rounding, ready for JSON."""
        snapshot = self.snapshot()
        return {
            "scorer": "image_likelihood",
            "scoring_version": SCORING_VERSION,
            "model": networks.fingerprint(snapshot.model),
            **loading.prompt_identity(self.model, self.tokenizing),
            "dtype": snapshot.model.dtype.name,
            "guidance": self.guidance,
            "preprocessing": self.preprocessing,
            "versions": comparison.versions(),
        }

    def _place(self, model: TokenNetwork) -> None:
        self._params = self._image_encoder = self._text_encoder = None  # frees memory for the new ones
        structure, params = networks.place(model, self.mesh)
        self._compiled_for = _Step(structure, self.guidance, self.mesh)
        self._encode_with(codes_function(structure, self.processor), NetworkFunction(structure, _unchanged), params)

    def _tokenize(self, texts: Sequence[str]) -> Any:
        """Token ids and their number: int32 [num_texts, tokens + 1]. With guidance twice: the second without texts."""
        check_texts(texts)
        prompts, without = loading.prompts(self.model, self.tokenizing, texts)
        longest = self.model.longest_prompt
        if self.guidance is None:
            return pairs.token_rows(prompts, 0, longest)
        rows = pairs.token_rows([*prompts, *without], 0, longest)  # of one width, so that one program has all pairs
        return np.concatenate(np.split(rows, 2), axis=1)

    def _step(self, images: Any, texts: Any, index: jax.Array) -> jax.Array:
        return _score_pairs(self._compiled_for, self._params, images, texts, index)
