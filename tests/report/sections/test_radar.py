"""Which tasks are on the radar chart."""

from winobench.report.sections import radar
from winobench.report.sections.shared import ReportData
from winobench.runs import reading
from winobench.runs.run import Run


def radar_tasks(folder, names):
    """The tasks on the radar of a run, and the section's words."""
    template = reading.read_run(folder).tasks["clevr"]
    run = Run(folder, "one", {"config": {}, "identity": {}}, {"tasks": {}}, dict.fromkeys(names, template), {}, [])
    section = radar.radar_section(ReportData([run], 10, 0))
    return [row["task"] for row in section.records["radar.csv"] if row["series"] == "one"], " ".join(section.intro)


def test_other_forms_of_a_task_leave_a_crowded_radar(run_folders):
    forms = ["clevr_image", "clevr_winoground", "pets_photo"]
    many = [f"task_{number}" for number in range(13)]
    shown, words = radar_tasks(run_folders[0], [*many, *forms])
    assert shown == many
    assert "in the table only" in words.lower()
    assert "CLEVR image; CLEVR Winoground; Pets, photo prompt" in words
    shown, words = radar_tasks(run_folders[0], [*many[:12], *forms])
    assert shown == [*many[:12], *forms]
    assert "table only" not in words
