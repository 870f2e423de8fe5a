"""What is asked of drawn scenes, who says whether it is there, and how that is summed up."""

import numpy as np
import pytest

from tests.expectations import raises
from tests.generation import fakes
from winobench.clevr.objects import SceneObject
from winobench.generation import verification
from winobench.metrics import intervals
from winobench.prompts import grammar
from winobench.runs import verdicts as verdict_files
from winobench.runs.verdicts import read_verdicts
from winobench.tasks import clevr_selfbench, tasks_from


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


def test_candidates_of_each_category():
    content = {"objects": [{"color": "red", "shape": "cube"}, {"color": "blue", "shape": "sphere"}]}
    prompt = grammar.Prompt("x", "A red cube and a blue sphere.", "pair_binding_color", content)
    assert clevr_selfbench.candidates(prompt)[1] == "A blue cube and a red sphere."
    for many in grammar.make_prompts(700):
        texts = clevr_selfbench.candidates(many)
        assert texts[0] == many.text
        assert len(texts) == len(set(texts)) == clevr_selfbench._SKILLS[many.category][0], many


def test_a_run_is_a_set_of_tasks(run):
    verification.verify(run, Verifier([thing("red", "cube"), thing("red", "cube")]))
    tasks = {task.name: task for task in tasks_from([f"clevr_selfbench:{run.folder}"])}
    assert len(tasks) == 7
    task = tasks["clevr_selfbench_recognition_color"]
    assert (task.shape, task.chance, task.count(None)) == ((1, 8), {"accuracy": 1 / 8}, 4)
    for example in task.load(None, None):
        red = example.texts[example.target] == "A red object."
        generator = example.id.split("/")[0]
        assert example.groups == ((generator, f"{generator}, correct") if red else (generator,))
    with raises("named-twice", "'a'"):
        tasks_from([f"clevr_selfbench:{run.folder}"] * 2)


def test_prompts_must_say_what_they_want(tmp_path):
    run = fakes.draw(tmp_path / "run")
    assert not verification.can_verify(run)
    with raises("no-content", "--prompts=clevr"):
        verification.verify(run, Verifier([]))
    with raises("no-content", "--prompts=clevr"):
        tasks_from([f"clevr_selfbench:{run.folder}"])
