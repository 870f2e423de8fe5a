"""What a config will take on accelerators that are not at hand: python -m launch.plan --config=gdbench:table1 ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from launch import configuration
from winobench.base.errors import InputError

if TYPE_CHECKING:
    import ml_collections

DEFAULT_CONFIG = "gdbench:table1"

USAGE = """
Compiles what a config will run for accelerators that this machine need not have, and prints what their compilers say:
memory of a device, passes or prompts at once, kernels, collectives, time, and from these hours and dollars. Of the
model only the configs are read, no weights. Nothing is measured: times are the TPU compiler's own cycles, or a roofline
over the compiled kernels of a GPU, which is a bound.

  python -m launch.plan --config=gdbench:table1 --config.model=sd21-base --config.dtype=bfloat16 --accelerator=h100:8
  python -m launch.plan --config=gdbench:table1 --config.model=sdxl --config.dtype=bfloat16 --accelerator=v5e:4x4
  python -m launch.plan --config=gdbench --config.model=sd15 --accelerator=l4 --price=0.7 --devices=1,8,64
  python -m launch.plan --config=wscplus --config.model=llama2-13b --config.dtype=bfloat16 --accelerator=h100:2,v5e:2x4
  python -m launch.plan --config=hardneg:paper --accelerator=h100,v5e:2x2            fine-tuning: the training step
  python -m launch.plan --config=pictures:paper --config.model=sd21-base,sdxl --config.dtype=bfloat16 \
      --accelerator=h100:1,v5e:2x2                                   drawing: text encoders, the sampler's loop, decoder
  python -m launch.plan --config=gdbench:full --config.model=llava-1.5-7b --config.dtype=bfloat16 \
      --accelerator=h100,v5e:2x2                                     VQAScore: images seen, pairs scored

Accelerators: v5e, v5p, v6e (pip install "winobench[tpu]"), and h100, h200, a100-80, l4, b200 (pip install
"winobench[cuda]"). A TPU's program takes minutes to compile; what a compiler has said is kept for the next time.
--few_blocks shortens it for transformers of many blocks, such as FLUX.1 or the language models that see.
"""

_ACCELERATOR = flags.DEFINE_list(
    "accelerator", "h100:8", "Kind and shape, several with commas: v5e:4x4, v6e:2x4, v5p:2x2x1, h100:8, l4:1, ..."
)
_DEVICES = flags.DEFINE_list("devices", None, "Numbers of devices, for a table of how it scales; that asked for.")
_PRICE = flags.DEFINE_float("price", None, "Dollars per device and hour.", lower_bound=0)
_STORAGE = flags.DEFINE_float("storage_gb_per_s", 1.0, "What a host reads of weights and images.", lower_bound=1e-6)
_LARGEST = flags.DEFINE_bool("largest", False, "Find the largest step that fits, too; compiles several more.")
_ANSWER = flags.DEFINE_integer(
    "answer_tokens", None, "Tokens of a language model's answers, the longest of a batch; else all that are allowed.", 1
)
_TEXT = flags.DEFINE_integer(
    "text_tokens", 32, "Tokens of the longest text that a language model is asked about an image.", 1
)
_FEW = flags.DEFINE_bool(
    "few_blocks", False, "Compile transformers of few blocks, diffusion ones without encoders, and extrapolate."
)
_DETAILS = flags.DEFINE_bool("details", False, "Show every program's kernels, and every part of the time.")
_OUTPUT = flags.DEFINE_string("output", None, "Write everything as JSON to this file, too.")


def main(config: ml_collections.ConfigDict) -> None:
    """Plans a config for each accelerator, and prints a table."""
    from winobench.planning import topologies

    for text in _ACCELERATOR.value:
        topologies.parse(text)  # what is wrong shows before minutes of compilation
    devices = _numbers(_DEVICES.value)
    topologies.prepare()

    from winobench.base import files
    from winobench.planning import drawing_table, language_table, plans, table, training_table, vision_language_table

    assumed = plans.Assumptions(storage_rate=_STORAGE.value * 1e9, answer_tokens=_ANSWER.value, text_tokens=_TEXT.value)
    found = []
    for text in _ACCELERATOR.value:
        target = topologies.find(text)
        found.append(
            plans.make_plan(
                config,
                target,
                devices=devices,
                price=_PRICE.value,
                largest=_LARGEST.value,
                assumed=assumed,
                few=_FEW.value,
            )
        )
    tables = {
        plans.LanguagePlan: language_table,
        plans.TrainingPlan: training_table,
        plans.DrawingPlan: drawing_table,
        plans.VisionLanguagePlan: vision_language_table,
    }
    printed = tables.get(type(found[0]), table)
    printed.print_plans(found, details=_DETAILS.value or _DEVICES.value is not None)
    for note in dict.fromkeys(note for plan in found for note in plan.notes):
        print(note)
    if _OUTPUT.value:
        content = {"config": configuration.plain(config), "plans": [plan.as_json() for plan in found]}
        files.write_json(_OUTPUT.value, content)


def _numbers(words: list[str] | None) -> tuple[int, ...]:
    numbers = []
    for word in words or ():
        if not word.strip().isdigit() or int(word) < 1:
            raise InputError(
                f"--devices={','.join(words)} has {word!r}, but each must be a whole number of at least 1",
                code="out-of-range",
            )
        numbers.append(int(word))
    return tuple(numbers)


if __name__ == "__main__":
    configuration.start(main, launcher=None, default=DEFAULT_CONFIG, usage=USAGE)
