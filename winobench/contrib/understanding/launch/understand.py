"""Matching against generation, skill by skill, on one page: winobench understand"""

from __future__ import annotations

import pathlib
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from winobench.base.errors import InputError
from winobench.base.files import digest, user_path

from . import configuration, judged_images, output
from .overrides import split

if TYPE_CHECKING:
    from configs.understand import Settings

DEFAULT_CONFIG = "understand"

USAGE = """
Does a model generate what it understands? Four commands with the same models: generate, judge, eval and report
(docs/howto/judge_images.md). A model that predicts tokens and also reads images has a third measure: its answers.

  winobench understand                                clevr-tiny and clevr-flow with the verifier, offline
  winobench understand --config=understand:debug      a few prompts and samples
  winobench understand --model=sd21-base,sdxl --prompts=geneval2:FILE --judge=qwen3-vl-8b \\
      --tasks=@spatial,@counting,@attribute_binding --dtype=bfloat16
  winobench understand --model=janus-pro-1b --dtype=bfloat16         likelihoods, answers and images of one model

The page report/report.html shows each skill's accuracy of matching against its accuracy of generation, with intervals
and correlations. Each command is printed before it runs, and resumes when it is given again.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The folder of all. runs/<config>-<hash> by default.")
_NAME = flags.DEFINE_string(
    "name", None, "What the report and the viewer call the runs. Another name resumes the same runs."
)

_MAX_PIXELS = judged_images.define_max_pixels()

# Folders. Diffusion models are evaluated into the third one, and models that predict tokens into the last two.
_OF_IMAGES, _OF_REPORT = "images", "report"
_OF_MATCHING, _OF_LIKELIHOOD, _OF_ANSWERS = "matching", "likelihood", "answers"

# Fields that other launchers have by the same name.
_GENERATION = ("model", "prompts", "guidance_scale", "seeds", "dtype")
_MATCHING = ("tasks", "limit", "dtype")

# Folder, models, and further words of an evaluation.
_Evaluation = tuple[str, list[str], list[str]]


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
    evaluations = _evaluations(config)
    _check_samples(config, evaluations)
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
    for words in _commands(config, folder, evaluations):
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
            "runs": _runs(folder, evaluations),
            "page": str(folder / _OF_REPORT / "report.html"),
        }
    )


def _runs(folder: pathlib.Path, evaluations: Sequence[_Evaluation]) -> list[str]:
    return [str(path.parent) for of, *_ in evaluations for path in sorted((folder / of).glob("**/results.json"))]


def _evaluations(config: Settings) -> list[_Evaluation]:
    from winobench.responders import loading as responders
    from winobench.scorers import loading

    models = split(config.model)
    predict = [model for model in models if loading.resolve(model).kind == "image_likelihood"]
    answer = [model for model in predict if "picture_options" in (responders.answered_kinds(model) or ())]
    evaluations = (
        (_OF_MATCHING, [model for model in models if model not in predict], [f"--num_samples={config.num_samples}"]),
        (_OF_LIKELIHOOD, predict, []),
        (_OF_ANSWERS, answer, ["--scored_by=answers"]),
    )
    return [evaluation for evaluation in evaluations if evaluation[1]]


def _check_samples(config: Settings, evaluations: Sequence[_Evaluation]) -> None:
    """Refuses options of diffusion models where all models predict tokens."""
    if _OF_MATCHING in (of for of, *_ in evaluations):
        return
    usual = configuration.load(flags.FLAGS.config or DEFAULT_CONFIG)
    for name in ("num_samples", "num_steps"):
        if getattr(config, name) != getattr(usual, name):
            raise InputError(
                f"--{name} is for diffusion models, so that it has no effect on {config.model!r}: leave it out",
                code="option-of-others",
            )


def _commands(config: Settings, folder: pathlib.Path, evaluations: Sequence[_Evaluation]) -> Iterator[list[str]]:
    """The words of each command. The last one names the runs of those before it."""
    images = folder / _OF_IMAGES
    name = [f"--name={_NAME.value}"] if _NAME.value else []
    of_diffusion = ("num_steps",) if _OF_MATCHING in (of for of, *_ in evaluations) else ()
    yield [
        *(
            "generate",
            "--config=images",
            *_given(config, (*_GENERATION, *of_diffusion)),
            f"--limit={_word(config.num_prompts)}",
        ),
        *(f"--workdir={images}", *name),
    ]
    if config.judge:
        bound = [] if _MAX_PIXELS.value is None else [f"--max_pixels={_MAX_PIXELS.value}"]
        yield ["judge", str(images), f"--model={config.judge}", f"--dtype={config.dtype}", *bound]
    for of, models, more in evaluations:
        model = f"--model={','.join(models)}"
        yield ["eval", "--config=gdbench", model, *_given(config, _MATCHING), *more, f"--workdir={folder / of}", *name]
    yield ["report", *_runs(folder, evaluations), f"--images={images}", f"--out={folder / _OF_REPORT}"]


def _given(config: Settings, names: tuple[str, ...]) -> list[str]:
    return [f"--{name}={_word(getattr(config, name))}" for name in names]


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)


if __name__ == "__main__":
    output.define_json()
    configuration.start(main, launcher="understand", default=DEFAULT_CONFIG, usage=USAGE)
