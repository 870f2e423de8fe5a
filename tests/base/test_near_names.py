"""Unknown names are answered with near ones, by all that have names."""

import pytest

import winobench
from launch import configuration, listing, prepare
from tests import launching
from tests.expectations import raises
from winobench.base import near_names, registry
from winobench.evaluation import protocols
from winobench.runs import settings
from winobench.tasks import TEXT_TASKS, groups, tasks_from


def test_near_names_come_first_in_any_case():
    assert near_names.near("Clevr-Tny", ["sd15", "clevr-tiny", "clevr-flow"], 1) == ["clevr-tiny"]
    assert near_names.did_you_mean("zzz", ["a", "b"], "it has a, b.") == "it has a, b."
    assert near_names.did_you_mean("ab", ["abc", "abd"], "", prefix="@") in (
        "did you mean @abc or @abd?",
        "did you mean @abd or @abc?",
    )
    assert near_names.near("x" * 10**6, ["x"]) == []


@pytest.mark.parametrize(
    ("use", "near"),
    [
        (lambda: configuration.load("gdbnch"), "gdbench"),
        (lambda: configuration.load("gdbench", [("limt", "3")]), "--limit"),
        (lambda: winobench.get_task("clever"), "clevr"),
        (lambda: winobench.get_task("Winoground"), "winoground"),
        (lambda: tasks_from(["@spatil"]), "@spatial"),
        (lambda: groups.members("@gdbnch", {}), "@gdbench"),
        (lambda: registry.resolve("SD21-bas"), "sd21-base"),
        (lambda: protocols.choose(TEXT_TASKS["winoviz_single"], "zeroshot", frozenset()), "zero_shot"),
        (lambda: settings.with_options({"limitt": 3}, {settings.Scoring: settings.Scoring()}), "limit"),
        (lambda: prepare.choose_tasks("coco_hardneg_trian"), "coco_hardneg_train"),
        (lambda: listing.data_sets("flikr30k_text"), "flickr30k_text"),
        (lambda: listing.models("clevr-tinny"), "clevr-tiny"),
    ],
)
def test_every_refusal_asks_for_the_near_name(use, near):
    with pytest.raises(winobench.InputError) as caught:
        use()
    said = str(caught.value)
    assert "did you mean" in said
    assert near in said.partition("did you mean")[2]
    assert len(said) < 300


def test_a_name_without_near_ones_says_where_all_are():
    with raises("unknown-name", "--list_tasks"):
        winobench.get_task("qqqqqq")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["launch.eval", "--task=clevr"], "there is no flag --task: did you mean --tasks?"),
        (["launch.eval", "--modle", "sd15"], "there is no flag --modle: did you mean --model"),
        (["launch.eval", "--config.api.vots=3"], "there is no flag --api.vots: did you mean --api.votes"),
        (["launch.eval", "--list-taks"], "there is no flag --list_taks: did you mean --list_tasks?"),
        (["launch.train", "--config=hardneg", "--learning-rate=1"], "did you mean --optimizer.learning_rate"),
        (["launch.report", "--galery=3"], "there is no flag --galery: did you mean --gallery?"),
        (["launch.cloud", "--modell=sd15"], "there is no flag --modell: did you mean --model"),
    ],
)
def test_fields_of_the_config_come_before_flags(words, said):
    launching.refuse(*words, named=[said])
