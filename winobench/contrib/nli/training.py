"""Fine-tunes a BERT on natural language inference with two labels, entailment and contradiction.

Jin et al. 2024, "WinoViz", sections 3.1 and 3.4: encoders choose an option by the probability of entailment after
training on SNLI and ANLI, of which pairs with other labels are left out. The run's folder:

    <workdir>/config.json
              metrics.jsonl, tensorboard/     the numbers of training and of every validation
              checkpoints/                    the newest for going on, and the best by validation
              model/                          of the best validation, or of the newest checkpoint if missing:
                                              what `winobench.responders.text_encoders.NliEncoder` and transformers load
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import memory, options
from winobench.base.errors import InputError
from winobench.checkpoints import encoder_layouts, models
from winobench.contrib.nli import pair_files
from winobench.models import functional
from winobench.models.bert import BertForSequenceClassification
from winobench.responders import text_encoders
from winobench.training import loop, optimizers, tuning

if TYPE_CHECKING:
    from configs.nli import Optimizer, Settings

LABELS = (pair_files.ENTAILMENT, pair_files.CONTRADICTION)  # of the head's outputs
ACCURACY = "validation/accuracy"  # share of the validation pairs that are labelled right

# Batches within which pairs are sorted by length, so that pairs of one batch are about equally long.
_SORTED_BATCHES = 64


def free_fields(config: Settings) -> tuple[str, ...]:
    is_constant = config.optimizer.schedule == "constant" and not config.optimizer.warmup_share
    return tuning.free_fields(is_constant, "data.folder")


def default_name(config: Settings, spec: str, digest: str) -> str:
    return tuning.folder_name(config, spec, digest)


class Training(tuning.Tuning["Settings"]):
    best_metric = ACCURACY

    def __init__(self, config: Settings, workdir: pathlib.Path):
        # Cheap checks come before data and model are read.
        _optimizer(config.optimizer, config.num_steps or options.MAX_STEPS)
        dtype = models.as_dtype(config.dtype)
        super().__init__(config, workdir)
        sets = options.comma_separated(config.data.sets)
        pairs = pair_files.read_pairs(config.data.folder, sets, "train", LABELS)
        validation = pair_files.read_pairs(config.data.folder, sets, "dev", LABELS) if config.validate_every else []

        model, self._tokenizer = encoder_layouts.load_bert_for_tuning(
            config.model,
            LABELS,
            seed=config.seed,
            variant=config.variant,
            revision=config.revision,
            allow_pickle=config.allow_pickle,
        )
        self._bert = model.config
        self._check_size()
        self._pairs = PairSet(pairs, self._tokenizer, config.data.max_tokens)
        self._pairs.check_size(config.batch_size)
        self.num_steps = self.count_steps(len(self._pairs))
        # Computed in another dtype than it is kept in.
        abstract = nnx.eval_shape(
            lambda: BertForSequenceClassification(
                self._bert, dtype=dtype, param_dtype=jnp.float32, rngs=models._SameKey(jax.random.key(0))
            )
        )
        self._graphdef = nnx.graphdef(abstract)
        params = nnx.to_pure_dict(nnx.state(model))
        optimizer = _optimizer(config.optimizer, self.num_steps)
        self._step = loop.make_step(
            functools.partial(_loss, self._graphdef),
            optimizer,
            seed=config.seed,
            ema_decay=None,
            accumulate=config.accumulate,
            mesh=self._mesh,
        )
        self._state = loop.create_state(params, optimizer, average=False)
        if validation:
            self._validation = Validation(validation, self._tokenizer, self._graphdef, config, self._mesh)

    def _check_size(self) -> None:
        """Refuses pairs that the model does not take, or micro-batches that no device holds."""
        config = self._config
        longest = self._bert.max_position_embeddings
        if not 3 < config.data.max_tokens <= longest:
            raise InputError(
                f"--data.max_tokens is {config.data.max_tokens}, but this model takes 4 to {longest} tokens",
                code="out-of-range",
            )
        rows = config.batch_size // (config.accumulate * self._mesh.size)
        memory.check(
            f"a micro-batch of {rows:,} pairs of {config.data.max_tokens:,} tokens",
            # Read and written by a layer.
            2 * 4 * rows * config.data.max_tokens * self._bert.hidden_size,
            "lower config.batch_size or config.data.max_tokens, or raise config.accumulate",
            self._mesh.devices.flat[0],
        )

    def _batches_from(self, first: int) -> Iterator[loop.Batch]:
        rows = loop.local_rows(self._config.batch_size)
        for batch in self._pairs.batches(self._config.batch_size, self._config.seed, first):
            yield {name: array[rows] for name, array in batch.items()}

    def measure(self, state: loop.TrainState) -> dict[str, float]:
        return self._validation(state.params)

    def export_best(self, state: loop.TrainState) -> None:
        """Writes ``<workdir>/model``, from the first process."""
        # Every process has a part in this where the parameters are spread over several.
        params = jax.tree.map(parallel.fetch, state.params)
        if jax.process_index() == 0:
            model = nnx.merge(self._graphdef, params)
            encoder_layouts.save_bert(self._workdir / "model", model, self._tokenizer)

    def report(self) -> str:
        lines = []
        if self._best is not None:
            step, value = self._best
            lines.append(f"validation accuracy {100 * value:.1f}% at step {step}, the best")
        folder = self._workdir / "model"
        command = tuning.evaluation_command("winoviz", {"model": folder})
        return "\n".join([*lines, f"exported {folder}: judge it with", f"  {command}"])


run = Training.run


class PairSet:
    """Tokenised pairs with labels in ``LABELS``, truncated to ``max_tokens``."""

    def __init__(self, pairs: Sequence[pair_files.Pair], tokenizer: Any, max_tokens: int):
        self._rows = text_encoders.pack(tokenizer, [(pair.premise, pair.hypothesis) for pair in pairs], max_tokens)
        self._labels = np.asarray([LABELS.index(pair.label) for pair in pairs], np.int32)
        self._lengths = np.asarray([len(row) - 1 for row in self._rows])
        self._buckets = text_encoders.buckets(max_tokens)

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, numbers: Sequence[int], size: int) -> loop.Batch:
        """Some pairs at the shortest length that holds them all, and rows of zeros up to a size.

        Returns ``rows`` int32 [size, bucket + 2], as in `text_encoders.padded`, and ``labels`` int32 [size].
        """
        longest = max(self._lengths[number] for number in numbers)
        bucket = next(bucket for bucket in self._buckets if longest <= bucket)
        rows, labels = np.zeros((size, bucket + 2), np.int32), np.zeros(size, np.int32)
        for row, number in enumerate(numbers):
            rows[row] = text_encoders.padded(self._rows[number], bucket)
            labels[row] = self._labels[number]
        return {"rows": rows, "labels": labels}

    def check_size(self, size: int) -> None:
        if len(self) < size:
            raise InputError(
                f"there are {len(self)} pairs to train on, fewer than config.batch_size={size}: lower it",
                code="too-few-examples",
            )

    def by_length(self) -> list[int]:
        """The numbers of all pairs, the shortest first."""
        return np.argsort(self._lengths, kind="stable").tolist()

    def batches(self, size: int, seed: int, first: int) -> Iterator[loop.Batch]:
        """Batches without end from a number on. Batch n depends on (size, seed, n) alone.

        Every epoch has its own order, and drops an incomplete last batch. Pairs of a batch are about equally long: long
        segments of the order are sorted by length, cut into batches, and these are shuffled.
        """
        self.check_size(size)
        count = len(self) // size
        epoch, number = divmod(first, count)
        while True:
            for numbers in self._epoch(size, seed, epoch)[number:]:
                yield self.batch(numbers, size)
            epoch, number = epoch + 1, 0

    def _epoch(self, size: int, seed: int, epoch: int) -> np.ndarray:
        """The pairs of each batch: int [batches, size]."""
        rng = np.random.default_rng((seed, epoch))
        order = rng.permutation(len(self))[: len(self) // size * size]
        segment = size * _SORTED_BATCHES
        parts = [order[start : start + segment] for start in range(0, len(order), segment)]
        order = np.concatenate([part[np.argsort(self._lengths[part], kind="stable")] for part in parts])
        return rng.permutation(order.reshape(-1, size))


class Validation:
    """Share of the pairs that a model labels right, by part (``limit`` pairs of each, evenly chosen) and over all."""

    def __init__(
        self,
        pairs: Sequence[pair_files.Pair],
        tokenizer: Any,
        graphdef: Any,
        config: Settings,
        mesh: Mesh,
    ):
        parts: dict[str, list[pair_files.Pair]] = {}
        for pair in pairs:
            parts.setdefault(pair.part, []).append(pair)
        chosen = [pair for part in parts.values() for pair in _evenly(part, config.validation.limit)]
        self._pairs = PairSet(chosen, tokenizer, config.data.max_tokens)
        self._parts = np.asarray([pair.part for pair in chosen])
        self._graphdef = graphdef
        self._size = config.validation.batch_size * mesh.size
        self._mesh = mesh

    def __call__(self, params: Any) -> dict[str, float]:
        """``validation/accuracy`` over all pairs, ``validation/<part>`` of each part."""
        order = self._pairs.by_length()
        is_right = np.zeros(len(order), bool)
        rows = parallel.split_rows(self._mesh)
        for start in range(0, len(order), self._size):
            numbers = order[start : start + self._size]
            batch = self._pairs.batch(numbers, self._size)
            found = parallel.fetch(_predict(self._graphdef, params, parallel.put(batch["rows"], rows)))
            is_right[numbers] = (found == batch["labels"])[: len(numbers)]
        by_part = {f"validation/{part}": is_right[self._parts == part] for part in dict.fromkeys(self._parts.tolist())}
        return {ACCURACY: float(is_right.mean())} | {name: float(part.mean()) for name, part in by_part.items()}


def _evenly(items: Sequence[Any], limit: int | None) -> list[Any]:
    if limit is None or limit >= len(items):
        return list(items)
    return [items[number * len(items) // limit] for number in range(limit)]


@functools.partial(jax.jit, static_argnames="graphdef")
def _predict(graphdef: Any, params: Any, rows: jax.Array) -> jax.Array:
    """The most probable label of each pair: int32 [B]."""
    model = nnx.merge(graphdef, params)
    with functional.precision(model.dtype):
        return jnp.argmax(text_encoders.classify(model, rows), axis=-1)


def _loss(graphdef: Any, params: Any, batch: Mapping[str, jax.Array], key: jax.Array) -> tuple[jax.Array, Any]:
    """Cross-entropy in nats, and the share of the pairs that is labelled right."""
    model = nnx.merge(graphdef, params)
    with functional.precision(model.dtype):
        logits = text_encoders.classify(model, batch["rows"], key=key)
    right = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["labels"][:, None], axis=-1)
    return -jnp.mean(right), {"accuracy": jnp.mean(jnp.argmax(logits, axis=-1) == batch["labels"])}


def _optimizer(settings: Optimizer, num_steps: int) -> Any:
    return optimizers.from_settings(settings, num_steps, warmup_steps=round(settings.warmup_share * num_steps))
