"""A scorer and tasks that need no model: errors are a function of what should decide them, and calls are counted."""

import hashlib
import json

import numpy as np
import pyarrow.parquet as pq

from winobench.metrics.association import Association, TargetPair
from winobench.scorers import samples
from winobench.tasks.base import Example, Task


class FakeScorer:
    """Errors in (0, 1) from a hash of image, text, sample, arguments and fingerprint; ``scored`` are all of them."""

    def __init__(self, *, weights="0", batch_size=7, stop_after=None, bad_text=None, **options):
        self.weights, self.batch_size = weights, batch_size
        self.stop_after, self.bad_text, self.options = stop_after, bad_text, options
        self.scored, self.batches = [], 0
        self.error = options.get("error", "squared_l2")

    def choose_timesteps(self, num_samples, seed=0, timesteps="uniform"):
        return samples.choose_timesteps(timesteps, num_samples, seed=seed)

    def fingerprint(self):
        return {"scorer": "fake", "scoring_version": 1, "model": self.weights, **self.options}

    def error_of(self, image, text, sample, salt):
        content = hashlib.sha256(image.tobytes()).hexdigest()
        options = {name: value for name, value in self.fingerprint().items() if name != "error"}
        key = f"{content}|{text}|{sample}|{salt}|{sorted(options.items())}"
        squared = np.float32(int(hashlib.sha256(key.encode()).hexdigest()[:6], 16) / 2**24)
        return np.sqrt(squared) if self.error == "l2" else squared

    def iter_errors(self, images, texts, triples, *, num_samples, seed=0, timesteps="uniform", noise=None):
        chosen = self.choose_timesteps(num_samples, seed, timesteps)
        assert triples.dtype == np.int32
        assert triples[:, 2].max() < len(chosen)
        for start in range(0, len(triples), self.batch_size):
            if self.stop_after is not None and self.batches >= self.stop_after:
                raise KeyboardInterrupt
            errors = []
            for image, text, sample in triples[start : start + self.batch_size].tolist():
                self.scored.append((images[image].tobytes(), texts[text], sample))
                errors.append(self.error_of(images[image], texts[text], sample, (seed, int(chosen[sample]))))
                if texts[text] == self.bad_text:
                    errors[-1] = np.float32("nan")
            self.batches += 1
            yield start + np.arange(len(errors)), np.array(errors, np.float32)


class Counting:
    """A scorer's identity without its work."""

    def __init__(self, scorer):
        self.fingerprint, self.error, self.choose_timesteps = scorer.fingerprint, scorer.error, scorer.choose_timesteps
        self.scored = 0

    def iter_errors(self, images, texts, triples, **named):
        self.scored += len(triples)
        yield np.arange(len(triples)), np.arange(len(triples), dtype=np.float32)


def recorded(workdir):
    """(image hash, text hash, sample) -> error of all parts. Each is recorded once."""
    found = {}
    for path in sorted((workdir / "errors").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            for number, error in enumerate(row["errors"]):
                key = row["image"], row["text"], row["first_sample"] + number
                assert key not in found
                found[key] = error
    return found


def examples(workdir, task):
    return pq.read_table(workdir / "examples" / f"{task}.parquet").to_pylist()


def config(workdir):
    return json.loads((workdir / "config.json").read_text())


def image(number, size=4):
    return np.full((size, size, 3), number, np.uint8)


def text_task(name="words", count=6, groups=("colour", "shape"), **changes):
    """One image, two texts; an image serves two examples, one of each group."""

    def load(data_dir, limit):
        for number in range(count if limit is None else min(count, limit)):
            for group in groups:
                yield Example(f"{number}-{group}", (image(number),), (f"{group} {number}", f"no {group}"), 0, (group,))

    fields = {"metric": "accuracy", "shape": (1, 2), "chance": {"accuracy": 0.5}, "load": load}
    return make_task(name, **{**fields, **changes})


def image_task(name="pictures", count=6, **changes):
    """Two images, one text."""

    def load(data_dir, limit):
        for number in range(count if limit is None else min(count, limit)):
            yield Example(f"{number}", (image(number), image(number + 100)), (f"colour {number}",), number % 2)

    return make_task(name, "accuracy", (2, 1), {"accuracy": 0.5}, load, images_compete=True, **changes)


def square_task(name="square", count=6, **changes):
    """Two images, two texts."""

    def load(data_dir, limit):
        for number in range(count if limit is None else min(count, limit)):
            images = (image(number), image(number + 100))
            yield Example(f"{number}", images, (f"colour {number}", f"other {number}"), None)

    chance = {"text": 0.25, "image": 0.25, "group": 1 / 6}
    return make_task(name, "winoground", (2, 2), chance, load, images_compete=True, **changes)


PHRASES = ("good", "nice", "bad", "evil")


def bias_task(name="bias", **changes):
    """Eight images of two groups, two phrases for each side."""

    def load(data_dir, limit):
        for number in range(8):
            yield Example(f"{number}", (image(number),), PHRASES, None, ("left" if number < 4 else "right",))

    association = Association((TargetPair("left-right", "left", "right", PHRASES[:2], PHRASES[2:]),))
    return make_task(name, "effect_size", (1, 4), {}, load, association=association, **changes)


def make_task(name, metric, shape, chance, load, **changes):
    fields = {
        "version": 1,
        "description": "a test's task",
        "ready": lambda data_dir: None,
        "images_compete": False,
        "data_fingerprint": lambda data_dir, limit: f"{name} {limit}",
    }
    return Task(**{**fields, "name": name, "metric": metric, "shape": shape, "chance": chance, "load": load, **changes})
