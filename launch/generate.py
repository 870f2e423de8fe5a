"""Draws, describes, compares, edits pictures, or has WSC+ items written: python -m launch.generate --help"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from launch import captioning, comparing, configuration, editing, items, pictures
from winobench.base import registry
from winobench.base.errors import InputError

if TYPE_CHECKING:
    import ml_collections

DEFAULT_CONFIG = "wscplus_generate"

USAGE = """
Draws pictures of a set of prompts with one or several text-to-image models (docs/pictures.md):

  python -m launch.generate --config=pictures                        the embedded model, prompts about its scenes
  python -m launch.generate --config=pictures --config.prompts=prompts.txt --config.model=sd21-base,sdxl
  python -m launch.generate --config=pictures --config.prompts=geneval:evaluation_metadata.jsonl --config.seeds=0,1,2,3
  python -m launch.generate --config=pictures:paper --config.prompts=drawbench:FILE --config.model=sd21-base \\
      --config.lora=none,FOLDER                                      a model against its LoRA, DiffusionITM App. B

Each picture is a PNG file with a record, on disk when it is done; a run that was stopped goes on when the same command
is given again. pictures.html in the run's folder shows them side by side. With --processes, the same command on several
machines shares the work. --config=pictures --help explains all fields.

Has a model that sees write a caption of each picture, or answer a question about it (docs/vision_language.md):

  python -m launch.generate --caption PICTURES --model=blip2-flan-t5-xl       a folder, 'photos/*.jpg', files, or a run
  python -m launch.generate --caption PICTURES --model=openai:gpt-4o --question="What colour is the car?"

Each text is in captions.jsonl of the run's folder as soon as it is written, and captions.csv has them all in the end;
nothing is asked twice when the same command is given again.

Has people compare the pictures of two models without knowing which is which, on a page of this computer (App. B):

  python -m launch.generate --compare RUN_A RUN_B --rater=anna       or RUN:MODEL, or one run of two models
  python -m launch.generate --compare RUN_A RUN_B --finish           who prefers what, with intervals
  python -m launch.generate --compare RUN_A RUN_B --finish --judge=clip-rn50x64,clevr-flow     automatic judges beside

Edits the images of a task towards its texts: how far must a picture move until a text fits? (App. C)

  python -m launch.generate --config=edit                            by optimisation, Figure 6
  python -m launch.generate --config=edit:denoise                    by noise and denoising, Figure 7

Has language models write new WSC+ items as the paper does: ask, check, let two people judge, keep what both call valid.

1. Ask and check. What comes in is on disk at once; a run that was stopped goes on when the same command is given again:

  python -m launch.generate --config.model=openai:gpt-4o-mini       60 traditional and ambiguous pairs, Tree-of-Experts
  python -m launch.generate --config=wscplus_generate:efficacy --config.model=...     4 templates x 2 queries (Figure 3)
  python -m launch.generate --config=wscplus_generate:models --config.model=A,B,C     several models (Figure 2)
  python -m launch.generate --config.model=... --config.checks.known=WSC+.csv         nothing that is in this file
  python -m launch.generate --config.model=... --config.offensive=true                offensive questions as well

2. Judge, on a page of this computer, twice by two people; every click is stored, and the page can be left at any time:

  python -m launch.generate --workdir=runs/... --annotate=anna      then open the address that is printed
  python -m launch.generate --workdir=runs/... --annotate=ben

3. Filter and draw: wscplus.csv in the published layout, agreement, Figures 2 and 3:

  python -m launch.generate --workdir=runs/... --finish

The items can then be asked: python -m launch.eval --config=wscplus --help. Without --config.offensive=true no prompt
for offensive questions is sent. --check repeats the checks with other limits, without a model.
"""

_WORKDIR = flags.DEFINE_string("workdir", None, "The run's folder; runs/<config>-<model>-<hash> by default.")
_OVERWRITE = flags.DEFINE_bool("overwrite", False, "Delete another run's records in --workdir instead of refusing it.")
_PROCESSES = flags.DEFINE_string(
    "processes",
    None,
    "Pictures: be one of several processes that share the work and --workdir: auto (TPU pod, SLURM, Open MPI), or"
    " host:port,count,number.",
)
_REUSE = flags.DEFINE_bool("reuse", True, "Items: take responses that runs beside this one have recorded.")
_CHECK = flags.DEFINE_bool("check", False, "Items: check what was generated once more, with the limits now given.")
_ANNOTATE = flags.DEFINE_string("annotate", None, "Items: serve the page on which this person judges them.")
_PORT = flags.DEFINE_integer("port", 8765, "Of the page; 0 for any free one.", lower_bound=0, upper_bound=65535)
_FINISH = flags.DEFINE_bool(
    "finish", False, "Items: keep what every annotator calls valid, and draw the figures. Comparison: print the table."
)
_CAPTION = flags.DEFINE_bool("caption", False, "Have --model write about the pictures that follow.")
_MODEL = flags.DEFINE_string(
    "model", None, "Captions: who writes; a name, folder, hub id, openai:MODEL, anthropic:MODEL."
)
_QUESTION = flags.DEFINE_string("question", None, "Captions: what is asked instead.")
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", None, "Captions: longest text, 30 by default.", lower_bound=1)
_DTYPE = flags.DEFINE_enum("dtype", None, ["float32", "bfloat16"], "Captions: what a model with weights computes in.")
_COMPARE = flags.DEFINE_bool("compare", False, "Compare the pictures of the two runs that follow.")
_RATER = flags.DEFINE_string("rater", None, "Comparison: serve the page of this person.")
_JUDGE = flags.DEFINE_list("judge", [], "Comparison: models that judge automatically, with --finish.")


def main(config: ml_collections.ConfigDict, words: list[str]) -> None:
    """Does what the flags and the config are for.

    Args:
      config: with prompts, to draw. With a method, to edit. Otherwise of WSC+ items.
      words: of the command line that are no flags: what is compared, or described.
    """
    if _CAPTION.value:
        _refuse([_COMPARE, _RATER, _JUDGE, _CHECK, _ANNOTATE, _FINISH, _PROCESSES, _OVERWRITE], "other steps")
        captioning.caption(
            words,
            model=_MODEL.value,
            question=_QUESTION.value or "",
            max_tokens=_MAX_TOKENS.value or 30,
            dtype=_DTYPE.value or "float32",
            workdir=_WORKDIR.value,
        )
        return
    _refuse([_MODEL, _QUESTION, _MAX_TOKENS, _DTYPE], "--caption")
    if _COMPARE.value:
        _refuse([_CHECK, _ANNOTATE, _PROCESSES, _OVERWRITE], "other steps than --compare")
        comparing.compare(
            words,
            rater=_RATER.value,
            finish=_FINISH.value,
            judges=_JUDGE.value,
            workdir=_WORKDIR.value,
            port=_PORT.value,
        )
        return
    if words:
        raise InputError(f"{words[0]!r} is no flag: flags start with --, and --help lists them.", code="no-such-flag")
    _refuse([_RATER, _JUDGE], "--compare")
    spec = registry.model_label((flags.FLAGS.config or DEFAULT_CONFIG).removesuffix(".py").partition(":")[0])
    if config.kind == "draw":
        _refuse([_CHECK, _ANNOTATE, _FINISH], "WSC+ items, which --config=wscplus_generate has written")
        pictures.main(
            config,
            spec=spec,
            workdir=_WORKDIR.value,
            overwrite=_OVERWRITE.value,
            processes=_PROCESSES.value,
        )
        return
    _refuse([_PROCESSES], "configs of pictures")
    if config.kind == "edit":
        _refuse([_CHECK, _ANNOTATE, _FINISH], "WSC+ items, which --config=wscplus_generate has written")
        editing.main(config, spec=spec, workdir=_WORKDIR.value, overwrite=_OVERWRITE.value)
        return
    items.main(
        config,
        spec=spec,
        workdir=_WORKDIR.value,
        step=items.Step(_CHECK.value, _ANNOTATE.value, _FINISH.value),
        port=_PORT.value,
        overwrite=_OVERWRITE.value,
        reuse=_REUSE.value,
    )


def _refuse(given: list[flags.FlagHolder], are_for: str) -> None:
    for flag in given:
        if flag.value:
            raise InputError(f"--{flag.name} is for {are_for}: leave it out", code="bad-command")


if __name__ == "__main__":
    configuration.start_with_words(main, launcher="generate", default=DEFAULT_CONFIG, usage=USAGE)
