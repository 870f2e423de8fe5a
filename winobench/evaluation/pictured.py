"""Questions with pictures of one of their texts, and the captions that a model writes of these first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from winobench.base import files
from winobench.base.errors import InputError
from winobench.evaluation import endings, gallery
from winobench.models import holding
from winobench.runs import asking, responses
from winobench.runs.requests import Picture, PictureText, Request, Responder
from winobench.tasks.questions import TextQuestion, TextTask

SHOWN_QUESTIONS = 24
"""Questions a task of which the run keeps small pictures; of all runs the same ones."""

SIZE = 128
"""Longest side of these in pixels."""


def with_pictures(
    task: TextTask, questions: Sequence[TextQuestion], pictures: Mapping[str, Sequence[Picture]]
) -> list[TextQuestion]:
    """The questions with the images of their texts.

    Raises:
      InputError: a text has none.
    """
    found = []
    for question in questions:
        text = question.texts[task.pictured]
        if not pictures.get(text):
            raise InputError(
                f"there is no picture of the {task.pictured} {text!r} of question {question.id!r}: have it drawn",
                code="no-picture",
            )
        found.append(dataclasses.replace(question, pictures=tuple(pictures[text])))
    return found


class Captions:
    """Captions that are written before anything else is asked, each once.

    Attributes:
      captioner: who writes them.
      fingerprint: the captioner's.
      wanted: key -> request of all of them.
    """

    def __init__(self, captioner: Responder):
        """
        Args:
          captioner: answers requests of the kind ``picture_text``.

        Raises:
          InputError: it does not.
        """
        if PictureText.kind not in captioner.kinds:
            raise InputError(
                f"the captioner writes no texts about pictures (it does {', '.join(sorted(captioner.kinds))}): name one"
                " that does, such as blip2-flan-t5-xl",
                code="kind-not-answered",
            )
        self.captioner = holding.hold(captioner)
        self.fingerprint = dict(self.captioner.fingerprint())
        self.wanted: dict[str, Request] = {}

    def requests(self, question: TextQuestion) -> tuple[Request, ...]:
        """Those for a caption of each picture of a question."""
        return tuple(PictureText(picture) for picture in question.pictures)

    def keys(self, question: TextQuestion) -> tuple[str, ...]:
        """What the captions are found by in a run's store."""
        return tuple(responses.key(self.fingerprint, request) for request in self.requests(question))

    def write(
        self,
        questions: Sequence[TextQuestion],
        store: responses.ResponseStore,
        answers: asking.Answers,
        **how: Any,
    ) -> None:
        """Has the captions written that neither the store nor the runs next to it have. Incomplete ones fail.

        Args:
          questions: with their images.
          store: of the run's responses, open.
          answers: see `winobench.runs.asking.ask`, which takes ``how``.
        """
        for question in questions:
            self.wanted |= dict(zip(self.keys(question), self.requests(question), strict=True))
        asking.ask(self.captioner, store, self.wanted, answers, label="captions", **how)
        for key, request in self.wanted.items():
            if key in answers.read and (why := endings.why_incomplete(request, answers.read[key])):
                answers.failed[key] = why

    def added(self, question: TextQuestion, answers: asking.Answers) -> TextQuestion:
        """The question with its captions in one line each, None for each that has failed."""
        read = [None if key in answers.failed else answers.read[key] for key in self.keys(question)]
        captions = tuple(None if one is None else " ".join((one.text or "").split()) for one in read)
        return dataclasses.replace(question, captions=captions)


def picture_table(questions: Sequence[TextQuestion]) -> pa.Table:
    """Small images of some of the questions, for reports: rows (``image``: SHA-256 of its file, ``jpeg``).

    Raises:
      InputError: an image cannot be read.
    """
    # By their ids alone, so that runs that asked other models show the same ones.
    chosen = sorted(questions, key=lambda question: files.digest(question.id))[:SHOWN_QUESTIONS]
    shown = {picture.sha256: picture for question in chosen for picture in question.pictures}
    return pa.table(
        {
            "image": pa.array(list(shown), pa.string()),
            "jpeg": pa.array([gallery.thumbnail(picture.path, SIZE) for picture in shown.values()], pa.binary()),
        }
    )
