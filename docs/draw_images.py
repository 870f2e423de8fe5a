"""Makes the strip of docs/howto/generate_images.md from a run of images: a prompt of each category, models and seeds
next to each other.

python docs/draw_images.py RUN    # writes docs/images/images.png
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import winobench

IMAGE = pathlib.Path(__file__).resolve().parent / "images" / "images.png"
SIDE, GAP, HEADING = 96, 4, 36


def draw(run: winobench.Images) -> np.ndarray:
    """The first prompt of each category, uint8 [height, width, 3]."""
    numbers = [[prompt.category for prompt in run.prompts].index(category) for category in run.categories]
    columns = [(model.label, seed) for model in run.models for seed in run.seeds]
    width = len(columns) * (SIDE + GAP)
    page = Image.new("RGB", (width + 250, HEADING + len(numbers) * (SIDE + GAP)), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(size=13)
    for column, (label, seed) in enumerate(columns):
        pen.text((column * (SIDE + GAP), 0), f"{label}\nseed {seed}", "#505050", font)
    for row, number in enumerate(numbers):
        top = HEADING + row * (SIDE + GAP)
        for column, (label, seed) in enumerate(columns):
            image = Image.fromarray(run.image(run.record(label, seed, number)))
            page.paste(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC), (column * (SIDE + GAP), top))
        prompt = run.prompts[number]
        pen.text((width + 8, top + SIDE // 3), f"{prompt.text}\n", "black", font)
        pen.text((width + 8, top + SIDE // 3 + 18), prompt.category, "#707070", font)
    return np.asarray(page)


if __name__ == "__main__":
    Image.fromarray(draw(winobench.read_images(sys.argv[1]))).save(IMAGE, optimize=True)
