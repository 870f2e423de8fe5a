"""Matching against generation, skill by skill, on one page: winobench understand"""

from __future__ import annotations

import pathlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags

from winobench.base.errors import InputError
from winobench.base.files import digest, user_path

from . import configuration, judged_images, output

if TYPE_CHECKING:
    from configs.understand import Settings

DEFAULT_CONFIG = "understand"

USAGE = """
Does a model generate what it understands? Four commands with the same models: generate, judge, eval and report
(docs/howto/judge_images.md):

  winobench understand                                clevr-tiny and clevr-flow with the verifier, offline
  winobench understand --config=understand:debug      a few prompts and samples
  winobench understand --model=sd21-base,sdxl --prompts=geneval2:FILE --judge=qwen3-vl-8b \\
      --tasks=@spatial,@counting,@attribute_binding --dtype=bfloat16

The page report/report.html shows each skill's accuracy of matching against its accuracy of generation, with intervals
and correlations. Each command is printed before it runs, and resumes when it is given again.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The folder of all. runs/<config>-<hash> by default.")
_NAME = flags.DEFINE_string(
    "name", None, "What the report and the viewer call the runs. Another name resumes the same runs."
)

_MAX_PIXELS = judged_images.define_max_pixels()

_OF_IMAGES, _OF_MATCHING, _OF_REPORT = "images", "matching", "report"  # folders

# Fields that other launchers have by the same name.
_GENERATION = ("model", "prompts", "num_steps", "guidance_scale", "seeds", "dtype")
_MATCHING = ("model", "tasks", "limit", "dtype")


def main(config: Settings) -> None:
    """Runs the four commands, one after the other."""
    if config.judge is None and config.prompts.partition(":")[0] != "clevr":
        raise InputError(
            f"--prompts={config.prompts} needs a judge, since the verifier knows the prompts clevr alone: give"
            " --judge=MODEL, such as qwen3-vl-8b",
            code="nothing-named",
        )
    # Names that cannot be are refused before images are generated.
    from winobench.evaluation import choice
    from winobench.responders import loading

    choice.choose_tasks(config.tasks, None)
    if config.judge:
        loading.answered_kinds(config.judge)
        loading.check_max_pixels(config.judge, _MAX_PIXELS.value)
    else:
        judged_images.refuse_max_pixels(_MAX_PIXELS.value)
    workdir = _WORKDIR.value
    if workdir is None:
        given = configuration.plain(config)
        if _MAX_PIXELS.value is not None:  # of the judge, whose results have a folder for each bound
            given["max_pixels"] = _MAX_PIXELS.value
        workdir = f"runs/{configuration.chosen_name(DEFAULT_CONFIG)}-{digest(given)[:8]}"
    folder = pathlib.Path(user_path(workdir))
    for words in _commands(config, folder):
        print(f"\n$ {shlex.join(['winobench', *words])}", flush=True)
        printed_to = sys.__stderr__ if output.wants_json() else None
        status = subprocess.run([sys.executable, "-m", "winobench", *words], stdout=printed_to).returncode
        if status:
            raise InputError(
                f"winobench {words[0]} ended with status {status}: mend the fault above, and give the same command"
                " again, which resumes",
                code="command-failed",
            )

    output.print_json(
        {
            "folder": str(folder),
            "images": str(folder / _OF_IMAGES),
            "runs": _runs(folder / _OF_MATCHING),
            "page": str(folder / _OF_REPORT / "report.html"),
        }
    )


def _runs(folder: pathlib.Path) -> list[str]:
    return sorted(str(path.parent) for path in folder.glob("**/results.json"))


def _commands(config: Settings, folder: pathlib.Path) -> Iterator[list[str]]:
    """The words of each command. The last one names the runs of those before it."""
    images, matching = folder / _OF_IMAGES, folder / _OF_MATCHING
    name = [f"--name={_NAME.value}"] if _NAME.value else []
    yield [
        *("generate", "--config=images", *_given(config, _GENERATION), f"--limit={_word(config.num_prompts)}"),
        *(f"--workdir={images}", *name),
    ]
    if config.judge:
        bound = [] if _MAX_PIXELS.value is None else [f"--max_pixels={_MAX_PIXELS.value}"]
        yield ["judge", str(images), f"--model={config.judge}", f"--dtype={config.dtype}", *bound]
    yield [
        *("eval", "--config=gdbench", *_given(config, _MATCHING)),
        *(f"--num_samples={config.num_samples}", f"--workdir={matching}", *name),
    ]
    yield ["report", *_runs(matching), f"--images={images}", f"--out={folder / _OF_REPORT}"]


def _given(config: Settings, names: tuple[str, ...]) -> list[str]:
    return [f"--{name}={_word(getattr(config, name))}" for name in names]


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)


if __name__ == "__main__":
    output.define_json()
    configuration.start(main, launcher="understand", default=DEFAULT_CONFIG, usage=USAGE)
