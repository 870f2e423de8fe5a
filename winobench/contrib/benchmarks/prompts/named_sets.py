"""The sets of prompts by their names, as in `winobench.prompts.named_sets`."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

from winobench.base import files
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import cvtg as cvtg_files
from winobench.contrib.benchmarks.prompts import dpg_bench as dpg_bench_files
from winobench.contrib.benchmarks.prompts import gedit as gedit_files
from winobench.contrib.benchmarks.prompts import imgedit as imgedit_files
from winobench.contrib.benchmarks.prompts import longtext as longtext_files
from winobench.contrib.benchmarks.prompts import oneig as oneig_files
from winobench.contrib.benchmarks.prompts import t2i_compbench as compbench_files
from winobench.contrib.benchmarks.prompts import t2i_reasonbench as reasonbench_files
from winobench.contrib.benchmarks.prompts import tiif as tiif_files
from winobench.contrib.benchmarks.prompts import unigenbench as unigenbench_files
from winobench.contrib.benchmarks.prompts import wise as wise_files
from winobench.prompts.prompt_files import (
    Layout,
    NamedSet,
    Prompt,
    existing_file,
    existing_folder,
    make_prompt,
    text_lines,
)

_COMPBENCH_SUFFIX = "_val"


def t2i_compbench(source: str) -> list[Prompt]:
    """T2I-CompBench's validation prompts (Huang et al. 2023), from a ``<category>_val.txt`` or all of a folder.

    Where ``<category>_val_phrases.jsonl`` lies next to it, the content of each has its noun ``phrases``.
    """
    path = pathlib.Path(files.user_path(source or "."))
    is_folder = path.is_dir()
    paths = sorted(path.glob(f"*{_COMPBENCH_SUFFIX}.txt")) if is_folder else [existing_file("t2i_compbench", source)]
    if not paths:
        raise InputError(f"{path} has no file {'<category>' + _COMPBENCH_SUFFIX}.txt: name T2I-CompBench's folder")
    prompts = []
    for file in paths:
        category = file.stem.removesuffix(_COMPBENCH_SUFFIX)
        lines = [(number, line.strip()) for number, line in text_lines(file)]
        phrases = compbench_files.read_phrases(
            file.with_name(f"{file.stem}_phrases.jsonl"), {line for _, line in lines}
        )
        for number, line in lines:
            content = {"phrases": phrases[line]} if phrases else None
            fields = {"id": f"{category}-{number}", "category": category, "content": content}
            prompts.append(make_prompt(f"line {number} of {file}", line, **fields))
    return prompts


def dpg_bench(source: str) -> list[Prompt]:
    """DPG-Bench's 1,065 prompts, from its folder or its CSV file alone."""
    return dpg_bench_files.read(_existing("dpg_bench", source))


def tiif(folder: str) -> list[Prompt]:
    """TIIF-Bench's prompts, short and long, from a folder of them."""
    return tiif_files.read(existing_folder("tiif", folder))


def oneig(folder: str) -> list[Prompt]:
    """OneIG-Bench's English prompts with questions, texts or right answers, from its repository's folder."""
    return oneig_files.read(existing_folder("oneig", folder), "en")


def oneig_zh(folder: str) -> list[Prompt]:
    """OneIG-Bench's Chinese prompts with questions, texts or right answers, from its repository's folder."""
    return oneig_files.read(existing_folder("oneig_zh", folder), "zh")


def longtext(source: str) -> list[Prompt]:
    """LongText-Bench's 160 prompts in English, in Chinese, or both, from a file or a folder."""
    return longtext_files.read(_existing("longtext", source))


def cvtg(folder: str) -> list[Prompt]:
    """CVTG-2K's 2,000 prompts, from its folder."""
    return cvtg_files.read(existing_folder("cvtg", folder))


def _existing(name: str, source: str) -> pathlib.Path:
    """The folder or file of a named set."""
    existing = existing_folder if os.path.isdir(files.user_path(source or ".")) else existing_file
    return existing(name, source)


def wise(folder: str) -> list[Prompt]:
    """WISE's 1,000 prompts of 2025 or of WISE_Verified, from the folder of the three files."""
    return wise_files.read(existing_folder("wise", folder))


def t2i_reasonbench(folder: str) -> list[Prompt]:
    """T2I-ReasonBench's 800 prompts with questions, from its repository's folder."""
    return reasonbench_files.read(existing_folder("t2i_reasonbench", folder))


def unigenbench(file: str) -> list[Prompt]:
    """UniGenBench++'s 600 prompts of one language and length, from their CSV file."""
    return unigenbench_files.read(existing_file("unigenbench", file))


def gedit(folder: str) -> list[Prompt]:
    """GEdit-Bench's edits in both languages, from the data set's folder."""
    return gedit_files.read(existing_folder("gedit", folder))


def gedit_en(folder: str) -> list[Prompt]:
    """GEdit-Bench's edits in English."""
    return gedit_files.read(existing_folder("gedit_en", folder), "en")


def gedit_cn(folder: str) -> list[Prompt]:
    """GEdit-Bench's edits in Chinese."""
    return gedit_files.read(existing_folder("gedit_cn", folder), "cn")


def imgedit(folder: str) -> list[Prompt]:
    """ImgEdit's 737 single edits, from the data set's folder Benchmark/singleturn."""
    return imgedit_files.read(existing_folder("imgedit", folder))


# As the published code reads them: compute_dpg_bench.py, BLIP_vqa.py, eval_with_vlm.py, CVTG-2K's eval.py,
# alignment_score.py and eval_idiom.py, at the commits that the readers of the prompts name.
_DPG_BENCH = (Layout("DPG-Bench's", "{id}"),)
_COMPBENCH = tuple(
    Layout("T2I-CompBench's", f"{folder}{{prompt}}_{{seed}}")
    for folder in ("", "samples/", "{category}/", "{category}/samples/")
)
_TIIF = (Layout("TIIF-Bench's", "{part}/{model}/{length}_description/{index}", "{part}-{index}-{length}"),)
_CVTG = (Layout("CVTG-2K's", "{part}/{regions}/{index}", "{part}_{regions}_{index}"),)
_ONEIG = (Layout("OneIG-Bench's", "{part}/{model}/{key}", "{part}_{key}", black_is_missing=True),)
_REASONBENCH = (Layout("T2I-ReasonBench's", "{part}/{key}", "{part}-{key}"),)

# test_gedit_score.py, and basic_bench.py of ImgEdit.
_SOURCE = gedit_files.SOURCE_END
_GEDIT = {
    language: tuple(
        Layout("GEdit-Bench's", f"{folder}{{part}}/{language}/{{key}}", f"{{part}}-{language}-{{key}}", False, _SOURCE)
        for folder in ("fullset/", "", "{model}/fullset/")
    )
    for language in (*gedit_files.LANGUAGES, "{lang}")
}
_IMGEDIT = (Layout("ImgEdit's", "{id}"),)

NAMED_SETS: Mapping[str, NamedSet] = {
    "t2i_compbench": NamedSet(t2i_compbench, ":FILE_OR_FOLDER", "T2I-CompBench, *_val.txt", _COMPBENCH),
    "dpg_bench": NamedSet(dpg_bench, ":FOLDER_OR_FILE", "DPG-Bench, dpg_bench.csv and prompts", _DPG_BENCH),
    "tiif": NamedSet(tiif, ":FOLDER", "TIIF-Bench, test_prompts or testmini_prompts", _TIIF),
    "oneig": NamedSet(oneig, ":FOLDER", "OneIG-Bench's prompts with questions, OneIG-Bench.csv and scripts", _ONEIG),
    "oneig_zh": NamedSet(oneig_zh, ":FOLDER", "the same in Chinese, OneIG-Bench-ZH.csv and scripts", _ONEIG),
    "longtext": NamedSet(longtext, ":FOLDER_OR_FILE", "LongText-Bench, text_prompts.jsonl and text_prompts_zh.jsonl"),
    "cvtg": NamedSet(cvtg, ":FOLDER", "CVTG-2K, CVTG and CVTG-Style", _CVTG),
    "wise": NamedSet(wise, ":FOLDER", "WISE, WISE_legacy/data or data_verified"),
    "t2i_reasonbench": NamedSet(
        t2i_reasonbench, ":FOLDER", "T2I-ReasonBench, prompts and deepseek_evaluation_qs", _REASONBENCH
    ),
    "gedit": NamedSet(gedit, ":FOLDER", "GEdit-Bench, the data set's tables", _GEDIT["{lang}"]),
    "gedit_en": NamedSet(gedit_en, ":FOLDER", "the same in English alone", _GEDIT["en"]),
    "gedit_cn": NamedSet(gedit_cn, ":FOLDER", "the same in Chinese alone", _GEDIT["cn"]),
    "imgedit": NamedSet(imgedit, ":FOLDER", "ImgEdit's single edits, Benchmark/singleturn", _IMGEDIT),
    "unigenbench": NamedSet(unigenbench, ":FILE", "UniGenBench++, test_prompts_en.csv and the other three"),
}
"""Name -> set of prompts."""
