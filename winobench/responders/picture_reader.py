"""A language model that sees, as a responder: captions, answers about pictures, how likely these are, and matches."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from winobench import parallel
from winobench.checkpoints import sources, vision_language
from winobench.checkpoints.vision_language import LoadedVisionLanguageModel
from winobench.responders.answers import check_failed, check_kinds, finite, is_numbers
from winobench.responders.captioner import Captioner
from winobench.responders.picture_matcher import PictureMatcher
from winobench.runs.requests import PictureMatch, PictureOptions, PictureText, Raw, Request, Response
from winobench.scorers.vqa_score import VQAScore

# Raised whenever an answer that is computed here could change by more than rounding.
ANSWER_VERSION = 1


class PictureReader:
    """Answers requests about images with a vision-language model, whose weights are there once.

    Attributes:
      kinds: texts, likelihoods of options, and, by VQAScore, matches.
    """

    kinds = frozenset({PictureText.kind, PictureOptions.kind, PictureMatch.kind})

    def __init__(self, loaded: LoadedVisionLanguageModel, *, batch_size: int | None = None, seed: int = 0):
        """Makes a model answer.

        Args:
          loaded: the model, on its devices. It computes in the dtype that it was loaded in.
          batch_size: images that each device works on at once. Chosen for the kind of device when None.
          seed: of texts that are drawn.
        """
        self._captioner = Captioner(loaded, batch_size=batch_size, seed=seed)
        self._matcher = PictureMatcher(VQAScore(loaded, batch_size=batch_size))

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
        batch_size: int | None = None,
        seed: int = 0,
    ) -> PictureReader:
        """Loads a model and makes it answer.

        Args:
          source: a name in `registry.MODELS`, a folder as transformers' model and processor write it, or a
            hub id such as ``Salesforce/instructblip-flan-t5-xxl``.
          dtype, mesh, int8, revision, allow_pickle: see `winobench.VQAScore.from_pretrained`.
          batch_size, seed: see `PictureReader`.

        Raises:
          InputError: files are missing or damaged, or it is no vision-language model.
        """
        resolved = sources.resolve(source, revision=revision)
        # Copies for other devices are made when it is known how large they are.
        first = parallel.make_mesh(jax.local_devices()[:1]) if mesh is None else parallel.as_mesh(mesh)
        loaded = vision_language.load_vision_language(resolved, dtype, mesh=first, int8=int8, allow_pickle=allow_pickle)
        if mesh is None:
            structure, params = loaded.parts()
            spread = parallel.default_mesh(params)
            network = nnx.split(structure.module(parallel.place_parameters(params, spread)))
            # The same values: the fingerprint is still theirs.
            loaded = dataclasses.replace(loaded, network=network, mesh=parallel.as_mesh(spread)).as_loaded()
        return cls(loaded, batch_size=batch_size, seed=seed)

    def held(self) -> PictureReader:
        """The same with the weights of this moment."""
        found = copy.copy(self)
        found._captioner, found._matcher = self._captioner.held(), self._matcher.held()
        return found

    def fingerprint(self) -> Mapping[str, Any]:
        """As declared."""
        return {
            "responder": "picture_reader",
            "answers": ANSWER_VERSION,
            **self._captioner.fingerprint(),
            "match": dict(self._matcher.fingerprint()),
        }

    def ask(self, requests: Sequence[Request]) -> Iterator[tuple[int, Raw]]:
        """As declared. Requests of one kind after those of the other, batch after batch.

        Raises:
          InputError: a request is of another kind, or an image cannot be read.
        """
        return self.held()._ask(requests)

    def _ask(self, requests: Sequence[Request]) -> Iterator[tuple[int, Raw]]:
        check_kinds("a language model that sees", requests, self.kinds)
        groups: dict[tuple, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(_alike(request), []).append(number)
        for (kind, *_), numbers in groups.items():
            some = [requests[number] for number in numbers]
            answer = {PictureText.kind: self._texts, PictureOptions.kind: self._options}.get(kind, self._matcher.ask)
            for place, raw in answer(some):
                yield numbers[place], raw

    def read(self, request: Request, raw: Raw) -> Response:
        """As declared."""
        check_failed(raw)
        if request.kind == PictureMatch.kind:
            return self._matcher.read(request, raw)
        if request.kind == PictureText.kind:
            if not isinstance(raw.get("text"), str):
                raise ValueError(f"an answer must hold a text, but is {raw}")
            return Response(text=raw["text"])
        if not is_numbers(raw.get("scores"), len(request.options)):
            raise ValueError(f"an answer about {len(request.options)} options must hold a score for each, but is {raw}")
        return Response(scores=tuple(map(float, raw["scores"])))

    def _texts(self, requests: Sequence[PictureText]) -> Iterator[tuple[int, Raw]]:
        first = requests[0]
        written = self._captioner.iter_texts(
            [request.picture.path for request in requests],
            [request.question for request in requests],
            max_tokens=first.max_tokens,
            temperature=first.temperature,
            sample=first.sample,
        )
        for number, text in written:
            yield number, {"text": text}

    def _options(self, requests: Sequence[PictureOptions]) -> Iterator[tuple[int, Raw]]:
        scored = self._captioner.iter_option_scores(
            [request.picture.path for request in requests],
            [request.question for request in requests],
            [request.options for request in requests],
        )
        for number, scores in scored:
            yield number, finite("scores", scores)


def _alike(request: Request) -> tuple:
    """What requests that are answered together have in common; their kind comes first."""
    if request.kind == PictureText.kind:
        return request.kind, request.max_tokens, request.temperature, request.sample
    return request.kind, len(request.options) if request.kind == PictureOptions.kind else 0
