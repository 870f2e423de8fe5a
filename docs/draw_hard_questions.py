"""Draws some questions of the task clevr_hard, so that people can look at them.

python docs/draw_hard_questions.py    # writes docs/images/clevr_hard.png

A row is a group. Left is the picture of each question and right the candidates, the true one green and marked with a
``+``.
"""

from __future__ import annotations

import pathlib

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from winobench.clevr import questions, renderer, scenes

IMAGE = pathlib.Path(__file__).resolve().parent / "images" / "clevr_hard.png"
SIDE, WIDTH, COLUMNS = 128, 620, 2


def draw() -> np.ndarray:
    """The first questions of each group, uint8 [height, width, 3]."""
    asked = [questions.question(group, n) for group in questions.GROUPS for n in range(COLUMNS)]
    images = renderer.render(scenes.concatenate([question.scene for question in asked]), SIDE)
    page = Image.new("RGB", (COLUMNS * WIDTH, len(questions.GROUPS) * (SIDE + 4)), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(size=13)
    for number, (question, image) in enumerate(zip(asked, images, strict=True)):
        left, top = number % COLUMNS * WIDTH, number // COLUMNS * (SIDE + 4)
        page.paste(Image.fromarray(image), (left, top))
        pen.text((left + SIDE + 8, top), question.group.replace("_", " "), "black", font)
        for place, text in enumerate(question.texts):
            true = place == question.target
            line = (left + SIDE + 8, top + 18 * (place + 1))
            pen.text(line, f"{'+' if true else '-'} {text}", "#006400" if true else "#707070", font)
    return np.asarray(page)


if __name__ == "__main__":
    Image.fromarray(draw()).save(IMAGE, optimize=True)
