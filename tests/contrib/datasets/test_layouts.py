"""Every task reads its published layout, and names what is wrong with its annotation file."""

import pytest

from tests.contrib.datasets.layouts import ANNOTATIONS, LAYOUTS
from tests.report.test_published import IMAGE_NUMBERS
from tests.tasks.test_annotations import OTHER_JSON, check_items, check_json, check_missing, with_json
from winobench import tasks
from winobench.contrib import datasets
from winobench.runs.labels import TASK_LABELS, task_label
from winobench.tasks import TASKS, groups
from winobench.tasks.base import SKILLS


def test_every_task_with_published_data_has_a_layout():
    own = {name for name, module in tasks._modules()["TASKS"].items() if module.startswith(datasets.__name__)}
    assert {name for name in own if TASKS[name].source is not None} == set(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_items_are_as_the_task_declares(name, tmp_path):
    check_items(name, LAYOUTS[name](tmp_path))


# VisMin has two files, and needs any one.
@pytest.mark.parametrize("name", sorted(ANNOTATIONS.keys() - {"vismin_object"}))
def test_missing_annotations_are_named(name, tmp_path):
    check_missing(name, LAYOUTS[name](tmp_path) / ANNOTATIONS[name], tmp_path)


@pytest.mark.parametrize("name", with_json(ANNOTATIONS))
@OTHER_JSON
def test_json_of_another_kind_is_named(name, content, tmp_path):
    check_json(name, content, LAYOUTS[name](tmp_path) / ANNOTATIONS[name], tmp_path)


def test_labels_and_published_numbers_are_of_known_tasks():
    names = {*TASKS, *tasks.TEXT_TASKS}
    assert {name for name in names if task_label(name) == TASK_LABELS.get(name)} >= set(TASK_LABELS)
    assert {number.task for number in IMAGE_NUMBERS if not number.task.startswith("selfbench_")} <= names


def test_every_skill_has_tasks():
    assert all(groups.members(f"@{skill}", TASKS) for skill in SKILLS)
