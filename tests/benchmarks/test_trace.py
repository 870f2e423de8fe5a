import json

import numpy as np
import pytest
from PIL import Image

from benchmarks import trace
from benchmarks.trace import Event
from tests.expectations import raises
from winobench.engine import tables


def operation(start, end, module="jit_fused_step", device="core 0", run=1):
    return Event("XLA", "fusion", start, end, module, device, run)


def host(name, start, end, line="python"):
    return Event(line, name, start, end)


def test_intervals():
    assert trace.union([(3, 4), (0, 1), (0.5, 2), (2, 2.5), (5, 5)]) == [(0, 2.5), (3, 4)]
    assert (trace.longest([(0, 2), (3, 6), (8, 9)]), trace.longest([])) == (3, 0)


@pytest.mark.parametrize("seed", range(3))
def test_intervals_agree_with_a_grid(seed):
    random = np.random.default_rng(seed)
    grids, unions = [], []
    for _ in range(2):
        starts = random.integers(0, 90, 12)
        intervals = [(int(start), int(start + random.integers(0, 10))) for start in starts]
        grid = np.zeros(100, bool)
        for start, end in intervals:
            grid[start:end] = True
        grids.append(grid)
        unions.append(trace.union(intervals))
    one, other = grids
    assert trace.length(unions[0]) == one.sum()
    assert trace.length(trace.intersection(*unions)) == (one & other).sum()
    assert trace.length(trace.without(*unions)) == (one & ~other).sum()


def test_a_program_lasts_from_its_first_operation_to_its_last():
    events = [operation(2, 3, run=2), operation(0.0, 0.4), operation(0.9, 1.0), operation(0, 1, device="core 1")]
    assert trace.programs(events) == [
        trace.Program("core 0", "steps", 0, 1),
        trace.Program("core 1", "steps", 0, 1),
        trace.Program("core 0", "steps", 2, 3),
    ]


def test_runs_without_a_number_are_told_apart_by_the_time_between_them():
    events = [operation(start, start + 0.001, run=None) for start in (0, 0.0012, 0.5, 0.501)]
    assert [(round(run.start, 6), round(run.end, 6)) for run in trace.programs(events)] == [(0, 0.0022), (0.5, 0.502)]


EVENTS = [
    host(trace.EVALUATION, 10, 20),
    host(tables.WAITING_FOR_ITEMS, 10.5, 12),
    host(tables.WAITING_FOR_ITEMS, 15.0, 16),
    host(tables.WAITING_FOR_RESULTS, 17, 19),
    host("PjitFunction(fused_step)", 13.0, 13.2),
    host("PjitFunction(fused_step)", 13.1, 13.2),
    host("PjitFunction(fused_step)", 15.75, 15.9),
    host(tables.LOADING, 10.5, 12, "thread 1"),
    host(tables.LOADING, 10.5, 11.5, "thread 2"),
    operation(12, 13, "jit__encode"),
    operation(13, 13.5, "jit__write"),
    # While a step runs, another program on the same device does not count a second time.
    operation(13.5, 15.5),
    operation(14, 14.5, "jit__encode", run=2),
    operation(16.0, 19.0, run=3),
    operation(19.25, 20.5, "jit_other"),
    operation(12, 20, device="core 1"),
]


def test_idle_time_is_waiting_for_input_while_python_waits_for_images():
    figures = trace.device_figures(EVENTS)
    assert list(figures) == ["core 0", "core 1"]
    one = figures["core 0"]
    assert one["shares"] == {
        "steps": 0.5,
        "encoding": 0.1,
        "writing tables": 0.05,
        "other programs": 0.075,
        # 15.75 to 16.
        "idle, step queued": 0.025,
        # 10.5 to 12, and 15.5 to 15.75: until then there was something to do, and then something was queued.
        "waiting for input": 0.175,
        "idle otherwise": 0.075,
    }
    assert one["programs"] == {"steps": 2, "encoding": 2, "writing tables": 1, "other programs": 1}
    assert one["first_step_after"] == 3.5
    assert one["steps_queued_ahead_by"] == 0.375
    assert one["longest_gap"] == 0.5
    assert one["longest_wait_for_input"] == 1.5
    assert one["longest_wait_for_input_after_first_step"] == 0.25
    assert one["idle_between_programs"] == 0.075
    assert figures["core 1"]["shares"]["waiting for input"] == 0.15


def test_host_figures():
    figures = trace.host_figures(EVENTS)
    assert figures == {
        "seconds": 10,
        "images_loaded": 2,
        "images_per_second": 0.2,
        "milliseconds_an_image": 1250,
        "loading_threads": 2,
        "loading_threads_busy": 0.125,
        "python_waits": {"waiting_for_images": 0.25, "for_results": 0.2},
    }


def test_traces_that_tell_nothing(tmp_path):
    with raises("empty-trace"):
        trace.device_figures(EVENTS[1:])
    with raises("empty-trace"):
        trace.device_figures([event for event in EVENTS if event.module is None])
    with raises("empty-trace"):
        trace.read_trace(tmp_path)


def test_drawing(tmp_path):
    trace.draw({"as it is": EVENTS, "slowly": EVENTS}, tmp_path / "images" / "trace.png")
    with Image.open(tmp_path / "images" / "trace.png") as image:
        assert min(image.size) > 300
        colours = {colour for _, colour in image.getcolors(1 << 20)}
    for what in ("steps", "encoding", "writing tables", "loading an image", "waiting for input"):
        assert tuple(bytes.fromhex(trace._COLOURS[what][1:])) in colours


@pytest.mark.slow
def test_slow_loading_shows_as_idle_time(tmp_path, capsys):
    output = tmp_path / "trace.json"
    trace.main(
        ["--size", "tiny", "--images", "6", "--slow_loading", "0.6", "--output", str(output), "--keep", str(tmp_path)]
    )
    figures = json.loads(output.read_text())
    fast, slow = figures["results"].values()
    assert fast["host"]["images_loaded"] == slow["host"]["images_loaded"] == 6
    for result in (fast, slow):
        assert len(result["devices"]) == figures["devices"]
        for one in result["devices"].values():
            assert sum(one["shares"].values()) == pytest.approx(1, abs=1e-3)
            assert one["programs"]["steps"] > 0
            assert one["programs"]["encoding"] > 0
            assert one["programs"]["writing tables"] > 0
    assert all(one["shares"]["waiting for input"] > 0.5 for one in slow["devices"].values())
    assert all(one["longest_wait_for_input"] > 0.45 for one in slow["devices"].values())
    assert "| as it is:" in capsys.readouterr().out
    assert len(list(tmp_path.glob("*/plugins/profile/*/*.xplane.pb"))) == 2
