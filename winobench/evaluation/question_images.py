"""Questions with images of one of their texts, and the captions that a model writes of these first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa

from winobench.base import files
from winobench.base.errors import InputError
from winobench.evaluation import gallery
from winobench.models import snapshots
from winobench.runs import asking, responses
from winobench.runs.requests import ImageText, InputImage, Request, Responder
from winobench.tasks.questions import TextQuestion, TextTask

# Questions per task of which the run keeps small images, the same ones in all runs, and the images' longest side.
_QUESTIONS, _SIZE = 24, 128


def with_images(
    task: TextTask, questions: Sequence[TextQuestion], images: Mapping[str, Sequence[InputImage]]
) -> list[TextQuestion]:
    """The questions with the images of their texts. Raises InputError for a text without any."""
    shown = task.illustrated
    if shown is None:
        what = f"task {task.name!r} does not say which text of a question its images show"
        raise InputError(f"{what}: set its `illustrated`, or choose a protocol without images", code="no-pictures")
    for question in questions:
        if not images.get(text := question.texts[shown]):
            what = f"the {shown} {text!r} of question {question.id!r}"
            raise InputError(f"{what} has no image: generate one", code="no-picture")
    return [dataclasses.replace(question, images=tuple(images[question.texts[shown]])) for question in questions]


class Captions:
    """Captions, which are written before anything else is asked, each once."""

    def __init__(self, captioner: Responder):
        if ImageText.kind not in captioner.kinds:
            raise InputError(
                f"the captioner writes no texts about images (it does {', '.join(sorted(captioner.kinds))}): name one"
                " that does, such as blip2-flan-t5-xl",
                code="kind-not-answered",
            )
        self.captioner = snapshots.snapshot(captioner)
        self.fingerprint = dict(self.captioner.fingerprint())
        self.wanted: dict[str, Request] = {}

    def requests(self, question: TextQuestion) -> tuple[Request, ...]:
        """Requests for a caption of each image of a question."""
        return tuple(ImageText(image) for image in question.images)

    def keys(self, question: TextQuestion) -> tuple[str, ...]:
        """The captions' keys in a run's store."""
        return tuple(responses.key(self.fingerprint, request) for request in self.requests(question))

    def write(self, questions: Sequence[TextQuestion], session: asking.Session) -> None:
        """Asks for captions that neither the store nor the runs next to it have. Incomplete ones fail."""
        for question in questions:
            self.wanted |= dict(zip(self.keys(question), self.requests(question), strict=True))
        session.ask(self.captioner, self.wanted, "captions")
        session.answers.failed |= session.missing(self.wanted)

    def added(self, question: TextQuestion, answers: asking.Answers) -> TextQuestion:
        """The question with its captions in one line each, None for each that has failed."""
        read = [None if key in answers.failed else answers.read[key] for key in self.keys(question)]
        captions = tuple(None if response is None else " ".join((response.text or "").split()) for response in read)
        return dataclasses.replace(question, captions=captions)


def image_table(questions: Sequence[TextQuestion]) -> pa.Table:
    """`winobench.evaluation.gallery.image_table` of some of the questions, for reports."""
    # By their ids alone, so that runs that asked other models show the same ones.
    chosen = sorted(questions, key=lambda question: files.digest(question.id))[:_QUESTIONS]
    return gallery.image_table({image.sha256: image.path for question in chosen for image in question.images}, _SIZE)
