"""Tasks, a metric and a scorer in a package of their own: is a picture bright or dark?"""

import dataclasses

import numpy as np

from winobench import Example, Task
from winobench.metrics import ACCURACY, Outcome

TEXTS = ("a bright picture", "a dark picture")


def load(data_dir, limit):
    """Grey pictures from black to white, of which those in the upper half are bright."""
    for level in range(0, 256, 16)[:limit]:
        is_dark = level < 128
        yield Example(
            f"level-{level}", (np.full((8, 8, 3), level, np.uint8),), TEXTS, int(is_dark), ("dark",) * is_dark
        )


TASK = Task(
    name="brightness",
    version=1,
    description="Is a plain grey picture bright or dark?",
    metric="accuracy",
    shape=(1, 2),
    chance={"accuracy": 0.5},
    load=load,
    ready=lambda data_dir: None,
    images_compete=False,
    data_fingerprint=lambda data_dir, limit: f"1 {limit}",
    count=lambda data_dir: 16,
)


def judge(scores, targets):
    """The opposite of accuracy: an example counts where the right candidate is not the best one."""
    right = ACCURACY.judge(scores, targets)["accuracy"]
    return {"failures": Outcome(~right.correct, right.tie)}


FAILURES = dataclasses.replace(
    ACCURACY,
    name="failures",
    judge=judge,
    headline="failures",
    shown=("failures",),
    chance=lambda shape: {"failures": 1 - 1 / max(shape)},
    higher_is_better=False,
)

TASKS = [TASK, dataclasses.replace(TASK, name="brightness_failures", metric="failures", chance={})]


class BrightnessScorer:
    """Knows one word of each kind."""

    def score(self, images, texts):
        """[num_images, num_texts], higher = better match."""
        brightness = np.array([np.asarray(image).mean() / 127.5 - 1 for image in images])
        meaning = np.array([("bright" in text) - float("dark" in text) for text in texts])
        return brightness[:, None] * meaning[None, :]

    def fingerprint(self):
        """What its scores depend on."""
        return {"scorer": "brightness", "scoring_version": 1}
