"""The packages of the package import downwards, the drawing shows it, and what docs/howto/extend.md promises holds."""

import dataclasses
import functools
import importlib
import importlib.util
import pathlib
import re

import numpy as np
import pytest

from tests.evaluation import fakes
from winobench import metrics, report
from winobench.diffusion import flow_schedule, samplers
from winobench.evaluation import evaluate
from winobench.metrics import normalization
from winobench.report import page
from winobench.report.sections.shared import Section
from winobench.runs import reading

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def architecture():
    spec = importlib.util.spec_from_file_location("draw_architecture", ROOT / "docs" / "draw_architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    read, edges = module.imports, module.edges
    module.imports = functools.cache(lambda path: [*read(path)])  # each file once for all tests
    module.edges = functools.cache(edges)
    return module


def test_no_package_imports_one_above_it(architecture):
    arrows = architecture.edges()
    heights = architecture.floors(arrows)
    assert heights["base"] == 0
    assert max(heights, key=heights.get) == "launch"
    assert not [(here, there) for here, there in arrows if heights[there] >= heights[here]]


def test_no_module_is_part_of_a_circle(architecture):
    architecture.check_modules()


def test_no_module_imports_the_top(architecture):
    tops = {name for name, path in architecture.sources() if "winobench" in architecture.imports(path)}
    assert tops <= {"winobench.__main__", *(name for name in tops if re.search(r"(^|\.)launch(\.|$)", name))}


def test_names_that_load_a_higher_package_are_on_the_page(architecture):
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE))
    assert set(architecture.upwards_by_name()) == listed


def test_circles_are_noticed(architecture):
    with pytest.raises(ValueError, match=r"(a -> b -> a|b -> a -> b)"):
        architecture.floors([("a", "b"), ("b", "a"), ("a", "c")])


def test_every_import_counts(architecture, tmp_path):
    path = tmp_path / "module.py"
    path.write_text("import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    from c import d\n")
    assert sorted(architecture.imports(path)) == ["a", "b", "c.d"]


def test_the_drawing_is_up_to_date(architecture):
    assert architecture.main(["--check"]) == 0, "run python docs/draw_architecture.py"


def test_every_package_is_described():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    described = set(re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))))
    packages = {path.parent.name for path in (ROOT / "winobench").glob("*/__init__.py")} - {"contrib"}
    assert packages | {"base", "launch", "configs"} == described


def test_what_is_named_on_the_page_is_there():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    names = re.findall(r"`((?:\w+\.)+\w+)`", page.partition("## Data flow of one triple")[2].partition("## Where")[0])
    assert len(names) > 10
    for name in names:
        package, *parts = name.split(".")
        module = f"{package}.{parts[0]}" if package == "launch" else f"winobench.{package}.{parts[0]}"
        found = importlib.import_module(module)
        for part in parts[1:]:
            found = getattr(found, part)
    # The files that the table says to begin with.
    for packages, files in re.findall(r"^\| (`.*?`) \| .* \| (`.*?`) \|$", page, re.MULTILINE):
        roots = {"launch": ROOT, "configs": ROOT}
        folders = [roots.get(each, ROOT / "winobench") / each for each in _quoted(packages)]
        folders += [ROOT, ROOT / "winobench"]
        for file in _quoted(files):
            assert any((folder / file).exists() for folder in folders), file


def _quoted(text):
    return re.findall(r"`(.*?)`", text)


def test_a_section_is_a_function_and_a_line(tmp_path, monkeypatch):
    run = evaluate.evaluate(fakes.FakeScorer(), [fakes.text_task()], tmp_path / "run", num_samples=4, progress=False)

    def colour_section(report_data):
        return Section("colours", "Colours of the runs", [f"{len(report_data.runs)} run, no colours."])

    monkeypatch.setattr(page, "SECTIONS", (*page.SECTIONS, colour_section))
    text = report.write_report([run["workdir"]]).read_text()
    assert "Colours of the runs" in text
    assert "1 run, no colours." in text


def test_a_sampler_is_a_class_and_a_line(monkeypatch):
    """The one of docs/howto/extend.md."""
    page = (ROOT / "docs" / "howto" / "extend.md").read_text()
    code = page.partition("## Add a sampler")[2].partition("```python\n")[2].partition("```")[0]
    names = {"__name__": "halving", "dataclasses": dataclasses, "np": np}
    monkeypatch.setattr(samplers, "SAMPLERS", dict(samplers.SAMPLERS))
    exec(code, names)
    schedule = flow_schedule.FlowSchedule()
    found = samplers.find_sampler("halving", schedule)
    noise, image = np.random.default_rng(0).normal(size=(2, 1, 2, 2, 3)).astype(np.float32)
    plan = found.plan(schedule, 4)
    drawn = samplers.sample(found, lambda *_: noise - image, plan, noise, np.zeros((1, 1)))
    np.testing.assert_allclose(plan.times, [1000, 500, 250, 125])
    np.testing.assert_allclose(drawn, image, atol=1e-6)


def test_a_normalisation_is_an_entry(tmp_path, monkeypatch):
    """Half of it is the error of the gray image alone: planned, scored, added up and read back by the report."""
    monkeypatch.setitem(normalization.NORMALIZATIONS, "gray_alone", (normalization.OWN, normalization.GRAY_IMAGE))
    run = evaluate.evaluate(
        fakes.FakeScorer(),
        [fakes.text_task(), fakes.image_task()],
        tmp_path / "run",
        num_samples=4,
        normalize="gray_alone",
        progress=False,
    )
    read = reading.read_run(run["workdir"])
    names = {task: [term.name for term in read.batches(task)[0].terms] for task in read.tasks}
    assert names == {"words": ["own", "gray_image"], "pictures": ["own"]}
    (batch,) = read.batches("words")
    own, gray = (batch.errors[name].mean(axis=-1, dtype=np.float64) for name in ("own", "gray_image"))
    np.testing.assert_array_equal(np.stack(read.tasks["words"].examples.scores), -own + gray)


def test_a_metric_is_an_object(tmp_path, monkeypatch):
    """In this process; tests/plugins does the same with a package."""

    def judge(scores, targets):
        right = metrics.ACCURACY.judge(scores, targets)["accuracy"]
        return {"failures": metrics.Outcome(~right.correct, right.tie)}

    metric = metrics.Metric("failures", judge, headline="failures", higher_is_better=False)
    monkeypatch.setitem(metrics.METRICS, "failures", metric)
    task = fakes.text_task(metric="failures", chance={"failures": 0.5})
    run = evaluate.evaluate(fakes.FakeScorer(), [task], tmp_path / "run", num_samples=8, progress=False)
    assert run["tasks"]["words"]["failures"]["chance"] == 0.5
    text = report.write_report([run["workdir"]]).read_text()
    assert "failures" in text
    assert 'id="samples"' in text
