"""Makes the figure of docs/explanation/mathematics.md with clevr-tiny: python docs/draw_mathematics.py"""

from __future__ import annotations

import pathlib

import matplotlib
import numpy as np
from matplotlib import pyplot as plt

import winobench

PATH = pathlib.Path(__file__).resolve().parent / "images" / "error_by_timestep.png"
NUM_SAMPLES = 512


def main() -> None:
    matplotlib.use("agg")
    task = winobench.get_task("clevr")
    example = next(each for each in task.load(None, None) if "spatial" in each.groups)
    scorer = winobench.DiffusionITM.from_pretrained("clevr-tiny")
    timesteps = np.linspace(20, 980, NUM_SAMPLES).astype(np.int32)
    errors = scorer.errors(example.images, [*example.texts, ""], num_samples=NUM_SAMPLES, timesteps=timesteps)[0]
    right, wrong, empty = errors[example.target], errors[1 - example.target], errors[2]

    figure, (image, levels, gaps) = plt.subplots(1, 3, figsize=(9.6, 2.9), width_ratios=(1, 1.6, 1.6), layout="tight")
    image.imshow(np.asarray(example.images[0].load() if hasattr(example.images[0], "load") else example.images[0]))
    image.set_title(f"{example.texts[example.target]}\n(not: {example.texts[1 - example.target]})", fontsize=7)
    image.axis("off")
    bins = np.array_split(np.arange(NUM_SAMPLES), 16)
    middle = [timesteps[each].mean() for each in bins]
    for values, label in ((empty, "empty text"), (wrong, "wrong text"), (right, "right text")):
        levels.plot(middle, [values[each].mean() for each in bins], label=label, marker=".", linewidth=1)
    levels.set(xlabel="timestep", ylabel="squared error", yscale="log")
    levels.legend(fontsize=7)
    gap = wrong - right
    mean = np.array([gap[each].mean() for each in bins])
    spread = np.array([gap[each].std() for each in bins])
    gaps.axhline(0, color="gray", linewidth=0.8)
    gaps.plot(middle, mean, marker=".", linewidth=1, color="C2")
    gaps.fill_between(middle, mean - spread, mean + spread, alpha=0.2, color="C2")
    gaps.set(xlabel="timestep", ylabel="wrong minus right")
    figure.savefig(PATH, dpi=110)


if __name__ == "__main__":
    main()
