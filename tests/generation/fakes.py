"""A pipeline that draws at once: plain pictures, whose colour depends on seed, number and text."""

import hashlib
import types

import numpy as np

from winobench.base.errors import InputError
from winobench.generation.generate import Generator, generate_images
from winobench.prompts.prompt_files import Prompt
from winobench.runs.requests import Response

PROMPTS = [
    Prompt("one", "a red cube", "color", {"objects": [{"color": "red", "shape": "cube", "count": 1}]}),
    Prompt("two", "<b>a 'blue' & \"green\" sphere</b>", "shape"),
    Prompt("three", "zwei Würfel", ""),
]


def colour(model, seed, number, text):
    return list(hashlib.sha256(f"{model} {seed} {number} {text}".encode()).digest()[:3])


class FakePipeline:
    """A pipeline for `winobench.generation.generate`; notes what it has drawn, and fails after some pictures."""

    def __init__(self, name="fake", size=8, fails_after=None):
        self.fingerprint = hashlib.sha256(name.encode()).hexdigest()
        self.name, self.size, self.fails_after = name, size, fails_after
        self.schedule = types.SimpleNamespace(is_continuous=False, scheduler_class="DDIMScheduler")
        self.drawn, self.texts, self.more = [], [], {}

    def check_image_size(self, image_size=None):
        return image_size or self.size

    def generation_identity(self, guidance_scale, sampler, image_size):
        return {}

    def check_negative_prompt(self, negative_prompt, guidance_scale):
        if guidance_scale <= 1:
            raise InputError("there is no guidance: leave it out", code="no-effect")

    def generate(self, texts, *, num_steps, guidance_scale, sampler, seed, numbers, batch_size, image_size, **more):
        self.texts, self.more = [*self.texts, *texts], more
        images = np.zeros((len(texts), self.check_image_size(image_size), self.check_image_size(image_size), 3))
        for row, (text, one, number) in enumerate(zip(texts, seed, numbers, strict=True)):
            if self.fails_after is not None and len(self.drawn) >= self.fails_after:
                raise InputError("the device is on fire: wait")
            self.drawn.append((one, number))
            images[row] = colour(self.name, one, number, text)
        return images.astype(np.uint8)


def generator(pipeline, label=None, **fields):
    return Generator(label or pipeline.name, f"the {pipeline.name}", lambda: pipeline, **fields)


def draw(folder, *names, prompts=PROMPTS, **keywords):
    """A run of fake pipelines of these names, or pipelines."""
    pipelines = [FakePipeline(name) if isinstance(name, str) else name for name in names or ("fake",)]
    return generate_images([generator(pipeline) for pipeline in pipelines], prompts, folder, progress=False, **keywords)


class ImageJudge:
    """A judge whose probability of each answer is the image's content."""

    kinds = frozenset({"picture_starts", "picture_options"})

    def fingerprint(self):
        return {"responder": "image judge"}

    def ask(self, requests):
        for number, request in enumerate(requests):
            score = -(1 + int(request.image.sha256[:2], 16)) / 256
            yield number, {"scores": [score] * len(getattr(request, "options", "1"))}

    def read(self, request, raw):
        return Response(scores=tuple(raw["scores"]))
