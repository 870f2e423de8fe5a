"""Makes a page on finished runs: winobench report RUN [RUN ...]"""

from __future__ import annotations

import sys

from absl import flags

from winobench.base import text_tables

from . import configuration, output, reproduce

USAGE = """
Makes one HTML page on finished runs of winobench eval, which opens anywhere without a network. Next to it are a PNG
and a CSV file of each figure and table. It reads what the runs have recorded. No model and no device is needed.

  winobench report runs/gdbench-sd21-base-1a2b3c4d            one run: report.html in its folder's report/
  winobench report runs/gdbench-*                             several, side by side, in report/
  winobench report runs                                       the same of all runs in runs/
  winobench report runs/a runs/b --out=comparison             ... in comparison/
  winobench report runs/wscplus-* --raters=anna.csv,ben.csv   with people's answers, and how far they agree
  winobench report runs/a --fit_timesteps                     learn how much each timestep should count
  winobench report runs/a runs/b --format=latex               with the tables of each section as LaTeX

One run gives: its settings, the task table next to the paper's numbers, a radar chart, CLEVR's sub-tasks, bias,
accuracy against the number of samples, error against the timestep, two images with one text, and a gallery of right
and wrong examples. Runs of text benchmarks give WinoViz's tables, WSC+'s figures and the questions that were answered
wrongly.
Several runs are compared in all of these, and give paired differences, the questions on which they differ, and the
overlap of right answers.
What a run has no data for is left out. The first run is the one that the others are compared with where there are more
than three. The words are folders of runs, or folders that hold runs. Of several runs, those that are not finished
evaluations, or whose files contradict each other, are skipped with a line each.
"""

_OUT = flags.DEFINE_string("out", None, "Folder to write to; <run>/report for one run and report for several if none.")
_GALLERY = flags.DEFINE_integer("gallery", 12, "Examples a task in the gallery, over all runs; 0 for no gallery.")
_RESAMPLES = flags.DEFINE_integer("resamples", 2_000, "Resamples of the bootstrap of Fleiss' kappa.")
_RATERS = flags.DEFINE_list(
    "raters", [], "CSV files of people's answers to WSC+ questions (columns item, rater, label), with commas."
)
_FIT_TIMESTEPS = flags.DEFINE_boolean(
    "fit_timesteps", False, "Learn weights of timesteps from half of each run's examples. Judge them on the other half."
)
_IMAGES = flags.DEFINE_list(
    "images", [], "Runs of images by the models that are judged, with the verdicts of a verifier, with commas."
)
_FORMAT = flags.DEFINE_enum(
    "format",
    text_tables.FILE_FORMATS[0],
    text_tables.FILE_FORMATS,
    "Of the tables next to the page. CSV files are always there.",
)
_SEED = flags.DEFINE_integer("seed", 0, "Of resamples, subsets of the samples, and examples at random.")


def main(words: list[str]) -> None:
    # Late, so that --help answers at once.
    from winobench import report

    path = report.write_report(
        words,
        _OUT.value,
        resamples=_RESAMPLES.value,
        gallery_examples=_GALLERY.value,
        seed=_SEED.value,
        raters=_RATERS.value,
        fit_timesteps=_FIT_TIMESTEPS.value,
        images=_IMAGES.value,
        reproduce=reproduce.eval_command,
        command=["winobench", "report", *sys.argv[1:]],
        table_format=_FORMAT.value,
        skip=configuration.print_skipped,
    )
    files = sorted(other.name for other in path.parent.iterdir() if other.suffix in (".csv", ".md", ".png", ".tex"))
    print(f"{path} ({path.stat().st_size / 2**20:.1f} MB)")
    print(f"next to it: {', '.join(files)}")
    output.print_json({"page": str(path), "files": files})


if __name__ == "__main__":
    output.define_json()
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
