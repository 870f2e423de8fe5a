"""Documents hold the numbers of the runs, and their texts as they are."""

import dataclasses
import json
import re
import shutil

import pyarrow.parquet as pq
import pytest

from tests.evaluation import fakes
from tests.expectations import raises
from tests.generation import fakes as generation_fakes
from tests.report.conftest import Skilled, csv_rows, draw_nothing, make_older, make_run
from winobench import report
from winobench.base import csv_cells, parquet_files
from winobench.base.texts import text_hash
from winobench.generation.judged import folder_of, judge_images
from winobench.report import analysis
from winobench.runs import image_runs, reading
from winobench.runs.image_records import ImageStore, MissingImage
from winobench.runs.verdicts import read_verdicts, write_verdicts
from winobench.viewer import documents
from winobench.viewer.errors import Errors


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two runs with two tasks of one skill, one of which has other examples in the second run."""
    root = tmp_path_factory.mktemp("pair")
    clevr = fakes.text_task("clevr", 8, ("spatial", "recognition_color"))
    folders = []
    for name, skill, count in (("one", 0.2, 6), ("two", 0.7, 5)):
        chosen = [clevr, fakes.image_task("clevr_hard_image", count), fakes.square_task()]
        folders.append(make_run(Skilled(skill), root / name, chosen=chosen, model=f"model-{name}"))
    return folders


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raced") / "run"
    return make_run(Skilled(1), folder, chosen=[fakes.text_task(), fakes.image_task()], num_samples=128, mode="race")


def test_a_run_without_its_tables(viewed, monkeypatch):
    """The table's rows are counted, not read."""
    monkeypatch.setattr(parquet_files, "read", lambda *_: pytest.fail("a whole table was read"))
    found = documents.run_document(viewed[0], "weak", reproduce=lambda run: f"make {run.label}")
    tasks = found["tasks"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["slug"], found["label"], found["kind"]) == ("weak", "clevr-tiny", "images")
    assert found["command"] == "make clevr-tiny"
    assert dict(found["facts"])["normalisation"] == "auto"
    rows = {"clevr": 16, "pictures": 6, "square": 6, "retrieval": 12, "relations": 10, "mmbias": 24}
    assert {name: task["rows"] for name, task in tasks.items()} == rows
    assert tasks["pictures"]["terms"] == ["own", "unconditional"]
    assert [name for name, task in tasks.items() if not task["has_errors"]] == ["mmbias"]
    assert {name: task["kind"] for name, task in tasks.items() if task["kind"] != "answers"} == {"mmbias": "bias"}
    assert (tasks["square"]["shown"], tasks["square"]["num_samples"]) == (["text", "image", "group"], 8)
    assert len(tasks["square"]["timesteps"]) == 8
    assert documents.run_document(viewed[0], "weak", "another label")["label"] == "another label"


def test_papers_numbers_of_a_run(viewed):
    published = documents.run_document(viewed[1], "strong")["tasks"]["clevr"]["published"]
    assert {(number["metric"], number["model"]) for number in published} == {
        (metric, "sd21-base") for metric in ("accuracy", "spatial/accuracy", "recognition_color/accuracy")
    }
    assert all(number["value"] == pytest.approx(float(number["printed"]) / 100) for number in published)


def test_text_runs_and_older_ones(viewed, run_of_an_earlier_version):
    found = documents.run_document(viewed[3], "first")
    (task,) = found["tasks"].values()
    assert (found["kind"], task["kind"], task["has_errors"], task["terms"]) == ("text", "text", False, None)
    older = documents.run_document(run_of_an_earlier_version, "older")["tasks"]
    assert (older["clevr"]["rows"], older["clevr"]["has_gallery"], older["clevr"]["terms"]) == (16, False, None)


@pytest.fixture
def run_of_an_earlier_version(tmp_path):
    clevr = fakes.text_task("clevr", 8, ("spatial", "recognition_color"))
    folder = make_run(Skilled(0.3), tmp_path / "older", chosen=[clevr])
    make_older(folder)
    return folder


def test_a_broken_table_is_a_note(run_of_an_earlier_version):
    (run_of_an_earlier_version / "examples" / "clevr.parquet").write_bytes(b"PAR1 cut")
    found = documents.run_document(run_of_an_earlier_version, "broken")
    assert (found["tasks"]["clevr"]["rows"], found["tasks"]["clevr"]["has_errors"]) == (None, False)
    assert any(note.startswith("The table of the examples of clevr cannot be read") for note in found["notes"])


@pytest.mark.parametrize("places", [[0, 1, 2], [0], [3, 4]])
def test_a_report_is_the_page(viewed, places, tmp_path, monkeypatch):
    """It is the page without links to files next to it."""
    draw_nothing(monkeypatch)
    folders = [viewed[place] for place in places]
    written = report.write_report(folders, tmp_path).read_text()
    page = documents.report_page(folders)
    assert "Next to this page" in written
    assert "Next to this page" not in page
    assert page.split() == re.sub(r'<p class="files">.*?</p>', "", written).split()
    assert "a label" in documents.report_page(folders[:1], ["a label"])


def test_pairs_are_the_reports_differences(pair, tmp_path, monkeypatch):
    found = documents.pair_document(*pair)
    draw_nothing(monkeypatch)
    report.write_report(pair, tmp_path)
    written = csv_rows(tmp_path / "differences.csv")
    names = {"first": "first_value", "second": "second_value", "clusters": "images_apart"}
    keys = ("first", "second", "difference", "low", "high", "p", "only_first", "only_second", "n", "clusters")
    assert len(found["rows"]) == len(written)
    for row, expected in zip(found["rows"], written, strict=True):
        named = [csv_cells.unescape_formula(expected[key]) for key in ("task", "metric", "group")]
        assert [row[key] for key in ("task", "metric", "group")] == named
        assert [row[key] for key in keys] == [float(expected[names.get(key, key)]) for key in keys]
        assert str(not row["lacks_noise"]) == expected["knows_samples"]
    assert {"@spatial", "@attribute_binding", "clevr", "square"} <= {row["task"] for row in found["rows"]}
    assert {row["group"] for row in found["rows"] if row["task"] == "clevr"} == {"", "spatial", "recognition_color"}
    assert any("compared on the" in note for note in found["notes"])
    assert (found["first"], found["second"]) == ("model-one", "model-two")
    assert (found["clear_below"], found["few_clusters"]) == (analysis.CLEAR_BELOW, analysis.FEW_CLUSTERS)


def test_a_pair_turned_round(pair):
    """A bundle has one order; the application makes the other one by these signs."""
    one, other = (documents.pair_document(*folders)["rows"] for folders in (pair, pair[::-1]))
    for row, turned in zip(one, other, strict=True):
        assert (turned["first"], turned["second"]) == (row["second"], row["first"])
        assert (turned["only_first"], turned["only_second"]) == (row["only_second"], row["only_first"])
        values = [-turned["difference"], -turned["high"], -turned["low"], turned["p"]]
        assert values == pytest.approx([row["difference"], row["low"], row["high"], row["p"]], abs=1e-12)


def test_runs_of_two_kinds(viewed):
    with raises("runs-of-two-kinds"):
        documents.pair_document(viewed[0], viewed[3])


def recorded(folder, timesteps):
    """(image, text, sample) -> error, by the parts alone, of samples with these timesteps."""
    found = {}
    for path in sorted((folder / "errors").glob("*.parquet")):
        table = pq.read_table(path)
        there = json.loads(table.schema.metadata[b"winobench.timesteps"])
        for row in table.to_pylist():
            for sample, error in enumerate(row["errors"], row["first_sample"]):
                if sample < len(timesteps) and there[sample] == timesteps[sample]:
                    found[row["image"], row["text"], sample] = error
    return found


@pytest.mark.parametrize("kind", ["sampled", "raced"])
def test_errors_are_those_of_the_parts(kind, pair, raced):
    """A row an example, in the order of the examples, null where a race never computed a sample."""
    folder = {"sampled": pair[0], "raced": raced}[kind]
    run, missing = reading.read_run(folder), 0
    for name, record in run.tasks.items():
        errors = recorded(folder, record.timesteps.tolist())
        table = documents.errors_table(run, name)
        assert table.num_rows == len(record.examples.ids)
        rows = Errors()
        for row, values in enumerate(table.to_pylist()):
            assert rows.row(str(folder), name, row)["terms"] == values  # as the server finds it
            texts = [text_hash(text) for text in record.examples.texts[row]]
            images = record.examples.images[row]
            expected = [
                [[errors.get((image, text, sample)) for sample in range(record.num_samples)] for text in texts]
                for image in images
            ]
            assert values["own"] == expected
            missing += sum(value is None for each in expected for one in each for value in one)
            if "unconditional" in values:
                empty = [
                    [[errors.get((image, text_hash(""), sample)) for sample in range(record.num_samples)]]
                    for image in images
                ]
                assert values["unconditional"] == empty
    assert (missing > 0) == (kind == "raced")


def test_tasks_without_errors(viewed):
    assert documents.errors_table(reading.read_run(viewed[0]), "mmbias") is None
    assert documents.errors_table(reading.read_run(viewed[3]), "wscplus") is None


def test_generated_images(viewed):
    run = image_runs.read_images(viewed[5])
    found = documents.images_document(viewed[5], "drawn")
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [image["file"] for image in found["images"]] == [record.file for record in run.records]
    verdicts = read_verdicts(viewed[5])
    assert all(image["verdict"]["correct"] == verdicts[image["file"]].correct for image in found["images"])
    assert all(image["prompt"] == found["prompts"][image["number"]]["text"] for image in found["images"])
    (accuracy, _) = found["rubrics"]
    assert (accuracy["rubric"], accuracy["judge"]) == ("clevr", "CLEVR verifier")
    assert {row["model"] for row in accuracy["rows"]} == {model["label"] for model in found["models"]}


def test_scores_of_a_judge(viewed, tmp_path):
    folder = shutil.copytree(viewed[5], tmp_path / "drawn")
    run = image_runs.read_images(folder)
    made = judge_images(run, generation_fakes.ImageJudge(), name="a judge", rubric="vqa_score", progress=False)
    (_, found) = documents.images_document(folder, "drawn")["rubrics"]
    assert (found["rubric"], found["judge"]) == ("vqa_score", "a judge (published: CLIP-FlanT5-XXL)")
    assert found["wordings"] == ['Does this figure show "{}"? Please answer yes or no.']
    expected = made.models["one"]["vqa_score"]["all"]
    assert {"model": "one", "metric": "vqa_score", "group": "all", **expected} in found["rows"]


def test_scores_by_an_earlier_version_of_a_rubric_are_marked(viewed, tmp_path):
    folder = shutil.copytree(viewed[5], tmp_path / "drawn")
    run = image_runs.read_images(folder)
    made = judge_images(run, generation_fakes.ImageJudge(), name="clip-flant5-xxl", rubric="vqa_score", progress=False)
    results = folder_of(run, "vqa_score", "clip-flant5-xxl") / "results.json"
    for version, mark in ((made.version, ""), (made.version - 1, f", by version {made.version - 1} of the rubric")):
        results.write_text(json.dumps(json.loads(results.read_text()) | {"version": version}))
        judges = [rubric["judge"] for rubric in documents.images_document(folder, "drawn")["rubrics"]]
        assert f"{made.who}{mark}" in judges


def test_missing_images(viewed, tmp_path):
    folder = shutil.copytree(viewed[5], tmp_path / "drawn")
    run = image_runs.read_images(folder)
    first = run.records[0]
    place = {"model": first.model, "seed": first.seed, "number": first.number}
    with ImageStore(folder) as store:
        store.add_missing([MissingImage(first.prompt, *first.place, first.fingerprint, "filtered", "no cubes here")])
    found = documents.images_document(folder, "drawn")
    assert found["missing"] == [{**place, "prompt": first.prompt.text, "kind": "filtered", "reason": "no cubes here"}]
    assert first.file not in {image["file"] for image in found["images"]}
    total = sum(record.model == first.model for record in run.records)
    (said,) = found["rubrics"][0]["no_image"]
    assert said.startswith(f"{first.model} lacks 1 of {total} images")


def test_verdicts_on_images_that_were_generated_again(viewed, tmp_path):
    folder = shutil.copytree(viewed[5], tmp_path / "drawn")
    first, *others = read_verdicts(folder).values()
    write_verdicts(image_runs.read_images(folder), [dataclasses.replace(first, sha256="0" * 64), *others])
    found = {image["file"]: image["verdict"] for image in documents.images_document(folder, "drawn")["images"]}
    assert found[first.file] is None
    assert all(found[one.file] == {"correct": one.correct, "found": one.found, "judge": one.judge} for one in others)
    (folder / others[0].file).unlink()
    assert others[0].file not in {image["file"] for image in documents.images_document(folder, "drawn")["images"]}


@pytest.mark.parametrize("name", ["model-card.md", "eval_results.yaml", "results.csv", "results.tex", "report.html"])
def test_files_for_others(viewed, name, monkeypatch):
    draw_nothing(monkeypatch)
    assert "clevr" in documents.export(viewed[0], name, lambda run: "winobench eval").lower()


def test_unknown_files(viewed):
    with raises("unknown-name"):
        documents.export(viewed[0], "passwd")
