"""Verdicts of GenEval's published detector: its layout of images, its results, and what is wrong with them."""

import dataclasses
import json

import pytest

from tests.expectations import names, raises
from tests.generation import fakes
from winobench.base.errors import InputError
from winobench.contrib.benchmarks import geneval_detector as detector
from winobench.prompts.prompt_files import Prompt
from winobench.runs import judgements
from winobench.runs import verdicts as verdict_files
from winobench.runs.verdicts import GENEVAL_DETECTOR, VERIFIER, Verdict, read_verdicts, write_verdicts

PROMPTS = [
    Prompt(
        "00003", "a photo of two clocks", "counting", {"tag": "counting", "include": [{"class": "clock", "count": 2}]}
    ),
    Prompt("00007", "a photo of a dog", "colors", {"tag": "colors", "include": [{"class": "dog", "count": 1}]}),
]


@pytest.fixture
def run(tmp_path):
    return fakes.draw(tmp_path / "run", "a", "b", prompts=PROMPTS, seeds=(0, 1))


def rows(folder, **changes):
    """The lines of results.jsonl about a folder that `detector.lay_out` has made: images of seed 0 are correct."""
    found = []
    for path in sorted(folder.glob("*/samples/*.png")):
        metadata = json.loads((path.parent.parent / "metadata.jsonl").read_text())
        correct = path.stem == "00000"
        found.append(
            {
                "filename": str(path),
                "tag": metadata["tag"],
                "prompt": metadata["prompt"],
                "correct": correct,
                "reason": "" if correct else "expected dog>=1, found 0\nexpected cat>=1, found 0",
                "metadata": json.dumps(metadata),
                "details": "{}",
            }
        )
    found[0] |= changes
    return found


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_verdicts_of_one_model_after_another(run, tmp_path):
    assert detector.lay_out(run, tmp_path / "a", "a") == 4
    assert sorted(path.relative_to(tmp_path / "a").as_posix() for path in (tmp_path / "a").rglob("*.*"))[:3] == [
        "00003/metadata.jsonl",
        "00003/samples/00000.png",
        "00003/samples/00001.png",
    ]
    row = json.loads((tmp_path / "a" / "00003" / "metadata.jsonl").read_text())
    assert row == {**PROMPTS[0].content, "prompt": PROMPTS[0].text}
    found = detector.attach(run, write(tmp_path / "results.jsonl", rows(tmp_path / "a")), "a")
    assert found == read_verdicts(run.folder)
    for record in run.records:
        if record.model == "a":
            one = found[record.file]
            assert (one.correct, one.judge, one.sha256) == (record.seed == 0, GENEVAL_DETECTOR, record.sha256)
            assert len(one.found) == 2 * record.seed
    detector.lay_out(run, tmp_path / "b", "b")
    found = detector.attach(run, write(tmp_path / "results.jsonl", rows(tmp_path / "b")), "b")
    assert len(found) == 8
    accuracy = verdict_files.generation_accuracy(run, found)
    assert {label: entry["all"]["value"] for label, entry in accuracy.items()} == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"filename": "00003/00000.png"}, "unknown-name", ("line 1", "00003/00000.png")),
        ({"filename": "00009/samples/00000.png"}, "unknown-name", ("line 1", "00009/samples/00000.png")),
        ({"filename": "00003/samples/00004.png"}, "unknown-name", ("line 1",)),
        ({"filename": "00003/samples/00001.png"}, "repeated-id", ("line 2",)),
        ({"prompt": "a photo of a dog"}, "contradicting-rows", ("line 1", "counting")),
        ({"tag": "colors"}, "contradicting-rows", ("line 1", "counting")),
        ({"correct": "true"}, "missing-field", ("line 1", "correct")),
        ({"reason": None}, "missing-field", ("line 1", "reason")),
    ],
)
def test_damaged_results(run, tmp_path, changes, code, words):
    detector.lay_out(run, tmp_path / "a", "a")
    with raises(code, *words):
        detector.attach(run, write(tmp_path / "results.jsonl", rows(tmp_path / "a", **changes)), "a")
    assert not (run.folder / "judged").exists()


def test_other_faults(run, tmp_path):
    detector.lay_out(run, tmp_path / "a", "a")
    path = write(tmp_path / "results.jsonl", rows(tmp_path / "a")[1:])
    with raises("incomplete-row", "1", "4"):
        detector.attach(run, path, "a")
    path.write_text("[]\n")
    with raises("missing-field", "line 1"):
        detector.attach(run, path, "a")
    path.write_text("{\n")
    with raises("not-json", "line 1"):
        detector.attach(run, path, "a")
    with raises("cannot-read", "absent.jsonl"):
        detector.attach(run, tmp_path / "absent.jsonl", "a")
    with raises("nothing-named", "a, b"):
        detector.attach(run, path)
    with raises("already-exists", "new folder"):
        detector.lay_out(run, tmp_path / "a", "a")
    other = fakes.draw(tmp_path / "other")
    with raises("no-content", "geneval:FILE"):
        detector.lay_out(other, tmp_path / "c")


def test_judges_are_never_mixed(run, tmp_path):
    first, second = (Verdict(record.file, record.sha256, True) for record in run.records[:2])
    assert first.judge == VERIFIER
    write_earlier(run, [first, dataclasses.replace(second, judge=GENEVAL_DETECTOR)])
    with raises("contradicting-rows", "line 2", VERIFIER, GENEVAL_DETECTOR):
        read_verdicts(run.folder)
    write_earlier(run, [first, second])
    detector.lay_out(run, tmp_path / "a", "a")
    with raises("another-run", VERIFIER):
        detector.attach(run, write(tmp_path / "results.jsonl", rows(tmp_path / "a")), "a")


def write_earlier(run, verdicts):
    """The file of earlier versions."""
    write(run.folder / verdict_files.EARLIER, map(dataclasses.asdict, verdicts))


def test_verdicts_of_earlier_versions_are_read_and_taken_over(run, tmp_path):
    earlier = [
        Verdict(record.file, record.sha256, record.seed == 0, ["expected dog>=1, found 0"], GENEVAL_DETECTOR)
        for record in run.records
        if record.model == "a"
    ]
    write_earlier(run, earlier)
    assert read_verdicts(run.folder) == {verdict.file: verdict for verdict in earlier}
    detector.lay_out(run, tmp_path / "b", "b")
    detector.attach(run, write(tmp_path / "results.jsonl", rows(tmp_path / "b")), "b")
    found = read_verdicts(run.folder)
    assert len(found) == 8
    assert [found[verdict.file] for verdict in earlier] == earlier
    (judgement,) = judgements.read_all(run)
    assert (judgement.rubric, judgement.judge, judgement.num_images) == ("geneval", GENEVAL_DETECTOR, 8)
    assert {name: found["accuracy"]["all"]["value"] for name, found in judgement.models.items()} == {"a": 0.5, "b": 0.5}


def test_damaged_verdicts_are_one_sentence(run):
    write_verdicts(run, [Verdict(run.records[0].file, run.records[0].sha256, True)])
    path = verdict_files.folder_of(run.folder, VERIFIER) / "scores.jsonl"
    path.write_text(path.read_text().replace("1.0", "0.5"))
    with pytest.raises(InputError, match=names("line 1", "scores.jsonl", "judge the images again")):
        read_verdicts(run.folder)


def test_verdicts_without_a_judge_are_the_verifiers(run):
    """Files of earlier versions."""
    record = run.records[0]
    line = {"file": record.file, "sha256": record.sha256, "correct": True, "found": None}
    write(run.folder / verdict_files.EARLIER, [line])
    assert verdict_files.judge_of(read_verdicts(run.folder)) == VERIFIER
