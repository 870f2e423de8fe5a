"""Progress in a log: lines with counts, speed and rest; and on a terminal: a bar."""

import io

import rich.console

from winobench.data import progress


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Progress("preparing toy", "images") as shown:
        shown.start(4000, 1000)
        for seconds in (10, 20, 31, 35, 62):
            now[0] = seconds
            shown.advance(200)
        shown.say("a [note]")
    assert capsys.readouterr().err.splitlines() == [
        "preparing toy: 1,000 of 4,000 images",
        "preparing toy: 1,600 of 4,000 images, 2.1 minutes left",
        "preparing toy: 2,000 of 4,000 images, 2.1 minutes left",
        "a [note]",
    ]
    with progress.Progress("downloading x", "bytes") as shown:
        shown.start(None)
        now[0] = 100
        shown.advance(5_500_000)
    assert capsys.readouterr().err.splitlines() == ["downloading x", "downloading x: 5.5 MB"]


def test_a_bar_on_a_terminal(monkeypatch):
    output = io.StringIO()
    console = rich.console.Console(file=output, force_terminal=True, width=100)
    monkeypatch.setattr(progress.rich.console, "Console", lambda stderr: console)
    with progress.Progress("preparing [toy]", "images") as shown:
        shown.start(40, 10)
        shown.advance(10)
        shown.start(40, 15)
        shown.say("a note")
        shown.advance(25)
    assert "preparing [toy]" in output.getvalue()
    assert "40/40" in output.getvalue()
    assert "a note" in output.getvalue()
