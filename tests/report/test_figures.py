"""Figures stay whole whatever their labels and however many there are."""

import itertools
import re

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from winobench.report import figures, panels, radar
from winobench.report.figures import Mark, Panel
from winobench.report.panels import to_png, to_svg
from winobench.runs.labels import TASK_LABELS

pytestmark = pytest.mark.filterwarnings("error")

LONG = "a very long name of a task-" * 5
REAL = list(itertools.islice(itertools.cycle(TASK_LABELS.values()), 24))


def boxes_of(panel):
    """(text, box in inches) of everything that is written, as Agg measures it."""
    with figures.style():
        figure = panels._figure(panel)
        FigureCanvasAgg(figure).draw()
        renderer = figure.canvas.get_renderer()
        found = [
            (text.get_text(), np.array(text.get_window_extent(renderer).extents) / figure.dpi)
            for text in figure.findobj(matplotlib.text.Text)
            if text.get_visible() and text.get_text() and text.axes is not None
        ]
    return found


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("names", "count"),
    [
        *((REAL, 3), (REAL, 9), (REAL, 24), ([LONG] * 24, 4), ([LONG] * 24, 24)),
        *((REAL, count) for count in (4, 6, 7, 12, 17, 23)),
    ],
)
def test_labels_of_a_radar_meet_neither_each_other_nor_the_circle(names, count):
    layout = radar.radar_labels(names[:count])
    panel = radar.radar_panel("", names[:count], [(Mark("a", "#0072b2"), np.ones(count))], "")
    boxes = [box for text, box in boxes_of(panel) if text in layout.texts]
    assert len(boxes) == count
    for left, bottom, right, top in boxes:
        assert min(left, bottom, panel.width - right, panel.height - top) >= 0
        x = np.clip(layout.side, left, right) - layout.side
        y = np.clip(-layout.bottom, bottom, top) + layout.bottom
        assert np.hypot(x, y) > layout.radius
    for one, other in itertools.combinations(boxes, 2):
        assert max(one[0], other[0]) >= min(one[2], other[2]) or max(one[1], other[1]) >= min(one[3], other[3])
    assert layout.size >= 8.5
    assert panel.width < 9


@pytest.mark.parametrize("spread", [0, 1, 8, 60])
def test_labels_of_points_do_not_meet(spread):
    random = np.random.default_rng(0)
    labels = [(f"skill number {number}", *(95 - spread * random.random(2))) for number in range(9)]

    def draw(axes):
        axes.plot(*np.transpose([point for _, *point in labels]), "o")
        axes.set(xlim=(0, 100), ylim=(0, 100))
        figures.label_points(axes, labels)

    panel = Panel("", draw, 5.2, 4.2)
    boxes = [box for text, box in boxes_of(panel) if text.startswith("skill")]
    assert len(boxes) == len(labels)
    for one, other in itertools.combinations(boxes, 2):
        assert max(one[0], other[0]) >= min(one[2], other[2]) or max(one[1], other[1]) >= min(one[3], other[3])
    assert all(min(left, bottom, panel.width - right, panel.height - top) > 0 for left, bottom, right, top in boxes)


def panels_of(label):
    """One panel of each kind, with the label wherever one can stand."""
    one, other = Mark(label, "#0072b2"), Mark(label + "2", "#d55e00", "s")
    series = [(one, np.array([[0.1, 0.2], [0.0, 0.1], [0.2, 0.3]]))]
    curve = (one, np.array([1, 2, 16]), *np.array([[0.2, 0.3, 0.4], [0.1, 0.2, 0.4], [0.3, 0.4, 0.4]]))
    steps = np.array([10, 500, 900])
    errors = [(one, 1e-7 * np.array([[1.25, 2, 3], [1, 1.5, 2.5], [2, 2.5, 3.5]]))]
    return [
        figures.forest_panel(label, [label] * 2, series, np.array([[True, False]]), "d", ""),
        Panel(label, lambda axes: figures.overlap_bars(axes, [(one, other, (0.4, 0.3, 0.2, 0.1), 0.35)])),
        Panel(label, lambda axes: figures.set_bars(axes, [one, other], [((True, False), 3)], 3)),
        Panel(label, lambda axes: figures.sample_curves(axes, [curve], [(other, 0.5)], 0.25)),
        Panel(
            label,
            lambda axes: figures.timestep_lines(axes, steps, errors, "error", zero=True),
            margins=figures.Margins(left=0.72, top=0.2),
        ),
    ]


@pytest.mark.quick(2)
@pytest.mark.parametrize("label", ["W" * 120, "模型" * 60, LONG, ""])
def test_no_label_can_break_a_figure(label, tmp_path):
    panels = panels_of(label or "a")
    for panel in panels:
        for _, (left, bottom, right, top) in boxes_of(panel):
            assert min(left, bottom, panel.width - right, panel.height - top) > (-0.2 if "W" in label else -0.01)
    path = tmp_path / "all.png"
    drawn = to_png(panels, path, legend=[Mark(label, "#0072b2"), Mark(f"{label}2", "#d55e00", dash="none")])
    assert set(drawn) == set(panels)
    with Image.open(path) as image:
        assert image.size[0] < 3000
        pixels = np.asarray(image.convert("L"))
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert np.all(edge == 255)  # nothing reaches the edge


def test_a_figure_is_the_same_on_the_page_however_it_was_drawn(tmp_path):
    panels = panels_of("one")
    drawn = to_png(panels, tmp_path / "all.png")
    for panel in panels:
        texts = [re.findall(r"<text[^>]*>([^<]+)</text>", to_svg(panel, "key", one)) for one in (drawn[panel], None)]
        assert texts[0] == texts[1]


def test_a_panel_stands_in_the_file_as_it_is_drawn(tmp_path):
    panel = panels_of("one")[3]
    to_png([panel], tmp_path / "one.png")
    with figures.style():
        alone = panels._pixels(panels._figure(panel))
    whole = np.asarray(Image.open(tmp_path / "one.png").convert("L"), int)
    ground = Image.new("RGBA", alone.size, "white")
    ground.alpha_composite(alone)
    wanted = np.asarray(ground.convert("L"), int)
    top = round((panels._GAP + panels._TITLE_HEIGHT) * panels._DPI)
    left = (whole.shape[1] - wanted.shape[1]) // 2
    found = whole[top : top + wanted.shape[0], left : left + wanted.shape[1]]
    assert np.abs(found - wanted).mean() < 1
    assert wanted.std() > 5
