"""Judges generated images by a benchmark's rubric: winobench judge RUN --model=JUDGE"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from absl import flags

from winobench.base import extensions, options
from winobench.base.errors import InputError
from winobench.rubrics import named_rubrics

from . import collected_images, configuration, judged_images, output, text

if TYPE_CHECKING:
    from winobench.runs.image_runs import Images

_RUBRICS = "\n".join(f"  {name:<17} {rubric.description}" for name, rubric in named_rubrics.RUBRICS.items())

USAGE = f"""
Judges images by the rubric of their benchmark: a folder of files by any program, or a run of winobench generate
(docs/howto/judge_images.md):

  winobench judge FOLDER --prompts=geneval2:FILE --name=gpt-image-1 --model=qwen3-vl-8b
  winobench judge RUN --model=qwen3-vl-8b --dtype=bfloat16
  winobench judge RUN RUN --model=openai:gpt-4o
  winobench judge RUN --model=qwen3-vl-8b --rubric=vqa_score
  winobench judge RUN --model=openai:gpt-4o --dry_run                 the cost, asking nothing

A folder of files becomes a run first, as winobench collect makes it. A judge is a vision-language model, also a hosted
one, or a scorer such as CLIP. Without --rubric, the prompts decide:

{_RUBRICS}

GenEval's own detector judges elsewhere: --lay_out writes its images, --detector reads its results. To see how far a
judge agrees with people on the images of GenEval's study (from winobench prepare --tasks=meta_geneval):

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
collected_images.define_flags("Of a folder of files: geneval2:FILE, a file, metadata. GenEval's file with --people.")
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", None, "Print the missing requests with their tokens and price, or memory and time. Nothing is asked."
)
_ACCELERATOR = flags.DEFINE_string(
    "accelerator",
    None,
    "With --dry_run, a kind of device as winobench plan names it, for which a local judge's time is estimated.",
)
_DTYPE = flags.DEFINE_enum("dtype", "float32", options.DTYPES, "Compute dtype of a model with weights.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Images at once on each device.", lower_bound=1)
_MODEL_PARALLEL = flags.DEFINE_integer("model_parallel", 1, "Devices that share one copy of the judge.", lower_bound=1)
_MAX_PIXELS = judged_images.define_max_pixels()
text.define_api_flags(__name__)


def main(words: list[str]) -> None:
    """Judges the images of the named runs, and prints the results."""
    if not words:
        raise InputError("no run is named: give the folder of a run of winobench generate", code="nothing-named")
    if _DETECTOR.value or _LAY_OUT.value:
        _refuse("with --detector or --lay_out", _MODEL, _RUBRIC, _LABEL, _PEOPLE, _DRY_RUN, _ACCELERATOR)
        _refuse_collecting("with --detector or --lay_out")
        _detect(words)
        return
    _refuse("without --detector or --lay_out", _OF)
    if not _DRY_RUN.value:
        _refuse("without --dry_run", _ACCELERATOR)
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
        "max_pixels": _MAX_PIXELS.value,
    }
    if _PEOPLE.value:
        _refuse("with --people, which has its own rubric", _RUBRIC)
        _refuse("with --people, which writes a run first", _DRY_RUN)
        _refuse_collecting("with --people", but="prompts")
        if not (prompts := flags.FLAGS.prompts):
            raise InputError("no prompts are named: give --prompts=evaluation_metadata.jsonl", code="nothing-named")
        folder = collected_images.one(words)
        caches.keep_compiled()
        judged_images.judge_people(folder, _PEOPLE.value, prompts, _MODEL.value, **how)
        return
    if collected_images.given() and not image_runs.is_run(words[0]):
        if _DRY_RUN.value:
            raise InputError(
                f"--dry_run counts the images of a run, which {options.quote(words[0])} is not: make it one with"
                " winobench collect, which asks nothing, and name that run",
                code="no-effect",
            )
        runs = [_collected(collected_images.one(words))]
    else:
        _refuse_collecting("for a run, which has its own images and prompts")
        runs = [image_runs.read_images(word) for word in words]
    if _DRY_RUN.value:
        judged_images.plan(runs, _MODEL.value, rubric=_RUBRIC.value, accelerator=_ACCELERATOR.value, **how)
        return
    caches.keep_compiled()
    judged_images.judge(runs, _MODEL.value, rubric=_RUBRIC.value, **how)


def _collected(folder: str) -> Images:
    """The run of a folder of files. Names are checked before any file is read."""
    from winobench.prompts import named_sets

    prompts = flags.FLAGS.prompts
    if prompts and prompts.partition(":")[0] in named_sets.NAMED_SETS:
        judged_images.check(_MODEL.value or "", named_sets.read_prompts(prompts), _RUBRIC.value, _MAX_PIXELS.value)
    return collected_images.collect(folder)


def _detect(words: list[str]) -> None:
    from winobench.runs import image_runs, verdicts

    detector = extensions.find(extensions.PARTS, "geneval_detector")
    run = image_runs.read_images(collected_images.one(words))
    if _LAY_OUT.value:
        print(f"{detector.lay_out(run, _LAY_OUT.value, _OF.value):,} images for GenEval's detector: {_LAY_OUT.value}")
    if _DETECTOR.value:
        judged = detector.attach(run, _DETECTOR.value, _OF.value)
        print(f"correct images, judged by the {verdicts.GENEVAL_DETECTOR}")
        accuracy = verdicts.generation_accuracy(run, judged)
        results = verdicts.judgement_of(run, judged)
        judged_images.print_missing(results)
        judged_images.print_models("tag", accuracy)
        output.print_json({"judgements": [], "detector": accuracy, "no_image": results.no_image})


def _refuse(when: str, *given: flags.FlagHolder) -> None:
    """Refuses options that would have no effect."""
    for flag in given:
        if flag.value is not None:
            raise InputError(f"--{flag.name} has no effect {when}: leave it out", code="no-effect")


def _refuse_collecting(when: str, but: str = "") -> None:
    for name in collected_images.given():
        if name != but:
            raise InputError(f"--{name} has no effect {when}: leave it out", code="no-effect")


if __name__ == "__main__":
    output.define_json()
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
