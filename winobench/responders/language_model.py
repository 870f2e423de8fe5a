"""Language models on this machine: log-likelihoods of options, and generated texts.

Requests are sorted into batches of few shapes, which all devices share. The keys and values of shared first turns
(`Options.prefix_turns`) are computed once. A prompt is read once for all of its options.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.base.errors import InputError
from winobench.checkpoints import encoder_layouts, language_models, sources
from winobench.responders import batches, decoding, prompts, shapes
from winobench.responders.answers import check_failed, check_kinds, is_numbers
from winobench.responders.shapes import Job, Shape
from winobench.runs.requests import Generation, Options, Raw, Response
from winobench.scorers import common, networks
from winobench.scorers.samples import check_seed

# Raised whenever an answer that is computed here could change by more than rounding.
ANSWER_VERSION = 1

# Batches that may be under way before a result is waited for: the device always has the next one available.
_BATCHES_AHEAD = 2


class LanguageModel(networks.HasLoadedModel):
    """Answers requests for options' log-likelihoods and for texts, with the weights at the beginning of each call."""

    kinds = frozenset({"options", "generation"})

    def __init__(
        self,
        loaded: language_models.LoadedLanguageModel,
        *,
        batch_size: int | None = None,
        chat_template: str = "auto",
        seed: int = 0,
    ):
        self._batch_size = None if batch_size is None else common.positive("batch_size", batch_size)
        self._seed = check_seed(seed)
        self.config = loaded.config
        self._use(loaded)
        self._template = chat_template
        self._longest = batches.longest(self.config)
        self.snapshot()

    def _place(self, loaded: language_models.LoadedLanguageModel) -> None:
        self._params: Any = None  # frees memory for the new ones
        structure, self._params = self._parameters(loaded)
        network, start = loaded.module(), getattr(loaded.config, "decoder_start_token_id", None)
        self.prompts = prompts.Prompts(
            loaded.tokenizer, template=self._template, separate=start is not None, stop_ids=loaded.stop_ids
        )
        self._int8 = getattr(network, "int8", False)
        self._program = decoding.Program(structure, self.mesh, network.dtype.name, start, loaded.stop_ids)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: str = "float32",
        *,
        mesh: Mesh | None = None,
        int8: bool = False,
        revision: str | None = None,
        allow_pickle: bool = False,
        **options: Any,
    ) -> LanguageModel:
        """Loads a model and makes it answer. ``int8``: whether most of the weights are rounded to 8 bits."""
        resolved = sources.resolve(source, revision=revision)
        kind = language_models.language_model_kind(resolved)
        if kind not in ("decoder", "t5"):
            raise InputError(
                f"{resolved} is a {kind} model, which writes no text: name a decoder (LLaMA, Qwen3) or a T5",
                code="wrong-kind-of-model",
            )
        load = language_models.load_decoder if kind == "decoder" else encoder_layouts.load_t5
        loaded = load(resolved, dtype, mesh=mesh, int8=int8, allow_pickle=allow_pickle)
        return cls(loaded, **options)

    def fingerprint(self) -> Mapping[str, Any]:
        """See `Responder`. Batch, devices and shared prefixes change an answer by rounding alone."""
        snapshot = self.snapshot()
        return {
            "scorer": "language_model",
            "version": ANSWER_VERSION,
            "model": snapshot._loaded.identity(),
            "dtype": snapshot._program.dtype,
            "int8": snapshot._int8,
            "prompts": snapshot.prompts.fingerprint(),
            "ends": list(self._program.ends),
            "start": self._program.start,
            "seed": self._seed,
        }

    def ask(self, requests: Sequence[Options | Generation]) -> Iterator[tuple[int, Raw]]:
        """See `Responder`. Short requests come first, and those that cannot be asked."""
        return self.snapshot()._ask(requests)

    def _ask(self, requests: Sequence[Options | Generation]) -> Iterator[tuple[int, Raw]]:
        check_kinds("a language model", requests, self.kinds)
        jobs = []
        for index, request in enumerate(requests):
            job = self._job(index, request)
            if isinstance(job, Job):
                jobs.append(job)
            else:
                yield index, job
        waiting: collections.deque[tuple[list[Job], Any]] = collections.deque()
        for started in self._started(jobs):
            waiting.append(started)
            if len(waiting) > _BATCHES_AHEAD:
                yield from self._finished(*waiting.popleft())
        while waiting:
            yield from self._finished(*waiting.popleft())

    def read(self, request: Options | Generation, raw: Raw) -> Response:
        check_failed(raw)
        tokens: dict[str, Any] = {name: raw.get(name) for name in ("input_tokens", "output_tokens")}
        if isinstance(request, Options):
            scores, num_tokens = raw.get("scores"), raw.get("num_tokens")
            if not (is_numbers(scores, len(request.options)) and is_numbers(num_tokens, len(request.options))):
                raise ValueError(f"an answer about {len(request.options)} options has other scores: {raw}")
            return Response(scores=tuple(map(float, scores)), num_tokens=tuple(map(int, num_tokens)), **tokens)
        if request.kind != "generation" or not isinstance(raw.get("text"), str):
            raise ValueError(f"this is not an answer to a request for {request.kind}: {raw}")
        return Response(text=raw["text"], finish=raw.get("finish"), **tokens)

    def _job(self, index: int, request: Options | Generation) -> Job | Raw:
        """A request in tokens, or why there can be no answer."""
        if isinstance(request, Options):
            encoded = self.prompts.encode_options(request.turns, request.options)
            prompt, options = encoded.context, encoded.options
            needed = len(prompt) + max(map(len, options))
            shared = min(len(self._prefix(request)), len(prompt) - 1)
            job = Job(index, prompt, max(0, shared), options)
        else:
            prompt = self.prompts.encode(request.turns)
            needed = len(prompt) + 1
            limit = common.positive("max_tokens", request.max_tokens)
            if self._longest is not None:
                limit = min(limit, self._longest - len(prompt))
            temperature = float(request.temperature)
            key = _draw_key(self._seed, request) if temperature > 0 else (0, 0)
            job = Job(index, prompt, len(self._prefix(request)), (), limit, temperature, key)
        if not prompt:
            return _error("no_prompt", "the prompt has no token that an option could follow")
        if self._longest is not None and needed > self._longest:
            return _error("too_long", f"{needed} tokens are more than the {self._longest} that this model can read")
        return job

    def _prefix(self, request: Options | Generation) -> tuple[int, ...]:
        # An encoder reads the whole prompt at once: nothing of it is the same before other questions.
        if self._program.start is not None:
            return ()
        return self.prompts.encode_prefix(request.turns, request.prefix_turns)

    def _groups(self, jobs: Sequence[Job]) -> Iterator[tuple[tuple[int, ...], list[Job]]]:
        """Jobs by the prefix, perhaps empty, that is computed once for all of them."""
        groups: dict[tuple[int, ...], list[Job]] = {}
        for job in jobs:
            groups.setdefault(job.prompt[: job.shared], []).append(job)
        alone = []
        for prefix, group in groups.items():
            if batches.is_shared(len(prefix), len(group)):
                yield prefix, group
            else:
                alone += group
        yield (), alone

    def _started(self, jobs: Sequence[Job]) -> Iterator[tuple[list[Job], Any]]:
        """Starts batch after batch: the jobs of each, and their results, which may still be under way."""
        for prefix, group in self._groups(jobs):
            shapes: dict[Shape, list[Job]] = {}
            for job in sorted(group, key=lambda job: (len(job.prompt), job.index)):
                widths = len(job.prompt) - len(prefix), list(map(len, job.options)), job.limit
                shape = batches.shape_of(*widths, is_sampled=job.temperature > 0, config=self.config)
                shapes.setdefault(shape, []).append(job)
            encoded = self._encoded(prefix) if prefix and shapes else None
            for shape, same in self._filled(shapes):
                rows = self._room.rows(shape, len(same))
                for start in range(0, len(same), rows):
                    batch = same[start : start + rows]
                    yield batch, self._run(shape, batch, rows, encoded, len(prefix))

    def _filled(self, shapes: Mapping[Shape, list[Job]]) -> Iterator[tuple[Shape, list[Job]]]:
        """Shapes, narrow ones first, and their jobs. What does not fill a batch waits for one twice as wide."""
        shapes = dict(sorted(shapes.items()))
        for shape, same in shapes.items():
            wider = [
                other
                for other in shapes
                if shape.prompt < other.prompt <= 2 * shape.prompt
                and dataclasses.replace(other, prompt=shape.prompt) == shape
            ]
            if wider:
                most = self._room.most_rows(shape)
                whole = len(same) // most * most
                shapes[wider[0]] = same[whole:] + shapes[wider[0]]
                same = same[:whole]
            if same:
                yield shape, same

    @functools.cached_property
    def _room(self) -> batches.Room:
        return batches.Room(
            self.mesh,
            batches.parameter_bytes(self._params),
            batches.bytes_a_token(self.config, self._program.dtype, self.mesh),
            self._batch_size,
        )

    def _encoded(self, prefix: tuple[int, ...]) -> Any:
        ids = np.zeros((1, batches.width_of(len(prefix), self.config)), np.int32)
        ids[0, : len(prefix)] = prefix
        whole = parallel.replicated(self.mesh)
        length = parallel.put(np.int32(len(prefix)), whole)
        return parallel.wait_if_cpu(
            self.mesh, decoding.encode_prefix(self._program, self._params, parallel.put(ids, whole), length)
        )

    def _run(self, shape: Shape, batch: list[Job], rows: int, prefix: Any, shared: int) -> Any:
        """Starts a batch. Copies of its first job fill it up, and write nothing."""
        put, filled = self._put, batch + batch[:1] * (rows - len(batch))
        prompts = decoding.Prompts(
            prefix,
            parallel.put(np.int32(shared), parallel.replicated(self.mesh)),
            put(shapes.table([job.prompt[shared:] for job in filled], shape.prompt)),
            put(np.asarray([len(job.prompt) - shared for job in filled], np.int32)),
        )
        if shape.options:
            options = [option for job in filled for option in job.options]
            table = shapes.table(options, shape.answer).reshape(rows, shape.options, shape.answer)
            lengths = np.asarray([len(option) for option in options], np.int32).reshape(rows, shape.options)
            results: Any = decoding.score_options(self._program, self._params, prompts, put(table), put(lengths))
        else:
            limits = np.zeros(rows, np.int32)
            limits[: len(batch)] = [job.limit for job in batch]
            draws = None
            if shape.sampled:
                keys = np.asarray([job.key for job in filled], np.uint32)
                draws = decoding.Draws(put(keys), put(np.asarray([job.temperature for job in filled], np.float32)))
            results = decoding.generate(self._program, self._params, prompts, put(limits), draws, width=shape.answer)
        for array in jax.tree.leaves(parallel.wait_if_cpu(self.mesh, results)):
            array.copy_to_host_async()
        return results

    def _finished(self, batch: list[Job], results: Any) -> Iterator[tuple[int, Raw]]:
        if batch[0].options:
            for job, scores in zip(batch, parallel.fetch(results), strict=False):
                yield job.index, _scored(job, scores)
            return
        texts, counts = map(parallel.fetch, results)
        for job, tokens, count in zip(batch, texts.tolist(), counts.tolist(), strict=False):
            yield job.index, self._written(job, tokens[:count])

    def _written(self, job: Job, tokens: list[int]) -> Raw:
        if decoding.NOT_FINITE in tokens:
            return _error("not_finite", f"the logits of token {len(tokens)} of the answer are not finite numbers")
        ended = bool(tokens) and tokens[-1] in self._program.ends
        return {
            "text": self.prompts.decode(tokens[:-1] if ended else tokens),
            "finish": "stop" if ended else "length",
            "input_tokens": len(job.prompt),
            "output_tokens": len(tokens),
        }


def _scored(job: Job, scores: np.ndarray) -> Raw:
    if not np.isfinite(scores).all():
        return _error("not_finite", f"the log-likelihoods are not finite numbers: {scores.tolist()}")
    return {
        "scores": scores.tolist(),
        "num_tokens": [len(option) for option in job.options],
        "input_tokens": len(job.prompt) + sum(map(len, job.options)),
        "output_tokens": 0,
    }


def _error(kind: str, message: str) -> Raw:
    return {"error": {"kind": kind, "message": message, "attempts": 1}}


def _draw_key(seed: int, request: Generation) -> tuple[int, int]:
    """The random numbers of a text: by the seed and the request alone. A longer text begins as a shorter one."""
    turns = [[turn.role, turn.text] for turn in request.turns]
    return shapes.random_key([seed, turns, float(request.temperature), request.sample])
