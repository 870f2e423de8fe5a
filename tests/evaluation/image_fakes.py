"""A responder that sees: answers depend on picture and question alone, and calls are counted."""

import hashlib

import numpy as np

from winobench.runs.requests import CUT_OFF, Response


def draw(*parts):
    """A number in [0, 1) that depends on these alone."""
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:8], 16) / 2**32


class Seer:
    """Answers what is asked about pictures, and, if it is to, questions in words."""

    def __init__(self, *kinds, name="seer", stop_after=None, failing=(), cut=()):
        self.kinds, self.name = frozenset(kinds), name
        self.stop_after, self.failing, self.cut = stop_after, failing, cut
        self.asked = []

    def fingerprint(self):
        return {"scorer": "seer", "name": self.name, "model": self.name}

    def ask(self, requests):
        for index, request in enumerate(requests):
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(request)
            about = request.image.sha256 if hasattr(request, "image") else request.turns[-1].text
            if about in self.failing:
                yield index, {"error": {"kind": "server", "message": "status 500", "attempts": 1}}
                continue
            if about in self.cut:
                yield index, {"partial": "a caption of"}
                continue
            options = getattr(request, "options", getattr(request, "texts", ()))
            if options:
                yield index, {"scores": [draw(self.name, about, option) for option in options]}
            elif getattr(request, "question", None) == "":
                yield index, {"text": f"a caption of {about[:6]}"}
            else:
                yield index, {"text": f"Option {1 + round(draw(self.name, about))}"}

    def read(self, request, raw):
        if "partial" in raw:
            return Response(partial=raw["partial"], ending=CUT_OFF)
        return Response(text=raw.get("text"), scores=tuple(raw["scores"]) if "scores" in raw else None)


class Brightness:
    """A scorer without a fingerprint's details: how near a picture's brightness is to a text's length."""

    def __init__(self):
        self.calls = 0

    def fingerprint(self):
        return {"scorer": "brightness", "model": "0" * 64}

    def score(self, images, texts):
        self.calls += 1
        light = np.array([np.asarray(image, np.float64).mean() for image in images])
        return -np.abs(light[:, None] - np.array([len(text) for text in texts])).astype(np.float32)


class Noisy:
    """A scorer with samples; each error is of picture, text and sample. Batches are cut across all triples."""

    error = "squared_l2"

    def __init__(self, batch=5):
        self.batch, self.computed = batch, []

    def fingerprint(self):
        return {"scorer": "noisy", "model": "1" * 64}

    def choose_timesteps(self, num_samples, seed, timesteps):
        return np.arange(num_samples)

    def iter_errors(self, images, texts, triples, *, num_samples, seed, timesteps):
        order = np.argsort(triples[:, 2], kind="stable")  # sample by sample: nothing is whole before the end
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            self.computed += [(str(images[i]), texts[t], int(s)) for i, t, s in triples[rows]]
            yield rows, np.array([draw(images[i], texts[t], s) for i, t, s in triples[rows].tolist()], np.float32)
