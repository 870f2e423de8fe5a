"""Results of compilers for accelerators with the scorer's programs: python -m benchmarks.compiled --output FILE

    python -m benchmarks.compiled --models sd21-base --accelerators h100,v5e           two programs more, minutes each
    python -m benchmarks.compiled --output benchmarks/results/compiled.json             everything, hours on two cores
    python -m benchmarks.compiled --models sd21-base --accelerators v5e --plain         attention without fused kernels
    python -m benchmarks.compiled --models flux1-dev --accelerators v6e:2x4 --few_blocks --encoders staged

No accelerator is needed, and none is used: numbers are the compilers' own (`winobench.contrib.planning`). A compiler's
figures are kept in winobench's cache, so that a second call is quick. docs/write_measurements.py makes a table of the
file.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any

import jax

from benchmarks import result_files
from launch import configuration
from winobench.base import json_files
from winobench.contrib.planning import compiling, topologies

MODELS = (
    "sd21-base",
    "sdxl",
    "sd35-medium",
    "sd35-large",
    "flux1-dev",
    "flux2-klein-4b",
    "flux2-klein-9b",
    "z-image-turbo",
)
ACCELERATORS = ("v5e:4x4", "v6e:2x4", "v5p:2x2x1", "h100:8", "h200:8", "a100-80:8", "l4:1", "b200:8")
CONFIG = "gdbench:table1"


def main(words: Sequence[str] | None = None) -> None:
    """Plans every model on every accelerator, prints the table, and writes it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names of launch.plan's --model, with commas")
    parser.add_argument("--accelerators", default=",".join(ACCELERATORS), help="as of launch.plan, with commas")
    parser.add_argument("--dtype", default="bfloat16", help="of the denoiser")
    parser.add_argument("--batch_size", default=None, help="passes at once; the scorer's own choice when left out")
    parser.add_argument("--plain", action="store_true", help="attention as products with all scores, for comparison")
    parser.add_argument("--encoders", default="resident", help="resident or staged, as of launch.plan's --config")
    parser.add_argument("--few_blocks", action="store_true", help="as of launch.plan: steps are extrapolated")
    parser.add_argument("--output", type=pathlib.Path, help="write the figures as JSON, too; what it holds is kept")
    arguments = parser.parse_args(words)
    topologies.prepare()

    from winobench.contrib.planning import plans, table

    if arguments.plain:
        _without_fused_attention()
    records: dict[str, Any] = json_files.load(arguments.output) if _is_there(arguments.output) else {}
    for model in arguments.models.split(","):
        overrides = [("model", model), ("dtype", arguments.dtype), ("encoders", arguments.encoders)]
        overrides += [("batch_size", arguments.batch_size)] if arguments.batch_size else []
        config = configuration.load(CONFIG, overrides)
        made = []
        for text in arguments.accelerators.split(","):
            target = topologies.find(text)
            made.append(plans.make_plan(config, target, few=arguments.few_blocks))
            key = ", ".join([model, arguments.dtype, text, *_differences(arguments)])
            records[key] = _record(made[-1].as_json(), target)
            result_files.write(dict(sorted(records.items())), arguments.output)
        table.print_plans(made, details=False)


def _record(plan: dict[str, Any], target: topologies.Target) -> dict[str, Any]:
    """A plan without its hours, which depend on the sizes of tasks, and the versions that compiled it."""
    plan["versions"] = [f"jax {jax.__version__}", *compiling.compiler_version(target)]
    return {name: plan[name] for name in sorted(plan) if name not in ("durations", "notes", "price", "largest")}


def _differences(arguments: argparse.Namespace) -> list[str]:
    """Parts of a result's name besides the model, the dtype and the devices."""
    said = {
        "plain attention": arguments.plain,
        "staged": arguments.encoders == "staged",
        "few blocks": arguments.few_blocks,
    }
    return [name for name, applies in said.items() if applies]


def _is_there(path: pathlib.Path | None) -> bool:
    return path is not None and path.is_file()


def _without_fused_attention() -> None:
    """Attention without fused kernels on TPUs: all scores in memory at once."""
    from winobench.models import attention

    attention._attention_of = lambda *_: attention._whole


if __name__ == "__main__":
    main()
