"""Makes the figure of README.md: generated images with their scores, and the accuracies of runs.

winobench eval --model=clevr-tiny,clevr-flow \
    --tasks=clevr,clevr_image,clevr_winoground,clevr_hard --workdir=runs/result
python docs/draw_result.py runs/result/clevr-tiny runs/result/clevr-flow    # writes docs/images/result.png
"""

from __future__ import annotations

import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import winobench
from winobench.report.figures import COLOURS
from winobench.runs.run import Run

FIGURE = pathlib.Path(__file__).resolve().parent / "images" / "result.png"
TEXTS = ("red cube, blue sphere", "blue cube, red sphere")
PROMPTS = (
    "On the left is a red cube and on the right is a blue sphere.",
    "On the left is a blue cube and on the right is a red sphere.",
)
ROWS = (
    ("clevr", "accuracy", "clevr:\nwhich text"),
    ("clevr_image", "accuracy", "clevr_image:\nwhich image"),
    ("clevr_winoground", "group", "clevr_winoground:\nboth"),
    ("clevr_hard", "accuracy", "clevr_hard:\nwhich hard text"),
)


def draw(runs: list[Run]) -> plt.Figure:
    """The figure: on the left two images and the scores of two texts, on the right the runs' accuracies."""
    figure = plt.figure(figsize=(9, 3.2), dpi=120, layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.1, 1))
    pipeline = winobench.StableDiffusion.from_pretrained("clevr-tiny")
    images = pipeline.generate(list(PROMPTS), guidance_scale=3.0)
    scores = winobench.DiffusionITM(pipeline).score(list(images), list(PROMPTS), num_samples=32)
    for axes, image, row in zip(left.subplots(1, 2), images, scores, strict=True):
        axes.imshow(image)
        axes.set(xticks=[], yticks=[])
        lines = [f"score {score:+.0f}: {text}" for score, text in zip(row, TEXTS, strict=True)]
        weights = ["bold" if score == row.max() else "normal" for score in row]
        axes.set_title(lines[0], loc="left", size=8, weight=weights[0])
        axes.set_xlabel(lines[1], loc="left", size=8, weight=weights[1])
    left.suptitle("Scores of two texts for generated images: higher is better", size=10)
    axes = right.subplots()
    for number, run in enumerate(runs):
        found = [run.tasks[task].results[metric] for task, metric, _ in ROWS]
        value, low, high = (100 * np.array([entry[key] for entry in found]) for key in ("value", "low", "high"))
        places = np.arange(len(ROWS)) + 0.38 * (number - (len(runs) - 1) / 2)
        axes.barh(places, value, 0.34, xerr=(value - low, high - value), color=COLOURS[number], label=run.model)
    chances = [100 * runs[0].tasks[task].results[metric]["chance"] for task, metric, _ in ROWS]
    axes.vlines(chances, np.arange(len(ROWS)) - 0.42, np.arange(len(ROWS)) + 0.42, "black", "dashed", label="chance")
    axes.set(yticks=range(len(ROWS)), yticklabels=[label for *_, label in ROWS], xlim=(0, 100))
    axes.tick_params(axis="y", labelsize=8)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    right.suptitle("Accuracy on rendered scenes, %", size=10)
    right.legend(*axes.get_legend_handles_labels(), ncols=3, loc="outside lower center", frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    draw([winobench.read_run(folder) for folder in sys.argv[1:]]).savefig(FIGURE)
