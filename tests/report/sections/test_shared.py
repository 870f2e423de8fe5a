"""What several sections do in the same way."""

import csv

from winobench.report import figures, wording
from winobench.report.sections import bias, shared
from winobench.report.sections.shared import ReportData
from winobench.runs import reading


def test_more_than_three_runs_are_compared_with_the_first(run_folders):
    run = reading.read_run(run_folders[0])
    assert ReportData([run] * 3, 10, 0).compared() == [(0, 1), (0, 2), (1, 2)]
    assert ReportData([run] * 5, 10, 0).compared() == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_numbers_are_written_for_people():
    assert wording.percent(0.12345) == "12.3"
    assert wording.percent(-0.0004, sign=True) == "0.0"
    assert wording.percent(-0.004, sign=True) == "−0.4"
    assert wording.percent(0.004, sign=True) == "+0.4"
    assert wording.number(-0.784) == "−0.78"
    assert wording.probability(0.0123) == "0.012"
    assert wording.probability(1 / 10_001) == "0.0001"


def test_panels_beyond_the_first_twelve_are_folded():
    panels = [(f"my_task_{number}", figures.Panel(str(number), print)) for number in range(20)]
    shown, (fold,) = shared.collapsed(panels)
    assert [*shown, *fold.panels] == [panel for _, panel in panels]
    assert len(shown) == 12
    assert fold.title == "8 more tasks"
    assert fold.names.startswith("My task 12; My task 13")
    assert not fold.is_open
    assert shared.collapsed(panels[:15]) == ([panel for _, panel in panels[:15]], [])


def test_csv_files_hold_no_formulas(tmp_path):
    rows = [{"answer": "=1+1", "@column": -0.5, "text": "-0.5"}]
    shared.Section("key", "Title", [], records={"rows.csv": rows}).write_files(tmp_path)
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["answer", "'@column", "text"], ["'=1+1", "-0.5", "-0.5"]]


def test_a_star_of_an_effect_size_is_one_sided():
    assert bias.is_starred({"p_one_sided": 0.0099, "p_two_sided": 0.02})
    assert not bias.is_starred({"p_one_sided": 0.01, "p_two_sided": 0.001})
    assert not bias.is_starred({"value": 1.0})
