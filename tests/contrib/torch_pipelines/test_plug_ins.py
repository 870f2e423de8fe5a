"""The package as a part of winobench: its public name, and classes of diffusers that further packages add."""

import pytest

import winobench
from tests.base import test_extensions
from tests.expectations import raises
from tests.test_wrong_arguments import WRONG
from winobench.base import extensions
from winobench.contrib.torch_pipelines import families

install = test_extensions.install


@pytest.mark.parametrize("pipe", WRONG)
def test_what_is_no_pipeline_of_diffusers_ends_with_a_sentence(pipe):
    with pytest.raises(winobench.InputError):
        winobench.TorchPipeline.from_diffusers(pipe)


def test_a_package_adds_classes_of_diffusers(install):
    group = extensions.TORCH_FAMILIES
    folder = install((group, "My", "mine:FAMILY"), (group, "SanaPipeline", "mine:FAMILY"), (group, "Bad", "bad:FAMILY"))
    (folder / "mine.py").write_text(
        "from winobench.contrib.torch_pipelines.families import Family\nFAMILY = Family(side=7)\n"
    )
    (folder / "bad.py").write_text("1 / 0\n")
    assert {"My", "Bad"} == {*families.names()} - families.FAMILIES.keys()
    assert families.family_of("My").side == 7
    assert families.family_of("SanaPipeline").side == 1
    with raises("broken-plug-in", "Bad", "ZeroDivisionError"):
        families.family_of("Bad")
    with raises("wrong-kind-of-model", "ZImagePipeline", "no installed package", group):
        families.family_of("ZImagePipeline")
