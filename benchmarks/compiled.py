"""What compilers for accelerators make of the scorer's programs: python -m benchmarks.compiled --output FILE

    python -m benchmarks.compiled --models sd21-base --accelerators h100,v5e           two programs more, minutes each
    python -m benchmarks.compiled --output benchmarks/results/compiled.json             everything, hours on two cores
    python -m benchmarks.compiled --models sd21-base --accelerators v5e --plain         attention without fused kernels
    python -m benchmarks.compiled --models flux1-dev --accelerators v6e:2x4 --few_blocks --encoders staged
    python -m benchmarks.compiled --table --output benchmarks/results/compiled.json     what it holds, as one table

No accelerator is needed, and none is used: numbers are the compilers' own (`winobench.planning`). What a compiler has
said is kept in winobench's cache, so that a second call is quick.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks import result_files
from launch import configuration
from winobench.base import json_files
from winobench.planning import topologies

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
    parser.add_argument("--models", default=",".join(MODELS), help="names of launch.plan's --config.model, with commas")
    parser.add_argument("--accelerators", default=",".join(ACCELERATORS), help="as of launch.plan, with commas")
    parser.add_argument("--dtype", default="bfloat16", help="of the denoiser")
    parser.add_argument("--batch_size", default=None, help="passes at once; the scorer's own choice when left out")
    parser.add_argument("--plain", action="store_true", help="attention as products with all scores, for comparison")
    parser.add_argument("--encoders", default="resident", help="resident or staged, as of launch.plan's --config")
    parser.add_argument("--few_blocks", action="store_true", help="as of launch.plan: steps are extrapolated")
    parser.add_argument("--table", action="store_true", help="compile nothing; print one table of what --output holds")
    parser.add_argument("--output", type=pathlib.Path, help="write the figures as JSON, too; what it holds is kept")
    arguments = parser.parse_args(words)
    if arguments.table:
        names = arguments.models.split(","), arguments.accelerators.split(",")
        print(one_table(json_files.load(arguments.output) if _is_there(arguments.output) else {}, *names))
        return
    topologies.prepare()

    from winobench.planning import plans, table

    if arguments.plain:
        _without_fused_attention()
    found: dict[str, Any] = json_files.load(arguments.output) if _is_there(arguments.output) else {}
    for model in arguments.models.split(","):
        overrides = [("model", model), ("dtype", arguments.dtype), ("encoders", arguments.encoders)]
        overrides += [("batch_size", arguments.batch_size)] if arguments.batch_size else []
        config = configuration.load(CONFIG, overrides)
        made = []
        for text in arguments.accelerators.split(","):
            made.append(plans.make_plan(config, topologies.find(text), few=arguments.few_blocks))
            key = ", ".join([model, arguments.dtype, text, *_differences(arguments)])
            found[key] = made[-1].as_json()
            result_files.write(dict(sorted(found.items())), arguments.output)
        table.print_plans(made, details=False)


def one_table(found: dict[str, Any], models: Sequence[str], accelerators: Sequence[str]) -> str:
    """Models of the file on some accelerators, as a table of Markdown; what the file does not hold has no row."""
    lines = [
        "| | accelerator | weights | tables | temporaries | sum of | passes at once | passes/s of a device |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for model, text in itertools.product(models, accelerators):
        for name, plan in found.items():
            its_model, _, its_text, *differences = name.split(", ")
            if (its_model, its_text) == (model, text) and "plain attention" not in differences and plan["programs"][0]:
                lines.append(f"| {' | '.join(_cells(model, plan, differences))} |")
    return "\n".join(lines)


def _cells(model: str, plan: dict[str, Any], differences: Sequence[str]) -> list[str]:
    from winobench.planning import table

    step, few = plan["programs"][0], "few blocks" in differences
    weights = sum(plan["weights"].values())
    # Plans from before encoders could be there without the denoiser have one sum.
    needed = plan.get("while_scoring", plan["total"])
    rest = needed - weights - plan["others"]
    encoding = plan.get("while_encoding", 0)
    more = f"; {table.gigabytes(encoding)} while texts are encoded" if encoding > needed else ""
    return [
        model,
        plan["target"],
        f"{weights / 1e9:.1f}" + (", staged" if "staged" in differences else ""),
        f"{plan['others'] / 1e9:.1f}",
        f"{rest / 1e9:.1f}" + (" (step)" if few else ""),
        f"{table.gigabytes(needed)} of {table.gigabytes(plan['usable'])}{more}",
        f"{step['items']}",
        f"{step['items_per_second']:,.0f}" + (" *" if few else ""),
    ]


def _differences(arguments: argparse.Namespace) -> list[str]:
    """What a result's name has besides the model, the dtype and the devices."""
    said = {
        "plain attention": arguments.plain,
        "staged": arguments.encoders == "staged",
        "few blocks": arguments.few_blocks,
    }
    return [name for name, applies in said.items() if applies]


def _is_there(path: pathlib.Path | None) -> bool:
    return path is not None and path.is_file()


def _without_fused_attention() -> None:
    """As it was before there were fused kernels on TPUs: all scores in memory at once."""
    from winobench.models import attention

    attention._attention_of = lambda *_: attention._whole


if __name__ == "__main__":
    main()
