"""Memory, time and cost of a config on accelerators you do not have: winobench plan --config=NAME ..."""

from __future__ import annotations

from typing import Any

from absl import flags

from winobench.base.errors import InputError

from . import configuration, layout, output

DEFAULT_CONFIG = "gdbench:table1"

USAGE = """
Compiles the programs of a config for accelerators that this machine need not have, and prints their compilers' figures:
memory of a device, passes or prompts at once, kernels, collectives, time, and from these hours and dollars. Of the
model only the configs are read, no weights. No step is measured. Times are estimates: the TPU compiler's own cycles, or
what each kind of kernel took on an H100, relative to its peak rates. "at most" is the rate that peak rates allow.

  winobench plan --config=gdbench:table1 --model=sd21-base --dtype=bfloat16 --accelerator=h100:8
  winobench plan --config=gdbench:table1 --model=sdxl --dtype=bfloat16 --accelerator=v5e:4x4
  winobench plan --config=gdbench --model=sd15 --accelerator=l4 --price=0.7 --devices=1,8,64
  winobench plan --config=wscplus --model=llama2-13b --dtype=bfloat16 --accelerator=h100:2,v5e:2x4
  winobench plan --config=hardneg:paper --accelerator=h100,v5e:2x2            fine-tuning: the training step
  winobench plan --config=images:paper --model=sd21-base,sdxl --dtype=bfloat16 \\
      --accelerator=h100:1,v5e:2x2                                generating: text encoders, the sampler's loop, decoder
  winobench plan --config=gdbench:full --model=llava-1.5-7b --dtype=bfloat16 \\
      --accelerator=h100,v5e:2x2                                     VQAScore: images encoded, pairs scored

Accelerators: v5e, v5p, v6e (pip install "winobench[tpu]"), and h100, h200, a100-80, l4, b200 (pip install
"winobench[cuda]"). A TPU's program takes minutes to compile. A compiler's figures are kept for the next time.
--few_blocks shortens it for transformers of many blocks, such as FLUX.1 or vision-language models.
"""

_ACCELERATOR = flags.DEFINE_list(
    "accelerator", "h100:8", "Kind and shape, several with commas: v5e:4x4, v6e:2x4, v5p:2x2x1, h100:8, l4:1, ..."
)
_DEVICES = flags.DEFINE_list("devices", None, "Numbers of devices for a table of scaling. By default --accelerator's.")
_PRICE = flags.DEFINE_float("price", None, "Dollars per device and hour.", lower_bound=0)
_STORAGE = flags.DEFINE_float("storage_gb_per_s", 1.0, "What a host reads of weights and images.", lower_bound=1e-6)
_LARGEST = flags.DEFINE_bool("largest", False, "Find the largest step that fits, too. Compiles several more.")
_ANSWER = flags.DEFINE_integer(
    "answer_tokens", None, "Tokens of a language model's answers, the longest of a batch. Else all that are allowed.", 1
)
_TEXT = flags.DEFINE_integer("text_tokens", 32, "Tokens of the longest text in a vision-language model's question.", 1)
_FEW = flags.DEFINE_bool(
    "few_blocks", False, "Compile transformers of few blocks, diffusion ones without encoders, and extrapolate."
)
_DETAILS = flags.DEFINE_bool("details", False, "Show every program's kernels, and every part of the time.")
_OUTPUT = flags.DEFINE_string("output", None, "Write everything as JSON to this file, too.")


def main(config: Any) -> None:
    from winobench.contrib.planning import topologies

    if not _ACCELERATOR.value:
        raise InputError("--accelerator names none: name one, such as h100:8", code="nothing-named")
    for text in _ACCELERATOR.value:
        topologies.parse(text)  # faults show before minutes of compilation
    devices = _numbers(_DEVICES.value)
    topologies.prepare()

    from winobench.base import files
    from winobench.contrib.planning import plan, plans, table

    assumed = plan.Assumptions(storage_rate=_STORAGE.value * 1e9, answer_tokens=_ANSWER.value, text_tokens=_TEXT.value)
    how = {"devices": devices, "price": _PRICE.value, "largest": _LARGEST.value, "assumed": assumed, "few": _FEW.value}
    compiled_plans = [plans.make_plan(config, target, **how) for target in map(topologies.find, _ACCELERATOR.value)]
    table.print_plans(compiled_plans, details=_DETAILS.value or _DEVICES.value is not None)
    for note in dict.fromkeys(note for compiled in compiled_plans for note in compiled.notes):
        print("\n".join(layout.wrapped(note, 0, layout.width())))
    content = {"config": configuration.plain(config), "plans": [compiled.as_json() for compiled in compiled_plans]}
    output.print_json(content)
    if _OUTPUT.value:
        files.write_json(_OUTPUT.value, content)


def _numbers(words: list[str] | None) -> tuple[int, ...]:
    for word in words or ():
        if not word.strip().isdigit() or int(word) < 1:
            raise InputError(
                f"--devices={','.join(words)} has {word!r}, but each must be a whole number of at least 1",
                code="out-of-range",
            )
    return tuple(map(int, words or ()))


if __name__ == "__main__":
    output.define_json()
    configuration.start(main, launcher=None, default=DEFAULT_CONFIG, usage=USAGE)
