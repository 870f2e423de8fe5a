"""Judges generated images by a benchmark's rubric: winobench judge RUN --model=JUDGE"""

from __future__ import annotations

from absl import flags

from winobench import rubrics
from winobench.base import options
from winobench.base.errors import InputError

from . import configuration, judged_images

_RUBRICS = "\n".join(f"  {name:<17} {rubric.description}" for name, rubric in rubrics.RUBRICS.items())

USAGE = f"""
Judges the images of winobench draw by the rubric of their benchmark (docs/howto/judge_images.md):

  winobench draw --config=pictures --config.prompts=geneval2:FILE --config.model=sd21-base
  winobench judge RUN --model=qwen3-vl-8b --dtype=bfloat16
  winobench judge RUN RUN --model=openai:gpt-4o
  winobench judge RUN --model=qwen3-vl-8b --rubric=vqa_score

A judge is a vision-language model, also a hosted one, or a scorer such as CLIP. Without --rubric, the prompts decide:

{_RUBRICS}

Each answer is on disk before it counts. The same command resumes, and requests missing answers only. The results name
the judge and the text that it reads. They are in RUN/judged/<rubric>-<judge>.
"""

_MODEL = flags.DEFINE_string("model", None, "The judge: a name, folder, hub id, openai:MODEL, or anthropic:MODEL.")
_RUBRIC = flags.DEFINE_string("rubric", None, "The rubric. The first that fits the prompts by default.")
_LABEL = flags.DEFINE_string("label", None, "The judge's name in results and folders. The model's by default.")
_API = flags.DEFINE_string(
    "api", None, "Options of a hosted judge as name=value with commas, as --config.api of winobench eval has them."
)
_DTYPE = flags.DEFINE_enum("dtype", "float32", options.DTYPES, "Compute dtype of a model with weights.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", None, "Images at once on each device.", lower_bound=1)
_MODEL_PARALLEL = flags.DEFINE_integer("model_parallel", 1, "Devices that share one copy of the judge.", lower_bound=1)


def main(words: list[str]) -> None:
    """Judges the images of the named runs, and prints the results."""
    if not words:
        raise InputError("no run is named: give the folder of a run of winobench draw", code="nothing-named")
    if not _MODEL.value:
        raise InputError(
            "no judge is named: give --model=JUDGE, such as qwen3-vl-8b or openai:gpt-4o", code="nothing-named"
        )
    from winobench.base import caches
    from winobench.runs import image_runs

    runs = [image_runs.read_pictures(word) for word in words]
    caches.keep_compiled()
    judged_images.judge(
        runs,
        _MODEL.value,
        label=_LABEL.value,
        rubric=_RUBRIC.value,
        hosted=options.settings().or_none().check("--api", _API.value),
        dtype=_DTYPE.value,
        batch_size=_BATCH_SIZE.value,
        model_parallel=_MODEL_PARALLEL.value,
    )


if __name__ == "__main__":
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
