"""The page: it loads nothing, escapes everything, and agrees with the files next to it."""

import base64
import dataclasses
import html.parser
import io
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.evaluation import fakes
from tests.expectations import raises
from tests.report.conftest import HOSTILE, Skilled, WithoutSamples, csv_rows, make_older, make_run
from winobench import generation, report
from winobench.report import analysis, figures, published, wording
from winobench.report.sections import differences
from winobench.runs import reading
from winobench.runs.rows import rows_of

VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(html.parser.HTMLParser):
    """What of a page the tests look at; also that its elements are closed in order."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements, self.open, self.tables, self.text = [], [], [], []
        self.feed(self.source)
        assert not self.open
        self.ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        self.images = [attributes["src"] for attributes in self.all("img")]

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        assert not [name for name in attributes if name.startswith("on")]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
        if not {"style", "script"} & set(self.open):
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())

    def section(self, key):
        start = self.source.index(f'<section id="{key}">')
        return self.source[start : self.source.index("</section>", start)]


@pytest.fixture(scope="module")
def comparison(run_folders, tmp_path_factory):
    """The folder of a report on all three runs."""
    folder = tmp_path_factory.mktemp("comparison") / "new" / "folder"
    path = report.write_report(run_folders, folder, resamples=200, reproduce=lambda run: f"make <{run.label}>")
    assert path == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def page(comparison):
    return Page(comparison / "report.html")


def test_the_page_loads_nothing(page, comparison):
    """It links to its anchors and to files next to it. A run's texts cannot become part of it."""
    elements = {tag for tag, _ in page.elements}
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & elements
    style = page.source[page.source.index("<style>") : page.source.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "<script" not in page.source
    assert HOSTILE in page.words  # as it is: neither markup nor a template
    assert "make &lt;clevr-tiny&gt;" in page.source
    assert len(page.ids) == len(set(page.ids))
    names = ("href", "src", "srcset", "action")
    addresses = [attributes[name] for _, attributes in page.elements for name in names if attributes.get(name)]
    assert addresses
    for address in addresses:
        if address.startswith("#"):
            assert address[1:] in page.ids
        elif not address.startswith("data:image/jpeg;base64,"):
            assert re.fullmatch(r"[\w-]+\.(csv|png)", address)
            assert (comparison / address).stat().st_size > 0
    referenced = set(re.findall(r"url\(#([\w.-]+)\)|by=\"([\w.-]+)\"", page.source))
    assert {one or other for one, other in referenced} <= set(page.ids)


def test_pictures_decode(page, comparison):
    assert len(page.images) > 20
    for address in page.images:
        with Image.open(io.BytesIO(base64.b64decode(address.split(",", 1)[1]))) as image:
            image.load()
            assert max(image.size) <= 160
    charts = (
        "radar",
        "samples",
        "bias",
        "overlap",
        "right_sets",
        "timesteps-1",
        "timesteps-2",
        "image_pairs-1",
        "image_pairs-2",
    )
    assert {path.stem for path in comparison.glob("*.png")} == set(charts)
    for name in (f"{chart}.png" for chart in charts):
        with Image.open(comparison / name) as image:
            image.load()
            assert min(image.size) > 200
            assert len(set(np.asarray(image.convert("L")).ravel().tolist())) > 20  # something is drawn
    assert len(list(comparison.glob("*.csv"))) == 13
    assert not [path for path in comparison.iterdir() if path.suffix not in (".png", ".csv", ".html")]


def test_sentences_begin_with_a_capital(page):
    assert re.findall(r"\w{2}\. [a-z]\w*", page.section("tasks").split("<table")[0]) == []


def test_two_images_of_one_text_are_shown(page):
    """Of each of two runs and two tasks, whose wrong image is without the badge."""
    section = page.section("image_pairs")
    assert section.count("<details") == section.count("✓ right</b>") == section.count("by the error alone") == 4
    assert section.count("<img") == section.count("less no text") - section.count("text less no text<") == 8


@pytest.mark.usefixtures("undrawn")
def test_sections_come_where_their_data_exist(page, run_folders, tmp_path):
    keys = ["runs", "tasks", "radar", "differences", "clevr", "bias", "overlap", "samples", "timesteps"]
    keys += ["image_pairs", "gallery"]
    assert [key for key in page.ids if f'<section id="{key}">' in page.source] == keys

    folder = make_run(Skilled(0.3), tmp_path / "run", chosen=[fakes.text_task()])
    one = Page(report.write_report([folder]))
    assert [key for key in keys if key in one.ids] == ["runs", "tasks", "samples", "timesteps", "gallery"]
    assert (folder / "report" / "samples.csv").is_file()
    direct = Page(report.write_report([run_folders[2]], tmp_path / "direct", gallery_examples=0))
    assert [key for key in keys if key in direct.ids] == ["runs", "tasks", "radar", "clevr", "bias"]


def test_the_task_table_is_its_csv_and_its_csv_the_results(page, comparison, run_folders):
    table = next(table for table in page.tables if table[0][0] == "task and metric")
    cells, task = {}, None
    for line in table[1:]:
        if len(line) == 1:
            task = line[0].split()[-1]
        else:
            cells[task, line[0].replace("macro accuracy", "macro_accuracy")] = line[1:]
    rows = csv_rows(comparison / "tasks.csv")
    labels = ["clevr-tiny", "sd21-base", "clip-rn50x64"]
    for row in rows:
        results = json.loads((run_folders[labels.index(row["run"])] / "results.json").read_text())["tasks"]
        entry = results[row["task"]]["/".join(filter(None, [row["group"], row["metric"]]))]
        numbers = ("value", "low", "high", "n")
        assert [float(row[key]) for key in numbers] == [entry[key] for key in numbers]
        if not row["group"]:
            cell = cells[row["task"], row["metric"]]
            texts = [f"{100 * float(row[key]):.1f}" for key in ("value", "low", "high")]
            assert cell[labels.index(row["run"])].split() == [texts[0], texts[1], "to", texts[2]]
            assert float(cell[3]) == pytest.approx(100 * entry["chance"], abs=0.05)
    whole = [row for row in rows if not row["group"]]
    assert (len(whole), len(rows)) == (3 * (1 + 1 + 3 + 2 + 2), len(whole) + 3 * (2 + 2 * 1 + 2))


def test_the_papers_numbers_stand_next_to_ours(page, comparison):
    rows = [row for row in csv_rows(comparison / "tasks.csv") if (row["task"], row["group"]) == ("clevr", "")]
    assert all(said in page.words for row in rows for said in filter(None, row["paper"].split("; ")))
    assert "59.5 CLIP RN50x64, Table 1b" in rows[0]["paper"].split("; ")
    line = next(line for table in page.tables for line in table if line[0] == "Spatial")
    assert line[-3:] == ["43.9", "47.6", "49.6"]  # Table 6


def test_differences_are_those_of_the_analysis(page, comparison, run_folders):
    squares, found_rows = [], []
    for run in map(reading.read_run, run_folders[:2]):
        squares.append(square := run.tasks["square"])
        draws = analysis.redrawn(run.batches("square"), square.examples.targets, square.judge, square.timesteps)
        found_rows.append(rows_of(square, draws))
    expected = analysis.paired_differences(*found_rows, squares[0].examples.dependence)
    rows = csv_rows(comparison / "differences.csv")
    assert f"adjusted for the {len(rows)} differences below" in page.words
    place = ("clevr-tiny", "sd21-base", "square")
    rows = {row["metric"]: row for row in rows if (row["first"], row["second"], row["task"]) == place}
    assert list(rows) == ["text", "image", "group"]
    for found in expected:
        if (row := rows.get(found.name)) is not None:
            numbers = tuple(float(row[key]) for key in ("difference", "low", "high"))
            assert numbers == (found.value, found.low, found.high)
            assert wording.percent(found.value, sign=True) in page.section("differences")
            assert row["knows_samples"] == "True"
    assert "Tango's score interval" in page.words
    assert "other noise and timesteps" in page.words


@pytest.mark.usefixtures("undrawn")
def test_marks_without_the_noise_of_samples_say_so(run_folders, tmp_path):
    lost = shutil.copytree(run_folders[1], tmp_path / "strong")
    shutil.rmtree(lost / "errors")
    page = Page(report.write_report([run_folders[0], lost], tmp_path / "out", resamples=10))
    rows = csv_rows(tmp_path / "out" / "differences.csv")
    assert {row["knows_samples"] for row in rows} == {"False"}
    assert analysis.NO_NOISE in page.section("differences")
    found = analysis.Difference("a", 0.5, 0.6, 0.1, 0.02, 0.18, 0.012, 0.012, 100, 2, 12, 14)
    assert differences._difference(found).text == "+10.0 ●"
    assert differences._difference(dataclasses.replace(found, lacks_noise=True)).text == "+10.0 ● ‡"
    unmarked = dataclasses.replace(found, lacks_noise=True, low=-0.01, p_adjusted=0.2)
    assert differences._difference(unmarked).text == "+10.0"


def test_bias_shows_stars_and_both_p_values(page, comparison, run_folders):
    rows = csv_rows(comparison / "bias.csv")
    assert {row["pair"] for row in rows} == {"Even-Odd", "Odd-Many", "average_absolute_effect_size"}
    section = page.section("bias")
    for row in rows:
        number = wording.number(float(row["value"]))
        if row["p_one_sided"]:
            assert (row["star"] == "True") == (float(row["p_one_sided"]) < 0.01)
            p_values = [wording.probability(float(row[key])) for key in ("p_one_sided", "p_two_sided")]
            assert f"p {'; '.join(p_values)}" in section
            assert int(row["permutations"]) > 100
        assert f">{number}{'★' if row['star'] == 'True' else ''}<" in section
    groups = csv_rows(comparison / "bias_groups.csv")
    assert {row["group"] for row in groups} == {"Even/association", "Odd/association", "Many/association"}
    results = json.loads((run_folders[0] / "results.json").read_text())["tasks"]["mmbias"]
    assert float(groups[0]["value"]) == results["Even/association"]["value"]
    few = [row for row in (*rows, *groups) if row["too_few"] == "True"]
    assert {row.get("pair") or row["group"] for row in few} == {name for name in results if results[name]["too_few"]}
    assert len(few) == section.count(", n too small") > 0


def test_overlap_curves_and_profiles_are_in_their_files(comparison, run_folders):
    first, second = (reading.read_run(folder).tasks["retrieval"] for folder in run_folders[:2])
    row = next(row for row in csv_rows(comparison / "overlap.csv") if row["task"] == "retrieval")
    assert float(row["both"]) == np.mean(first.examples.correct & second.examples.correct)
    sets = [row for row in csv_rows(comparison / "right_sets.csv") if row["task"] == "retrieval"]
    assert sum(int(row["examples"]) for row in sets) == 12
    samples = csv_rows(comparison / "samples.csv")
    last = [row for row in samples if (row["run"], row["task"], row["metric"]) == ("sd21-base", "square", "text")][-1]
    results = json.loads((run_folders[1] / "results.json").read_text())["tasks"]["square"]
    assert (int(last["samples"]), float(last["mean"])) == (8, results["text"]["value"])
    timesteps = csv_rows(comparison / "timesteps.csv")
    assert {row["series"] for row in timesteps if row["task"] == "pictures"} >= {"right", "wrong", "right_relative"}
    assert {row["run"] for row in timesteps} == {"clevr-tiny", "sd21-base"}
    pairs = csv_rows(comparison / "image_pairs.csv")
    assert {row["task"] for row in pairs} == {"pictures", "retrieval"}
    assert {(row["image"], row["text"]) for row in pairs} == {
        (image, text) for image in ("right", "wrong") for text in ("the text", "no text")
    }
    for row in csv_rows(comparison / "radar.csv"):  # chance is at nought, and perfect at one
        value, chance = float(row["value"]), float(row["chance"])
        assert float(row["radius"]) == pytest.approx((value - chance) / (1 - chance))


@pytest.mark.usefixtures("undrawn")
def test_runs_that_asked_different_things_are_noted(run_folders, tmp_path):
    part = make_run(
        Skilled(0.5), tmp_path / "part", chosen=[fakes.image_task(count=4), fakes.text_task()], model="part"
    )
    words = Page(report.write_report([run_folders[0], part], tmp_path / "out", resamples=50)).words
    assert "were asked different examples of Pictures (6 and 4): compared on the 4 that are the same." in words
    assert "part was not asked: CLEVR, Square, Retrieval, Relations." in words
    assert "clevr-tiny was not asked: Words." in words


@pytest.mark.usefixtures("undrawn")
def test_a_page_is_bounded(run_folders, tmp_path, monkeypatch):
    folder = shutil.copytree(run_folders[2], tmp_path / "run")
    shutil.rmtree(folder / "examples")
    config, results = (json.loads((folder / name).read_text()) for name in ("config.json", "results.json"))
    entry = results["tasks"]["clevr"]["accuracy"]
    results["tasks"]["clevr"] |= {f"group {number}/accuracy": entry for number in range(3_000)}
    results["tasks"] |= {f"task {number}": {"accuracy": entry} for number in range(300)}
    config["identity"]["tasks"] |= {f"task {number}": {} for number in range(300)}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "results.json").write_text(json.dumps(results))
    asked = []
    reference = published.reference
    monkeypatch.setattr(published, "reference", lambda *args, **kw: asked.append(1) or reference(*args, **kw))
    path = report.write_report([folder])
    assert path.stat().st_size < 2**21
    assert len(asked) < 4_000  # once a row
    assert len(csv_rows(folder / "report" / "tasks.csv")) > 3_300
    page = Page(path)
    assert "more rows are in the CSV file" in page.words
    assert "Charts and the gallery leave out the last" in page.words


@pytest.mark.usefixtures("undrawn")
def test_a_new_report_takes_the_place_of_the_former_one(run_folders, tmp_path):
    """And notes failed tasks."""
    folder = shutil.copytree(run_folders[2], tmp_path / "run")
    report.write_report([folder], tmp_path, gallery_examples=3)
    (tmp_path / "notes.csv").write_text("mine")
    assert (tmp_path / "gallery.csv").is_file()
    results = json.loads((folder / "results.json").read_text())
    results["failed"] = {"pets": "there is no image at <pets/1.jpg>"}
    (folder / "results.json").write_text(json.dumps(results))
    page = Page(report.write_report([folder], tmp_path, gallery_examples=0))
    assert "Pets gave no numbers: there is no image at <pets/1.jpg>" in page.words
    assert not (tmp_path / "gallery.csv").exists()
    assert (tmp_path / "tasks.csv").is_file()
    assert (tmp_path / "notes.csv").read_text() == "mine"


@pytest.mark.usefixtures("undrawn")
def test_an_older_run_is_reported_without_what_it_lacks(run_folders, tmp_path):
    folder = shutil.copytree(run_folders[0], tmp_path / "run")
    make_older(folder)
    page = Page(report.write_report([folder]))
    assert "timesteps" not in page.ids
    assert "samples" in page.ids
    assert "The run kept no images of these examples." in page.words
    assert not page.images


@pytest.mark.usefixtures("undrawn")
def test_a_folder_that_cannot_be_written_is_named(run_folders, tmp_path):
    (tmp_path / "file").write_text("")
    with raises("cannot-write", "--out"):
        report.write_report(run_folders[2:], tmp_path / "file")


def test_runs_look_different():
    marks = [figures.run_mark(number, str(number)) for number in range(14)]
    assert len({(mark.colour, str(mark.dash)) for mark in marks}) == 14
    assert len({mark.colour for mark in marks[:7]}) == len({mark.marker for mark in marks[:7]}) == 7


@pytest.mark.usefixtures("undrawn")
def test_too_few_samples_or_examples_make_a_sentence_and_no_curve(tmp_path):
    chosen = [fakes.text_task(), fakes.image_task(count=4)]
    few = make_run(Skilled(0.3), tmp_path / "few", chosen=chosen, num_samples=3)
    page = Page(report.write_report([few, make_run(WithoutSamples(), tmp_path / "direct", chosen=chosen)], tmp_path))
    for key in ("samples", "timesteps"):
        assert "4 samples a pair or 5 examples: Words; Pictures." in page.section(key)
        assert "<figure" not in page.section(key)
        assert not (tmp_path / f"{key}.png").exists()
    # Four examples in two runs: their overlap is in the table only.
    assert "fewer than 5 examples of them: Pictures." in page.section("overlap")
    assert page.section("overlap").count("<figure") == 1
    assert {row["task"] for row in csv_rows(tmp_path / "overlap.csv")} == {"words", "pictures"}


def test_numbers_out_of_range_are_refused_before_anything_is_read(tmp_path):
    for options, message in (
        ({"seed": -1}, ("bad-value", "seed", "-1")),
        ({"seed": 1.5}, ("bad-value", "seed", "1.5")),
        ({"resamples": 10**12}, ("out-of-range", "resamples")),
        ({"gallery_examples": -1}, ("out-of-range", "gallery", "-1")),
    ):
        with raises(*message):
            report.write_report([tmp_path / "absent"], tmp_path / "report", **options)


def test_the_first_column_of_wide_tables_stays_on_a_phone():
    for package, name in ((report, "style.css"), (generation, "images.css")):
        style = (
            (pathlib.Path(package.__file__).parent / "templates" / name).read_text().partition("@media (max-width")[0]
        )
        (rule,) = re.findall(r"^\.scroll th:first-child, \.scroll td:first-child[^{]*\{(.*)\}$", style, re.MULTILINE)
        assert all(word in rule for word in ("position: sticky", "left: 0", "background: var(--ground)"))
