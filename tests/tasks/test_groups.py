"""Groups of tasks: who is in which, and only those whose data are there."""

import pytest

from launch import prepare
from tests.expectations import raises
from tests.tasks import published_layouts
from winobench.evaluation import choice
from winobench.tasks import DATA_SETS, TASKS, groups, tasks_from


def test_every_task_has_a_skill():
    assert [name for name, task in TASKS.items() if not task.skills and not task.when_named] == []


def test_gdbench_has_published_layouts():
    assert set(groups.GDBENCH) <= published_layouts.GDBENCH.keys()


def test_members_are_those_with_the_skill():
    assert {"winoground", "colorswap", "clevr"} <= set(groups.members("@compositional", TASKS))
    assert {"mmbias", "genderbias"} == set(groups.members("@bias", TASKS))
    assert groups.members("@selfbench", TASKS) == [name for name in groups.SELF_BENCH if name in TASKS]
    assert "clevr_hard" not in groups.members("@counting", TASKS)


def test_a_data_set_is_a_group():
    assert groups.members("@svo", TASKS, DATA_SETS) == ["svo_subj", "svo_verb", "svo_obj"]
    assert [task.name for task in prepare.choose_tasks("@svo,svo_verb")] == ["svo_subj", "svo_verb", "svo_obj"]
    with raises("unknown-name", "'svo'", "@svo"):
        choice.choose_tasks("svo")


def test_a_data_set_means_its_tasks_with_data(tmp_path):
    assert tasks_from(["@clevr_hard"], str(tmp_path)) == [task.name for task in DATA_SETS["clevr_hard"].tasks]


def test_only_tasks_with_data_are_asked(tmp_path):
    data_dir = str(tmp_path)
    assert tasks_from(["@attribute_binding"], data_dir) == ["clevr", "clevr_image", "clevr_winoground"]
    named = tasks_from(["clevr_image", "@spatial", "@compositional"], data_dir)
    assert named == ["clevr_image", "clevr", "clevr_winoground"]
    chosen = choice.choose_tasks("@spatial", data_dir)
    assert [task.name for task in chosen] == ["clevr"]
    with raises("data-not-ready", "@bias", "mmbias", "genderbias"):
        tasks_from(["@bias"], data_dir)


@pytest.mark.parametrize(("word", "near"), [("@spatail", "@spatial"), ("@", "@gdbench")])
def test_an_unknown_group_is_told_with_near_ones(word, near):
    with raises("unknown-name", repr(word), near):
        tasks_from([word])


def test_a_group_can_be_prepared():
    names = [task.name for task in prepare.choose_tasks("colorswap,@attribute_binding,@compositional")]
    assert names[:2] == ["colorswap", "aro_vg_attribution"]
    assert len(set(names)) == len(names)
    assert "clevr_image" not in names
    assert {"winoground", "coco_hardneg_text"} <= set(names)
