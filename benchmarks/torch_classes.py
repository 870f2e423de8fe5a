"""Each class of diffusers that torch's code runs, next to diffusers itself, on tiny networks of random weights.

    python -m benchmarks.torch_classes                     prints a table, in some minutes
    python -m benchmarks.torch_classes --output FILE       writes the figures as JSON, too
    python -m benchmarks.torch_classes --only sana,flux    classes whose names have one of these words

diffusers runs three steps with its own scheduler in torch. Its inputs are compared with the predictions of winobench's
compiled code for the same noisy latents, for one, two and three rows at different times. Images' latents are compared,
too. The seconds are the time to compile the prediction of three rows on this machine.
"""

from __future__ import annotations

import argparse
import pathlib

import jax

from benchmarks import machine, result_files
from tests.contrib.torch_pipelines import comparison
from tests.contrib.torch_pipelines.classes import tiny
from winobench.torch_modules.comparison import versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    words = arguments.only.lower().split(",")
    rows = []
    # Each is compiled anew: some classes are the same program.
    jax.config.update("jax_enable_compilation_cache", False)
    for name, maker in [*comparison.makers(), *comparison.makers(tiny)]:
        if any(word in name.lower() for word in words):
            differences = comparison.compare(maker)
            rows.append({"class": name, **{what: float(f"{value:.2g}") for what, value in differences.items()}})
            shown = "  ".join(f"{what} {value:.1e}" for what, value in differences.items())
            print(f"{name:<34} {shown}", flush=True)
    of = {**versions(), "jax": jax.__version__}
    result_files.write({"machine": machine.describe(), "versions": of, "classes": rows}, arguments.output)


if __name__ == "__main__":
    main()
