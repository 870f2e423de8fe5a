"""Judges generated images by a benchmark's rubric: winobench judge RUN --model=JUDGE"""

from __future__ import annotations

from typing import Any

from absl import flags

from winobench.base import extensions, options
from winobench.base.errors import InputError
from winobench.rubrics import named_rubrics

from . import configuration, judged_images, output, text

_RUBRICS = "\n".join(f"  {name:<17} {rubric.description}" for name, rubric in named_rubrics.RUBRICS.items())

USAGE = f"""
Judges the images of winobench generate by the rubric of their benchmark (docs/howto/judge_images.md):

  winobench generate --config=images --prompts=geneval2:FILE --model=sd21-base
  winobench judge RUN --model=qwen3-vl-8b --dtype=bfloat16
  winobench judge RUN RUN --model=openai:gpt-4o
  winobench judge RUN --model=qwen3-vl-8b --rubric=vqa_score

A judge is a vision-language model, also a hosted one, or a scorer such as CLIP. Without --rubric, the prompts decide:

{_RUBRICS}

GenEval's own detector judges elsewhere: --lay_out writes its images, --detector reads its results. To see how far a
judge agrees with people on the images of GenEval's study (those of winobench prepare --tasks=meta_geneval):

  winobench judge NEW_FOLDER --people=FOLDER --prompts=evaluation_metadata.jsonl --model=qwen3-vl-8b

Each answer is on disk before it counts. The same command resumes, and requests missing answers only. The results name
the judge and the text that it reads. They are in RUN/judged/<rubric>-<judge>.
"""

_MODEL = flags.DEFINE_string("model", None, "The judge: a name, folder, hub id, openai:MODEL, or anthropic:MODEL.")
_RUBRIC = flags.DEFINE_string("rubric", None, "The rubric. The first that fits the prompts by default.")
_LABEL = flags.DEFINE_string("label", None, "What tells two judges of one name apart, in results and folders.")
_DETECTOR = flags.DEFINE_string("detector", None, "results.jsonl of GenEval's detector: its verdicts become RUN's.")
_LAY_OUT = flags.DEFINE_string("lay_out", None, "A new folder for RUN's images as GenEval's detector reads them.")
_OF = flags.DEFINE_string("of", None, "With --detector or --lay_out, the label of one of RUN's models.")
_PEOPLE = flags.DEFINE_string("people", None, "The folder of GenEval's study with people; RUN is then a new folder.")
_PROMPTS = flags.DEFINE_string("prompts", None, "With --people, GenEval's evaluation_metadata.jsonl.")
_DTYPE = flags.DEFINE_enum("dtype", "float32", options.DTYPES, "Compute dtype of a model with weights.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Images at once on each device.", lower_bound=1)
_MODEL_PARALLEL = flags.DEFINE_integer("model_parallel", 1, "Devices that share one copy of the judge.", lower_bound=1)
text.define_api_flags(__name__)


def main(words: list[str]) -> None:
    """Judges the images of the named runs, and prints the results."""
    if not words:
        raise InputError("no run is named: give the folder of a run of winobench generate", code="nothing-named")
    if _DETECTOR.value or _LAY_OUT.value:
        _refuse("with --detector or --lay_out", _MODEL, _RUBRIC, _LABEL, _PEOPLE, _PROMPTS)
        _detect(words)
        return
    _refuse("without --detector or --lay_out", _OF)
    if not _MODEL.value:
        raise InputError(
            "no judge is named: give --model=JUDGE, such as qwen3-vl-8b or openai:gpt-4o", code="nothing-named"
        )
    from winobench.base import caches
    from winobench.runs import image_runs

    how: dict[str, Any] = {
        "label": _LABEL.value,
        "hosted": text.given_api_options(_MODEL.value),
        "dtype": _DTYPE.value,
        "batch_size": _BATCH_SIZE.value,
        "model_parallel": _MODEL_PARALLEL.value,
    }
    if _PEOPLE.value:
        _refuse("with --people, which has its own rubric", _RUBRIC)
        if not _PROMPTS.value:
            raise InputError("no prompts are named: give --prompts=evaluation_metadata.jsonl", code="nothing-named")
        folder = _one(words)
        caches.keep_compiled()
        judged_images.judge_people(folder, _PEOPLE.value, _PROMPTS.value, _MODEL.value, **how)
        return
    _refuse("without --people", _PROMPTS)
    runs = [image_runs.read_images(word) for word in words]
    caches.keep_compiled()
    judged_images.judge(runs, _MODEL.value, rubric=_RUBRIC.value, **how)


def _detect(words: list[str]) -> None:
    from winobench.runs import image_runs, verdicts

    detector = extensions.find(extensions.PARTS, "geneval_detector")
    run = image_runs.read_images(_one(words))
    if _LAY_OUT.value:
        print(f"{detector.lay_out(run, _LAY_OUT.value, _OF.value):,} images for GenEval's detector: {_LAY_OUT.value}")
    if _DETECTOR.value:
        judged = detector.attach(run, _DETECTOR.value, _OF.value)
        print(f"correct images, judged by the {verdicts.GENEVAL_DETECTOR}")
        accuracy = verdicts.generation_accuracy(run, judged)
        judged_images.print_models("tag", accuracy)
        output.print_json({"judgements": [], "detector": accuracy})


def _refuse(when: str, *given: flags.FlagHolder) -> None:
    """Refuses options that would have no effect."""
    for flag in given:
        if flag.value is not None:
            raise InputError(f"--{flag.name} has no effect {when}: leave it out", code="no-effect")


def _one(words: list[str]) -> str:
    if len(words) != 1:
        raise InputError(f"{len(words)} folders are named: name one", code="named-twice")
    return words[0]


if __name__ == "__main__":
    output.define_json()
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
