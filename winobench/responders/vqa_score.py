"""VQAScore (Lin et al., 2024) of any model that judges options about images, such as one behind an API.

The score is P(yes): from the log-probabilities of the answer's first token, where the API gives them, otherwise the
share of yes among a few answers at temperature 1. The published code (t2v_metrics, ``gpt4v_model.py``) looks for the
token ``Yes`` alone, among the two most likely ones, and scores a failed call as 0. Here twenty tokens are looked at,
and a failed call has no score. Every answer is paid for, so it goes into a store of responses before it is used.
"""

from __future__ import annotations

import functools
import hashlib
import io
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from winobench import parallel
from winobench.base import caches, files, options
from winobench.base.errors import InputError
from winobench.base.registry import HOSTED, ModelRef
from winobench.base.texts import check_placeholder, checked_list, checked_texts
from winobench.data import images as image_files
from winobench.responders import hosted
from winobench.runs import asking, endings, records, responses
from winobench.runs.requests import ImageOptions, InputImage, Responder, Response, check_responder
from winobench.scorers import common, loading
from winobench.scorers.answer_scores import AnswerScorer

# Raised whenever a score that is computed here could change.
SCORING_VERSION = 2

QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
FOLDER = "answers"
"""The folder of the answers in a run's folder, and in it as ``images`` those that were not files."""

_YES_OR_NO = ("yes", "no")
# Pairs whose scores are returned together, for each call that may be under way.
_PAIRS_A_CALL = 16


class HostedVQAScore(AnswerScorer):
    """Scores how well texts fit images by asking a model, usually behind an API.

    Answers are kept in the folder of the run that evaluates it, otherwise in one of the cache's. Answers that are there
    are not asked for again, and neither are those that runs next to it have kept.

    A text that is a question with an answer is asked with the other answers that the texts give to it. Images that are
    not files are written as PNG. See `winobench.scorers.answer_scores.AnswerScorer` for the attributes.
    """

    def __init__(
        self,
        responder: Responder,
        *,
        question: str = QUESTION,
        score: str = "probability",
        folder: str | os.PathLike[str] | None = None,
    ):
        """Makes a model a scorer.

        Args:
          responder: answers `winobench.runs.requests.ImageOptions`.
          question: with ``{}`` once, where the text comes.
          score: one of `winobench.scorers.answer_scores.SCORES`.
          folder: where answers are kept until `set_cache_folder` names another. One of the cache's when None.

        Raises:
          InputError: the model does not judge options about images, or an option is not one of its choices.
        """
        check_responder(responder)
        if "picture_options" not in responder.kinds:
            raise InputError(
                f"the responder is a {type(responder).__name__}, which does not judge answers about images: name a"
                " vision-language model",
                code="kind-not-answered",
            )
        check_placeholder("question", question)
        self.question = question
        self._choose_score(score)
        self._responder = responder
        self._reuse = True
        name = f"{FOLDER}-{records.digest(self.fingerprint())[:12]}"
        self._folder = pathlib.Path(caches.folder()) / name if folder is None else pathlib.Path(folder)
        self._answers: list[asking.Answers] = []

    @classmethod
    def from_pretrained(
        cls, source: str, dtype: str = "float32", *, api: Mapping[str, Any] | None = None, **others: Any
    ) -> HostedVQAScore:
        """Sets up a hosted model.

        Args:
          source: the name of a hosted model, such as ``openai:MODEL`` (`winobench.responders.hosted`).
          dtype: ignored.
          api: options of `winobench.responders.hosted.HostedModel`. Those that are None are left out.
          **others: options of `HostedVQAScore`; ``variant``, ``revision``, ``allow_pickle`` and ``batch_size`` are for
            files of weights, and must be None or False.

        Raises:
          InputError: the model or its key is missing, or an option is not one of its choices.
        """
        del dtype
        others = loading.taken(ModelRef(source, HOSTED, source), loading.SCORERS[HOSTED], others)
        given = {option: value for option, value in (api or {}).items() if value is not None}
        return cls(hosted.HostedModel(source, **given), **others)

    def fingerprint(self) -> dict[str, Any]:
        """Everything about this scorer that can change a score, ready for JSON; ``model`` is the API's name for it."""
        return {
            **self._responder.fingerprint(),
            "scorer": "hosted_vqa_score",
            "scoring_version": SCORING_VERSION,
            "score": self.kind,
            "question": self.question,
        }

    def set_cache_folder(self, folder: pathlib.Path, *, reuse: bool = True) -> None:
        """See `winobench.scorers.base.Scorer`."""
        self._folder, self._reuse = pathlib.Path(folder) / FOLDER, reuse

    def spent(self) -> str:
        """Calls, tokens and cost of this scorer so far, in one line."""
        spent = asking.spent([(self._responder, [one for answers in self._answers for one in answers.received])])
        tokens = spent["tokens"] or {}
        read, written = (tokens.get(name) or 0 for name in ("input", "output"))
        cost = "" if spent["cost"] is None else f"; ${spent['cost']:,.4f}"
        calls = sum(answers.asked for answers in self._answers)
        return f"{calls:,} calls; {read:,} tokens read, {written:,} written{cost}"

    def score(self, images: Sequence[Any], texts: Sequence[str]) -> np.ndarray:
        """Scores every text for every image, float32 [num_images, num_texts]. Otherwise as `iter_scores`."""
        images, texts = checked_list("images", images), checked_texts(texts)
        return common.over_grid((len(images), len(texts)), lambda pairs: self.iter_scores(images, texts, pairs))

    def _iter_scores(
        self, images: list[Any], asked: list[tuple[str, str | None]], pairs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self._in_parts(images, self._choices(asked), pairs)

    def _choices(self, questions: list[tuple[str, str | None]]) -> list[tuple[str, tuple[str, ...], int]]:
        """The question of each text, the answers to choose from, and the number of the text's own answer."""
        answers: dict[str, set[str]] = {}
        for question, answer in questions:
            if answer is not None:
                answers.setdefault(question, set()).add(answer)
        choices: list[tuple[str, tuple[str, ...], int]] = []
        for question, answer in questions:
            if answer is None:
                choices.append((self.question.replace("{}", question), _YES_OR_NO, 0))
                continue
            choice = tuple(sorted(answers[question]))
            if len(choice) == 1:
                if answer.casefold() not in _YES_OR_NO:
                    raise InputError(
                        f"the question {options.quote(question)} comes with one answer: give the others, too",
                        code="cannot-answer",
                    )
                choice = tuple(answer if other == answer.casefold() else other for other in _YES_OR_NO)
            choices.append((question, choice, choice.index(answer)))
        return choices

    def _in_parts(
        self, images: list[Any], choices: list[tuple[str, tuple[str, ...], int]], pairs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        fingerprint = self._responder.fingerprint()
        size = _PAIRS_A_CALL * getattr(self._responder, "concurrency", 1)
        input_image = functools.cache(lambda number: self._image(images[number]))
        session = asking.Session(self._folder, parallel.process_number(), reuse=self._reuse, progress=False)
        answers = session.answers
        self._answers.append(answers)
        with session:
            for start in range(0, len(pairs), size):
                part = pairs[start : start + size].tolist()
                requests = [ImageOptions(input_image(image), *choices[text][:2]) for image, text in part]
                keys = [responses.key(fingerprint, request) for request in requests]
                wanted = dict(zip(keys, requests, strict=True))
                session.ask(self._responder, wanted)
                answers.failed |= session.missing(wanted)
                rows = [row for row, key in enumerate(keys) if key not in answers.failed]
                scores = [self._score_of(answers.read[keys[row]], choices[part[row][1]][2]) for row in rows]
                if rows:
                    yield start + np.asarray(rows), np.asarray(scores, np.float32)
        if failed := answers.failed:
            raise InputError(
                f"{len(failed):,} questions got no answer (first: {next(iter(failed.values()))}):"
                f" {endings.again(len(failed), len(answers.blocked))}",
                code="calls-failed",
            )

    def _score_of(self, response: Response, own: int) -> float:
        scores = [*(response.scores or ())]
        if self.kind == "probability":
            return math.exp(scores[own])
        if response.unlisted:  # an answer that is not listed has at most this, and no more than one that is listed
            listed = [score for score in scores if score > hosted.choices.LEAST]
            most = max(min([math.log(response.unlisted), *listed]), hosted.choices.LEAST)
            scores = [max(score, most) for score in scores]
        return scores[own] - max(score for number, score in enumerate(scores) if number != own)

    def _image(self, image: Any) -> InputImage:
        """An image's file and its SHA-256. Other images become files in the folder."""
        if isinstance(image, str | os.PathLike):
            path = files.user_path(image)
            return InputImage(path, image_files.file_sha256(path))
        content = io.BytesIO()
        image_files.open_image(image).save(content, "PNG")
        sha256 = hashlib.sha256(content.getvalue()).hexdigest()
        file = self._folder / "images" / f"{sha256}.png"
        if not file.exists():
            with files.writing(file.parent):
                file.parent.mkdir(parents=True, exist_ok=True)
                with files.atomic_path(file) as unfinished:
                    pathlib.Path(unfinished).write_bytes(content.getvalue())
        return InputImage(str(file), sha256)
