"""What is asked of drawn scenes, who says whether it is there, and how that is summed up."""

import numpy as np
import pytest

from tests.expectations import raises
from tests.generation import fakes
from winobench.clevr.objects import SceneObject
from winobench.contrib.studies import verification
from winobench.metrics import intervals
from winobench.prompts import grammar
from winobench.runs import verdicts as verdict_files
from winobench.runs.verdicts import read_verdicts


def thing(color, shape, size="large", right=0.25):
    return SceneObject(shape, color, size, "rubber", right, 0.5, 0.1, 0.0)


class Verifier:
    """Finds in every picture what it is told to."""

    class config:
        sample_size = 4

    def __init__(self, objects):
        self.objects_of = objects
        self.shapes = []

    def objects(self, images):
        self.shapes += [image.shape for image in images]
        return [self.objects_of] * len(images)


PROMPTS = grammar.make_prompts(14)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose verdicts each test writes."""
    return fakes.draw(tmp_path_factory.mktemp("drawn") / "run", "a", "b", prompts=PROMPTS, seeds=(1,))


def test_what_is_shown_by_hand():
    red_cubes = {"objects": [{"color": "red", "shape": "cube", "count": 2}]}
    for objects, expected in (
        ([thing("red", "cube")], False),
        ([thing("red", "cube"), thing("red", "sphere")], False),
        ([thing("red", "cube"), thing("red", "cube"), thing("blue", "cube")], True),
    ):
        assert grammar.is_shown(red_cubes, [verification.to_thing(one) for one in objects]) == expected
    left = {"objects": [{"color": "red", "shape": "cube", "side": "left", "count": 1}]}
    assert grammar.is_shown(left, [verification.to_thing(thing("red", "cube", right=0.4))])
    assert not grammar.is_shown(left, [verification.to_thing(thing("red", "cube", right=0.6))])


def test_verdicts_are_written_and_summed_up(run):
    found = [thing("red", "cube"), thing("red", "cube", right=0.8)]
    verifier = Verifier(found)
    verdicts = verification.verify(run, verifier)
    assert read_verdicts(run.folder) == verdicts
    assert len(verdicts) == 28
    assert set(verifier.shapes) == {(4, 4, 3)}
    for record in run.records:
        things = [verification.to_thing(one) for one in found]
        assert verdicts[record.file].correct == grammar.is_shown(record.prompt.content, things)
        assert verdicts[record.file].found[0]["color"] == "red"
    accuracy = verdict_files.generation_accuracy(run, verdicts)
    assert set(accuracy) == {"a", "b"}
    rows = [verdicts[record.file].correct for record in run.records if record.model == "a"]
    # Two prompts of each of seven categories: the mean over categories is that over pictures.
    assert accuracy["a"]["all"]["value"] == pytest.approx(np.mean(rows))
    some = [one for one in run.records if one.model == "a" and one.prompt.category == "recognition_shape"]
    expected = intervals.wilson(sum(verdicts[one.file].correct for one in some), len(some))
    entry = accuracy["a"]["recognition_shape"]
    assert (entry["value"], entry["low"], entry["high"], entry["n"]) == pytest.approx((*expected, 2))


def test_prompts_must_say_what_they_want(tmp_path):
    run = fakes.draw(tmp_path / "run")
    assert not verification.can_verify(run)
    with raises("no-content", "--prompts=clevr"):
        verification.verify(run, Verifier([]))
