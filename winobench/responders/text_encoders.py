"""Text encoders that answer requests: BERT after NLI fine-tuning, and the text tower of CLIP.

WinoViz (Table 3) judges encoders by the probability of entailment. CLIP's cosine is ours: the paper has no such number.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.base.errors import InputError
from winobench.base.texts import count_truncated, log_truncated
from winobench.checkpoints import tokenizer_files
from winobench.engine import tables
from winobench.engine.limits import Limit
from winobench.models import functional, snapshots
from winobench.models.bert import BertForSequenceClassification
from winobench.models.snapshots import HasSnapshots
from winobench.responders.answers import check_failed, check_kinds, finite, is_numbers
from winobench.runs.requests import Entailment, Raw, Response, Similarity
from winobench.scorers import common, networks
from winobench.scorers.contrastive import Contrastive

# Raised whenever an answer that is computed here could change by more than rounding.
ANSWER_VERSION = 1

ENTAILMENT = "entailment"
"""Name, in any case, of the label whose probability is the score."""

BUCKETS = (32, 64, 128, 256, 512)
"""Lengths in tokens that pairs are padded to. A network is compiled once for each that occurs."""

# Tokens that each device works on at once, on accelerators and on CPUs.
_TOKENS = Limit(1 << 15, cpu=1 << 11)
# Pairs that are tokenized together.
_PAIRS_AT_ONCE = 1 << 13
# Requests whose texts CLIP encodes together.
_REQUESTS_AT_ONCE = 256


def pack(tokenizer: Any, pairs: Sequence[tuple[str, str]], longest: int) -> list[np.ndarray]:
    """``[CLS] first [SEP] second [SEP]`` of each pair, int32 [tokens + 1]: length of the first part, then the ids."""
    packed: list[np.ndarray] = []
    truncated = 0
    # What the tokenizer returns takes many times the memory of the ids.
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        first, second = (list(texts) for texts in zip(*pairs[start : start + _PAIRS_AT_ONCE], strict=True))
        encoded = tokenizer(first, second, truncation="longest_first", max_length=longest, return_token_type_ids=True)
        truncated += count_truncated(encoded)
        packed += [
            np.asarray([len(ids) - sum(kinds), *ids], np.int32)
            for ids, kinds in zip(encoded["input_ids"], encoded["token_type_ids"], strict=True)
        ]
    log_truncated(truncated, len(pairs), longest, "pairs")
    return packed


def buckets(longest: int) -> tuple[int, ...]:
    """The lengths that pairs of up to ``longest`` tokens are padded to, ascending."""
    return (*(bucket for bucket in BUCKETS if bucket < longest), longest)


def padded(packed: np.ndarray, bucket: int) -> np.ndarray:
    """A result of `pack` at one length: int32 [bucket + 2], first the tokens of the first text, then all tokens."""
    row = np.zeros(bucket + 2, np.int32)
    row[0], row[1] = packed[0], len(packed) - 1
    row[2 : len(packed) + 1] = packed[1:]
    return row


def classify(model: BertForSequenceClassification, rows: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
    """Logits, float32 [B, number of labels], of results of `padded`, int32 [B, bucket + 2], or of rows of zeros."""
    ids, first, lengths = rows[:, 2:], rows[:, 0], jnp.maximum(rows[:, 1], 1)
    positions = jnp.arange(ids.shape[1])
    second = (positions >= first[:, None]) & (positions < lengths[:, None])
    kinds = jnp.minimum(second.astype(jnp.int32), model.config.type_vocab_size - 1)
    return model(ids, lengths, kinds, key=key)


class NliEncoder(HasSnapshots):
    """Answers how probable it is that a premise entails hypotheses, with a BERT that was fine-tuned for NLI.

    A raw answer holds the logits of all labels, so that it can be read again in another way.
    """

    kinds = frozenset({"entailment"})

    def __init__(
        self,
        model: BertForSequenceClassification,
        tokenizer: Any,
        *,
        batch_size: int | None = None,
        mesh: Mesh | None = None,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.max_tokens = model.config.max_position_embeddings
        self._entailment = entailment_label(model.config.labels)
        self._batch_size = None if batch_size is None else common.positive("batch_size", batch_size)
        self.mesh = common.mesh_for(functional.split(model)[1], mesh)
        self.snapshot()

    def _place(self, model: BertForSequenceClassification) -> None:
        tokenizer_files.check_size(self.tokenizer, model.config.vocab_size, "of this encoder")
        self._params: Any = None  # frees memory for the new ones
        structure, self._params = networks.place(model, self.mesh)
        self._function = networks.NetworkFunction(structure, classify)

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
    ) -> NliEncoder:
        from winobench.checkpoints import encoder_layouts

        model, tokenizer = encoder_layouts.load_bert(
            source, dtype=dtype, variant=variant, revision=revision, allow_pickle=allow_pickle
        )
        return cls(model, tokenizer, **options)

    def fingerprint(self) -> dict[str, Any]:
        """See `Responder`. Number of devices and batch size change the last bits only."""
        snapshot = self.snapshot()
        model = snapshot.model
        # SHA-256 over weights, config and tokenizer
        identity = networks.fingerprint(model, tokenizer=networks.tokenizer_identity(snapshot.tokenizer))
        return {
            "responder": "nli_encoder",
            "version": ANSWER_VERSION,
            "model": identity,
            "dtype": model.dtype.name,
        }

    def ask(self, requests: Sequence[Entailment]) -> Iterator[tuple[int, Raw]]:
        """See `Responder`. Short pairs come first. A pair that occurs several times is computed once."""
        return self.snapshot()._ask(requests)

    def _ask(self, requests: Sequence[Entailment]) -> Iterator[tuple[int, Raw]]:
        check_kinds("an NLI encoder", requests, self.kinds)
        pairs = [(request.premise, hypothesis) for request in requests for hypothesis in request.hypotheses]
        distinct, number_of = common.distinct(pairs)
        ends = np.cumsum([len(request.hypotheses) for request in requests])
        # The distinct pairs of each request, and for each request how many of them are yet to come.
        needed = [list(numbers) for numbers in np.split(number_of, ends[:-1])] if requests else []
        waiting = [len(set(numbers)) for numbers in needed]
        users: list[list[int]] = [[] for _ in distinct]
        for index, numbers in enumerate(needed):
            for number in sorted(set(numbers)):
                users[number].append(index)
        logits: dict[int, list[float]] = {}
        for number, values in self._logits([pairs[position] for position in distinct]):
            logits[number] = [float(value) for value in values]
            for index in users[number]:
                waiting[index] -= 1
                if not waiting[index]:
                    yield index, finite("logits", [logits[number] for number in needed[index]])

    def read(self, request: Entailment, raw: Raw) -> Response:
        """The probability of entailment for each hypothesis, by a softmax over all labels."""
        check_failed(raw)
        rows = raw.get("logits")
        count, width = len(request.hypotheses), len(self.model.config.labels)
        if not (isinstance(rows, list) and len(rows) == count and all(is_numbers(row, width) for row in rows)):
            raise ValueError(f"an answer about {count} hypotheses must hold {width} logits for each, but is {raw}")
        # In float64, where also nearly certain answers differ.
        values = np.asarray(rows, np.float64)
        weights = np.exp(values - values.max(axis=1, keepdims=True))
        scores = weights[:, self._entailment] / weights.sum(axis=1)
        return Response(scores=tuple(map(float, scores)))

    def _logits(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[int, np.ndarray]]:
        """(number of the pair, float32 [number of labels]) for each, shortest first, as they are computed."""
        packed = pack(self.tokenizer, pairs, self.max_tokens)
        order = sorted(range(len(packed)), key=lambda number: len(packed[number]))
        shortest = 0
        for bucket in buckets(self.max_tokens):
            numbers = [number for number in order if shortest < len(packed[number]) - 1 <= bucket]
            shortest = bucket
            if not numbers:
                continue
            batch_size = self._batch_size or max(1, _TOKENS.on(self.mesh) // bucket)
            encoder = tables.Encoder(self._function, self._params, self.mesh, batch_size)
            for start in range(0, len(numbers), encoder.batch_size):
                part = numbers[start : start + encoder.batch_size]
                values = parallel.fetch(encoder.encode([padded(packed[number], bucket) for number in part]))
                yield from zip(part, values, strict=False)


def entailment_label(labels: Sequence[str]) -> int:
    numbers = [number for number, label in enumerate(labels) if label.lower() == ENTAILMENT]
    if len(numbers) != 1:
        raise InputError(
            f"the labels of this model (id2label in its config.json) are {', '.join(labels)}, but one must be called"
            f" {ENTAILMENT}: name a model that was fine-tuned for NLI, or correct the config",
            code="bad-labels",
        )
    return numbers[0]


class ClipText:
    """Answers how similar texts are, by the cosine of CLIP's text vectors."""

    kinds = frozenset({"similarity"})

    def __init__(self, scorer: Contrastive):
        self.scorer = scorer

    @classmethod
    def from_pretrained(cls, source: str | os.PathLike[str], dtype: str = "float32", **options: Any) -> ClipText:
        return cls(Contrastive.from_pretrained(source, dtype, **options))

    def snapshot(self) -> ClipText:
        snapshot = copy.copy(self)
        snapshot.scorer = snapshots.snapshot(self.scorer)
        return snapshot

    def fingerprint(self) -> dict[str, Any]:
        return {"responder": "clip_text", "version": ANSWER_VERSION, **self.scorer.fingerprint()}

    def ask(self, requests: Sequence[Similarity]) -> Iterator[tuple[int, Raw]]:
        return self.snapshot()._ask(requests)

    def _ask(self, requests: Sequence[Similarity]) -> Iterator[tuple[int, Raw]]:
        check_kinds("a CLIP text encoder", requests, self.kinds)
        for start in range(0, len(requests), _REQUESTS_AT_ONCE):
            part = requests[start : start + _REQUESTS_AT_ONCE]
            texts = list(dict.fromkeys(text for request in part for text in (request.text, *request.others)))
            vectors = dict(zip(texts, self.scorer.encode_texts(texts).astype(np.float64), strict=True))
            for index, request in enumerate(part, start):
                cosines = [float(vectors[request.text] @ vectors[other]) for other in request.others]
                yield index, finite("cosines", cosines)

    def read(self, request: Similarity, raw: Raw) -> Response:
        check_failed(raw)
        cosines = raw.get("cosines")
        if not is_numbers(cosines, len(request.others)):
            raise ValueError(f"an answer about {len(request.others)} texts must hold a cosine for each, but is {raw}")
        return Response(scores=tuple(map(float, cosines)))
