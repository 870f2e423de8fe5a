"""Makes a run of images that another program made: winobench collect FOLDER --prompts=SET"""

from __future__ import annotations

from winobench.base.errors import InputError

from . import collected_images, configuration, judged_images, output

USAGE = """
Makes a run of images that another program made, from a folder of their files (docs/howto/judge_images.md):

  winobench collect FOLDER --prompts=geneval2:FILE --name=gpt-image-1
  winobench collect FOLDER --prompts=geneval:evaluation_metadata.jsonl       <number>/samples/<n>.png
  winobench collect FOLDER --prompts=dpg_bench:FOLDER --grid=2x2             <id>.png, four images each
  winobench collect FOLDER --prompts=prompts.csv --pattern='{model}/{id}_{seed}.png'
  winobench collect FOLDER --table=images.csv                                path, prompt, model, seed
  winobench collect FOLDER --prompts=metadata                                texts of ComfyUI or AUTOMATIC1111

winobench judge, view, report and rate then read the run like one of winobench generate. winobench judge FOLDER with the
same flags does both. The layouts of benchmarks are recognised. PNG, JPEG, WebP and AVIF files are copied as RGB PNG
files, with SHA-256 of each. The same command resumes an interrupted one.
"""

collected_images.define_flags("The prompts of the images: a file, a named set such as geneval2:FILE, or metadata.")


def main(words: list[str]) -> None:
    """Makes the run, and prints where it is."""
    if not words:
        raise InputError("no folder is named: give a folder of images", code="nothing-named")
    run = collected_images.collect(collected_images.one(words))
    missing = [{"model": it.model, "seed": it.seed, "id": it.prompt.id, "kind": it.kind} for it in run.missing]
    document = {"folder": str(run.folder), "images": len(run.records), "missing": missing}
    output.print_json({**document, **judged_images.verify(run)})


if __name__ == "__main__":
    output.define_json()
    configuration.start_without_config(main, usage=USAGE, takes_words=True)
