"""Groups of tasks: ``@<skill>``, ``@gdbench`` (Krojer et al.), ``@selfbench`` (Jeong et al.), and ``@<data set>``.

A skill's group lacks the tasks that run only by name. Evaluations take the tasks whose data are ready.
"""

from __future__ import annotations

import types
from collections.abc import Mapping

from winobench.base import near_names, options
from winobench.base.errors import InputError
from winobench.tasks.base import SKILLS, DataSet, Task

_NONE: Mapping[str, DataSet] = types.MappingProxyType({})
MARK = "@"
"""The beginning of a group's name."""

GDBENCH = (
    "flickr30k_image",
    "flickr30k_text",
    "winoground",
    "svo_subj",
    "svo_verb",
    "svo_obj",
    "imagecode_static",
    "imagecode",
    "aro_vg_relation",
    "aro_vg_attribution",
    "aro_coco_order",
    "aro_flickr_order",
    "pets_photo_all",
    "clevr",
    "mmbias",
    "genderbias",
)
"""The seven data sets of GDBench and its two of bias (Krojer et al. 2023, Tables 1 and 3), as the tables have them."""

SELF_BENCH = (
    *("aro_vg_attribution", "aro_vg_relation", "aro_coco_order_published", "aro_flickr_order_published", "clevr"),
    "clevr_spatial_selfbench",
    *("sugarcrepe_selfbench_att", "sugarcrepe_selfbench_obj", "sugarcrepe_replace_rel", "winoground"),
    *("vismin_object", "vismin_attribute", "vismin_counting", "vismin_relation", "cola", "whatsup_a", "whatsup_b"),
    *("coco_spatial_one", "coco_spatial_two", "gqa_spatial_one", "gqa_spatial_two"),
    *("spec_absolute_spatial_text", "spec_relative_spatial_text", "spec_absolute_size_text"),
    *("spec_relative_size_text", "spec_count_text", "spec_existence_text"),
    *("eqbench_kubric_attr", "eqbench_kubric_loc", "eqbench_kubric_cnt", "eqbench_youcook2", "eqbench_gebc"),
    *("eqbench_ag", "mmvp_color", "mmvp_spatial", "mmvp_quantity", "mmvp_orientation", "mmvp_camera", "mmvp_state"),
    *("mmvp_structural", "mmvp_presence", "mmvp_text"),
)
"""The data sets of Self-Bench's figures next to its own images (Jeong et al. 2025), in the order of its scripts."""

OF_PAPERS = {"gdbench": GDBENCH, "selfbench": SELF_BENCH}

GROUPS = (*SKILLS, *OF_PAPERS)


def members(word: str, known: Mapping[str, Task], data_sets: Mapping[str, DataSet] = _NONE) -> list[str]:
    """The names of a group's tasks, whether or not their data are there, in the order of ``known``."""
    group = word.removeprefix(MARK)
    if group in data_sets and (names := [task.name for task in data_sets[group].tasks if task.name in known]):
        return names
    if group not in GROUPS:
        choices = ", ".join(MARK + name for name in GROUPS)
        hint = near_names.did_you_mean(group, [*GROUPS, *data_sets], f"the groups are {choices}.", prefix=MARK)
        raise InputError(f"the group of tasks {options.quote(word)} is unknown: {hint}", code="unknown-name")
    if group in OF_PAPERS:
        return [name for name in OF_PAPERS[group] if name in known]
    return [name for name, task in known.items() if group in task.skills and not task.when_named]


def ready_members(
    word: str, known: Mapping[str, Task], data_dir: str | None, data_sets: Mapping[str, DataSet]
) -> list[str]:
    """The same of those whose data are there."""
    names = members(word, known, data_sets)
    ready = [name for name in names if known[name].ready(data_dir) is None]
    if not ready:
        raise InputError(
            f"no task of {word} has its data yet: prepare one of {', '.join(names)} with"
            f" `winobench prepare --tasks={names[0]}`",
            code="data-not-ready",
        )
    return ready
