"""Makes docs/images/efficiency.png: agreement with all samples by the number of samples, for some rules.

python docs/draw_efficiency.py    # reads benchmarks/results/efficiency.json
"""

from __future__ import annotations

import json
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from winobench.report.figures import COLOURS

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "efficiency.json"
FIGURE = ROOT / "docs" / "images" / "efficiency.png"
RULES = ("uniform", "low_discrepancy", "antithetic", "antithetic importance")
SETS = ("clevr_hard", "clevr_hard_winoground")


def make_figure(rows: list[dict]) -> plt.Figure:
    """A panel for each model and set of questions, with 95% intervals."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    panels = [(model, name) for model in models for name in SETS]
    figure, axes = plt.subplots(1, len(panels), figsize=(11, 3), dpi=120, layout="constrained", sharey=True)
    of = {(row["model"], row["set"], row["rule"]): row["agrees"] for row in rows}
    for panel, (model, name) in zip(axes, panels, strict=True):
        for colour, rule in zip(COLOURS, RULES, strict=False):
            numbers = [int(number) for number in of[model, name, rule] if int(number) >= 4]
            value, low, high = zip(
                *([100 * end for end in of[model, name, rule][str(n)]] for n in numbers), strict=True
            )
            panel.plot(numbers, value, color=colour, label=rule, marker=".")
            panel.fill_between(numbers, low, high, color=colour, alpha=0.08, linewidth=0)
        panel.set(xscale="log", xlabel="samples", title=f"{model}\n{name}", xticks=(4, 16, 64, 256))
        panel.set_xticklabels(["4", "16", "64", "256"])
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("same answers as all samples, %")
    figure.legend(*axes[0].get_legend_handles_labels(), ncols=4, loc="outside lower center", frameon=False)
    return figure


if __name__ == "__main__":
    make_figure(json.loads(RESULTS.read_text())["rules"]).savefig(FIGURE)
