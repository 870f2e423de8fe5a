"""Image-text matching with BLIP (Li et al., 2022): a head that was trained to tell matching pairs from others.

An image is encoded once, down to the keys and values of the text encoder's cross-attentions, two thirds of a pair.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from winobench import parallel
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.base.texts import check_texts, count_truncated, log_truncated
from winobench.checkpoints import encoder_layouts, models, processor_files, sources, tokenizer_files
from winobench.data.processors import ImageProcessor
from winobench.models import functional
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.scorers import common, networks, pairs
from winobench.scorers.networks import NetworkFunction
from winobench.scorers.pairs import PairScorer

# Raised whenever a score that is computed here could change by more than rounding.
SCORING_VERSION = 1

HEADS = ("itm", "itc")
FIRST_TOKENS = ("enc", "cls")

# Longest text in tokens, with those at both ends: what BLIP was trained and published with on captions.
_MAX_TEXT_TOKENS = 35


def _encode_images(model: BlipForImageTextRetrieval, images: jax.Array, processor: ImageProcessor, head: str) -> Any:
    """Images as the pairs need them: uint8 [n, size, size, 3] -> a pytree of arrays [n, ...]."""
    states = model.image_states(processor.normalize(images))
    return model.image_keys_values(states) if head == "itm" else model.image_features(states)


def _encode_texts(model: BlipForImageTextRetrieval, texts: jax.Array, head: str) -> jax.Array:
    """Texts as the pairs need them: int32 [n, tokens + 1], the last number the length, -> the same, or features."""
    return texts if head == "itm" else model.text_features(texts[:, :-1], texts[:, -1])


@dataclasses.dataclass(frozen=True)
class _Step:
    """Static argument of the step over pairs."""

    structure: functional.Structure
    head: str
    mesh: Mesh


@functools.partial(jax.jit, static_argnames="how")
def _score_pairs(how: _Step, params: Any, images: Any, texts: jax.Array, index: jax.Array) -> jax.Array:
    """One score for each column of ``index``, int32 [2, n]: image row, text row. Float32 [n]."""

    def pairs_of_one_device(params, images, texts, index):
        images = jax.tree.map(lambda table: table[index[0]], images)
        texts = texts[index[1]]
        if how.head == "itc":
            return (images * texts).sum(axis=-1)
        model = how.structure.module(params)
        with functional.precision(model.dtype):
            logits = model.match_logits(texts[:, :-1], texts[:, -1], images)
        return logits[:, 1] - logits[:, 0]

    whole, split = PartitionSpec(), PartitionSpec(parallel.DATA_AXIS)
    in_specs = (whole, whole, whole, PartitionSpec(None, parallel.DATA_AXIS))
    return parallel.map_over_data(pairs_of_one_device, how.mesh, in_specs, split)(params, images, texts, index)


class ItmHead(PairScorer):
    """Scores how well texts fit images with BLIP.

    The score of ``head="itm"`` is the log-odds of a match, the logit of match less the logit of mismatch. The published
    evaluation shows the softmax probability, which is the logistic function of it and ranks pairs in the same order,
    but is exactly 1 in float32 from log-odds of 17 on, where it makes ties. Log-odds are never cut off. The score of
    ``head="itc"`` is the cosine of the image's and the text's vector.

    Attributes:
      model: the network.
      head: ``itm`` or ``itc``.
      first_token: ``enc`` or ``cls``.
      max_text_tokens: longer texts are cut off.
      mesh: the devices.
      match_threshold: 0 with ``head="itm"``, where match and mismatch are equally probable. A cosine has none.
    """

    def __init__(
        self,
        model: BlipForImageTextRetrieval,
        tokenizer: Any,
        processor: ImageProcessor,
        *,
        head: str = "itm",
        first_token: str | None = None,
        max_text_tokens: int | None = None,
        batch_size: int | None = None,
        table_rows: int | None = None,
        mesh: Mesh | None = None,
    ):
        """Puts a model on the devices.

        Args:
          model: the network. It computes in the dtype that it was loaded in.
          tokenizer: a ``transformers.BertTokenizer``.
          processor: makes images ready for the network.
          head: ``itm`` (matching) looks at image and text together; ``itc`` (contrast) compares a vector of each.
          first_token: the token whose state is the whole text's. ``enc``, the default of ``itm``, is BLIP's token
            ``[ENC]``, with which the matching head was trained and its retrieval results were published; ``cls``, the
            default of ``itc`` and the only choice there, is BERT's, which transformers' processor gives both heads.
          max_text_tokens: longer texts are cut off, both ends' tokens included; 35 when None, as published, or as many
            as the network has positions for.
          batch_size: pairs that each device works on at once. Chosen for the kind of device when None.
          table_rows: how many encoded images, and how many texts, are kept on the device. As many as fit into a fixed
            amount of memory, and at least one batch's, when None. An evaluation may have more of both.
          mesh: the devices, from `winobench.parallel.make_mesh`. All of this process when None, or those CPU devices
            whose memory holds a copy of the parameters each.

        Raises:
          InputError: when an option is not one of its choices, or the parts do not fit each other.
        """
        networks.check_made("model", model, "config")
        networks.check_made("processor", processor, "size")
        self.model = model
        self.tokenizer = tokenizer
        self.head = common.choice("head", head, HEADS)
        self.match_threshold = 0.0 if head == "itm" else None
        if first_token is None:
            first_token = "enc" if head == "itm" else "cls"
        self.first_token = common.choice("first_token", first_token, FIRST_TOKENS if head == "itm" else ("cls",))
        text = model.config.text_config
        if max_text_tokens is None:
            max_text_tokens = min(_MAX_TEXT_TOKENS, text.max_position_embeddings)
        self.max_text_tokens = common.positive("max_text_tokens", max_text_tokens)
        if not 3 <= self.max_text_tokens <= text.max_position_embeddings:
            raise InputError(
                f"max_text_tokens is {max_text_tokens}, but this model takes 3 to {text.max_position_embeddings}",
                code="out-of-range",
            )
        super().__init__(
            processor,
            common.mesh_for(functional.split(model)[1], mesh),
            example_text=np.zeros(self.max_text_tokens + 1, np.int32),
            batch_size=batch_size,
            rows=table_rows,
        )

    def _place(self, model: BlipForImageTextRetrieval) -> None:
        self._check_vocabulary(model)
        vision = model.config.vision_config
        processor: Any = self.processor
        if processor.size != (vision.image_size, vision.image_size):
            raise InputError(
                f"the image processor makes images of {processor.size[0]} x {processor.size[1]} pixels, but the network"
                f" takes {vision.image_size} x {vision.image_size}: check that both are of the same model",
                code="mismatched-parts",
            )
        self._params = self._image_encoder = self._text_encoder = None  # frees memory for the new ones
        structure, params = networks.place(model, self.mesh)
        self._compiled_for = _Step(structure, self.head, self.mesh)
        self._encode_with(
            NetworkFunction(structure, _encode_images, (processor, self.head)),
            NetworkFunction(structure, _encode_texts, (self.head,)),
            params,
        )

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: str = "float32",
        *,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        **options: Any,
    ) -> ItmHead:
        """Loads a model and makes it a scorer.

        Args:
          source: a name in `winobench.base.registry.MODELS`, which may decide the head, a folder as transformers'
            ``BlipForImageTextRetrieval`` and ``BlipProcessor`` write it, or a hub id such as
            ``Salesforce/blip-itm-base-coco``.
          dtype: of the parameters and of the encoders' computation: ``float32``, ``bfloat16`` or ``float16``.
          variant: of the weight files, such as ``fp16``.
          revision: branch, tag or commit of a hub id.
          allow_pickle: whether ``.bin`` files may be read, by a restricted unpickler.
          **options: of `ItmHead`.

        Raises:
          InputError: when files are missing or damaged, or an option is not one of its choices.
        """
        networks.check_options(cls, options)
        known = registry.MODELS.get(source) if isinstance(source, str) else None
        options = {**(known.options if known is not None else {}), **options}
        # Before the weights, which take long: a typing mistake is to show at once.
        common.choice("head", options.get("head", "itm"), HEADS)
        folder = sources.resolve(source, revision=revision)
        processor: Any = processor_files.read_image_processor(folder)
        tokenizer = encoder_layouts.read_bert_tokenizer(folder)
        model = models.load_model(
            BlipForImageTextRetrieval, folder, dtype=dtype, variant=variant, allow_pickle=allow_pickle
        )
        return cls(model, tokenizer, processor, **options)

    def fingerprint(self) -> dict[str, Any]:
        """Everything about this scorer that can change a score by more than rounding, ready for JSON.

        Not in it: the number of devices and the batch size, which change the last bits only.
        """
        snapshot = self.snapshot()
        return {
            "scorer": "itm_head",
            "scoring_version": SCORING_VERSION,
            "model": snapshot._model_fingerprint(),
            "dtype": snapshot.model.dtype.name,
            "head": self.head,
            "first_token": self.first_token,
            "max_text_tokens": self.max_text_tokens,
        }

    def _model_fingerprint(self) -> str:
        return networks.fingerprint(
            self.model,
            processor=dataclasses.asdict(self.processor),
            tokenizer=networks.tokenizer_identity(self.tokenizer),
        )

    def _step(self, images: Any, texts: Any, index: jax.Array) -> jax.Array:
        return _score_pairs(self._compiled_for, self._params, images, texts, index)

    def _tokenize(self, texts: Sequence[str]) -> Any:
        """Token ids and the number of them behind them: int32 [num_texts, tokens + 1]."""
        check_texts(texts)
        encoded = self.tokenizer(texts, truncation=True, max_length=self.max_text_tokens, padding=False)
        log_truncated(count_truncated(encoded), len(texts), self.max_text_tokens)
        rows = pairs.token_rows(encoded["input_ids"], self.tokenizer.pad_token_id, self.max_text_tokens)
        if self.first_token == "enc":
            rows[:, 0] = self.model.config.text_config.bos_token_id + 1
        return rows

    def _check_vocabulary(self, model: BlipForImageTextRetrieval) -> None:
        text = model.config.text_config
        if (count := tokenizer_files.num_ids(self.tokenizer)) > text.vocab_size:
            raise InputError(
                f"the tokenizer has {count} tokens, but the text encoder knows {text.vocab_size}: check"
                " that both are of the same model",
                code="mismatched-parts",
            )
        enc = None if text.bos_token_id is None else text.bos_token_id + 1
        if self.first_token == "enc" and (enc is None or enc >= text.vocab_size):
            raise InputError(
                f"the text encoder with {text.vocab_size} token ids has no [ENC], which comes after"
                f" bos_token_id={text.bos_token_id}: choose first_token='cls'",
                code="no-first-token",
            )
