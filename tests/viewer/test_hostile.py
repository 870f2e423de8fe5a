"""Folders that are hostile or damaged, or that change while they are viewed: nothing executes, and a sentence tells."""

import contextlib
import csv
import io
import itertools
import os
import re
import shutil
import threading
import time
import urllib.parse

import pyarrow.parquet as pq
import pytest

from tests.viewer import browser, folders
from winobench.base import csv_cells

pytestmark = pytest.mark.slow

# What winobench writes of LaTeX. Every other special character is escaped.
_LATEX = re.compile(
    r"\\\\|\\(?:text[a-z]+|ldots|d?dag)\{\}|\\[&%$#_{}]|\$(?:[-+]|\\[a-z]+)?\$|\\(begin|end)\{tabular\}"
    r"|\\(toprule|midrule|bottomrule|addlinespace|cmidrule)|\\multicolumn\{\d+\}\{l\}\{\\textbf"
)
_LONGEST_SENTENCE = 700
_MOST_MIB = 900  # of the server with its worker, whatever it is given


def names(visit):
    return {run["slug"]: run for run in visit.document("runs.json")["runs"]}


def sentences(visit):
    return [text.strip() for text in visit.page.locator("main [role=alert]:visible").all_inner_texts()]


def memory(process):
    """MiB of a process and its children."""
    pids = [process.pid]
    for pid in pids:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            pids += map(int, file.read().split())
    found = 0
    for pid in pids:
        with open(f"/proc/{pid}/status") as file:
            found += int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])
    return found / 1024


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return folders.hostile_runs(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("host", ["server", "bundle"])
def test_markup_is_text(chromium, hostile, screenshots, host):
    with _hosted(host, hostile) as address, browser.Visit(chromium, address) as visit:
        seen = ""
        for route in browser.routes(visit):
            assert (route, browser.check_page(visit, route, axe=False)) == (route, [])
            assert visit.page.evaluate("window.executed") is None, route
            assert visit.page.locator("main :is(script, foreignObject, iframe, object)").count() == 0
            seen += visit.page.locator("main").inner_text()
    assert folders.MARKUP in " ".join(seen.split())


@contextlib.contextmanager
def _hosted(host, runs):
    with contextlib.ExitStack() as stack:
        if host == "server":
            yield stack.enter_context(browser.serving(*runs))[0]
        else:
            yield stack.enter_context(browser.hosting(stack.enter_context(browser.bundled(runs)), ranges=True))


def test_saved_tables_have_no_formula(chromium, hostile, tmp_path):
    saved = 0
    with browser.serving(*hostile) as (address, _):
        with browser.Visit(chromium, address) as visit:
            routes = [one for one in browser.routes(visit) if re.match("#/(questions|run|flips|bias)/", one)]
        for route, kind in itertools.product(routes, ("CSV", "LaTeX", "Parquet")):
            with browser.Visit(chromium, address) as visit:  # Chromium drops the eleventh download of a page
                visit.open(route)
                for button in visit.page.get_by_role("button", name=re.compile(f"Save .* as {kind}")).all():
                    with visit.page.expect_download() as started:
                        button.click()
                    path = tmp_path / f"{saved}-{kind}"
                    started.value.save_as(path)
                    _check_saved(kind, path)
                    saved += 1
                assert visit.page.evaluate("window.executed") is None
    assert saved > 2


def _check_saved(kind, path):
    if kind == "CSV":
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
        assert len({len(row) for row in rows}) == 1
        plain = [cell for row in rows for cell in row if not cell.startswith("'")]
        assert [cell for cell in plain if csv_cells.escape_formula(cell) != cell] == []
    elif kind == "LaTeX":
        lines = [line for line in path.read_text().splitlines() if not line.startswith("%")]
        assert [line for line in lines if re.search(r"[#%$~^\\]", _LATEX.sub("", line))] == []
    else:
        pq.read_table(path)


@pytest.fixture(scope="module")
def damaged(viewed, chromium, tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged")
    folders.damaged_runs(viewed[0], root)
    with browser.serving(root, viewed[1]) as (address, process), browser.Visit(chromium, address) as visit:
        yield visit, process


@pytest.mark.parametrize("name", folders.DAMAGES)
def test_damaged_files_are_said_in_a_sentence(damaged, name):
    visit, process = damaged
    visit.problems.clear()
    run = names(visit)[name]
    said = [run["reason"]] if run["status"] in ("unreadable", "failed") else []
    for route in (
        "#/",
        f"#/run/{name}",
        f"#/run/{name}/report",
        f"#/questions/{name}/clevr",
        f"#/question/{name}/clevr/0",
        f"#/flips/strong/{name}?task=clevr",
        f"#/compare/strong/{name}",
    ):
        visit.open(route)
        said += sentences(visit)
        assert visit.page.evaluate("window.executed") is None
        assert [one for one in visit.problems if one.startswith(("page error", "dialog", "request"))] == []
    assert said or name.startswith(("gallery", "errors")), "nobody says what is wrong"
    for sentence in said:
        assert 10 < len(sentence) < _LONGEST_SENTENCE
        assert "Traceback" not in sentence
        assert "undefined" not in sentence
    assert names(visit)["strong"]["status"] == "finished"
    assert memory(process) < _MOST_MIB


def test_links_lead_nowhere(damaged):
    visit, _ = damaged
    for place in (
        "runs/table-link/examples/clevr.parquet",
        "runs/results-link/results.json",
        "runs/table-fifo/examples/clevr.parquet",
        "runs/strong/examples/..%2F..%2Ftable-cut%2Fconfig.json",
        "runs/strong/..%2F..%2Fconfig.json",
        "runs/..%2F/config.json",
        "runs/strong/pictures/..%2F..%2F..%2Fetc%2Fpasswd",
    ):
        response = visit.context.request.get(f"{visit.base}data/{place}", timeout=10_000)
        assert response.status in (400, 403, 404), (place, response.status)
        assert "root:" not in response.text()


def test_a_run_is_deleted_while_it_is_viewed(chromium, viewed, tmp_path):
    for run in viewed[:2]:
        shutil.copytree(run, tmp_path / run.name)
    with browser.serving(tmp_path) as (address, _), browser.Visit(chromium, address) as visit:
        visit.open("#/question/weak/clevr/0")
        shutil.rmtree(tmp_path / "weak")
        for route in ("#/question/weak/clevr/1", "#/run/weak", "#/compare/strong/weak"):
            visit.page.evaluate("(route) => { location.hash = route }", route)
            visit.page.wait_for_function(
                "() => document.querySelector('main [role=alert]') !== null", timeout=browser.MILLISECONDS
            )
            visit.wait()
        visit.open("#/")
        assert list(names(visit)) == ["strong"]
        assert "strong" in visit.page.locator("main").inner_html()
        assert [one for one in visit.problems if one.startswith(("page error", "dialog"))] == []


def test_a_run_is_written_while_it_is_viewed(chromium, viewed, tmp_path):
    with browser.serving(tmp_path) as (address, _), browser.Visit(chromium, address) as visit:
        writing = threading.Thread(target=folders.run_again, args=(viewed[0], tmp_path / "live", 8))
        writing.start()
        try:
            while not (tmp_path / "live" / "config.json").exists():
                time.sleep(0.01)
            visit.open("#/")
            row = visit.page.locator("main tr", has=visit.page.locator('a[href="#/run/live"]'))
            assert row.locator("progress").count() == 1 or "running" in row.inner_text()
            # Nobody touches the page: it follows the run.
            visit.page.wait_for_function(
                "() => document.querySelector('main table')?.innerText.includes('finished')", timeout=30_000
            )
        finally:
            writing.join()
        assert visit.problems == []
        assert browser.check_page(visit, "#/questions/live/clevr", axe=False) == []


def test_a_table_is_replaced_while_it_is_read(chromium, viewed, tmp_path):
    shutil.copytree(viewed[0], tmp_path / "weak")
    table = tmp_path / "weak" / folders.TABLE
    with browser.serving(tmp_path) as (address, _), browser.Visit(chromium, address) as visit:
        visit.open("#/questions/weak/clevr")
        rows = pq.read_table(table)
        pq.write_table(rows.slice(0, 4), tmp_path / "new.parquet", compression="zstd", row_group_size=1)
        os.replace(tmp_path / "new.parquet", table)
        for row in (0, 3, 12):
            visit.page.evaluate("(route) => { location.hash = route }", f"#/question/weak/clevr/{row}")
            visit.page.wait_for_function("(row) => location.hash.endsWith(`/${row}`)", arg=str(row))
            visit.wait()
        assert [one for one in visit.problems if one.startswith(("page error", "dialog"))] == []
        visit.page.reload()
        visit.wait()
        assert len(sentences(visit)) == 1
        assert browser.check_page(visit, "#/question/weak/clevr/3", axe=False) == []


def test_ten_thousand_runs(chromium, viewed, tmp_path):
    folders.many_runs(viewed[0], tmp_path, 10_000)
    with browser.serving(tmp_path) as (address, process), browser.Visit(chromium, address) as visit:
        begin = time.monotonic()
        assert browser.check_page(visit, "#/", axe=False) == []
        assert time.monotonic() - begin < 30
        assert "10,000" in visit.page.locator("main").inner_text()
        assert memory(process) < _MOST_MIB


def test_odd_paths_on_the_command_line(chromium, viewed, tmp_path):
    odd = tmp_path / urllib.parse.unquote("a%20b%25%23%3F%22'%0A%C3%A9")
    shutil.copytree(viewed[0], odd / "..x y")
    with browser.serving(odd) as (address, _), browser.Visit(chromium, address) as visit:
        for route in browser.routes(visit):
            assert browser.check_page(visit, route, axe=False) == []
