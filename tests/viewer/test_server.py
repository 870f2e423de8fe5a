"""The viewer's server by real requests: its application, documents, files, and what it does not give out."""

import http.client
import json
import re
import shutil
import time

import numpy as np
import pytest

from tests.viewer import folders
from winobench.runs.reading import read_run
from winobench.viewer import server as viewer
from winobench.viewer.worker import Worker


class Reader:
    """A browser without a page: it opens the printed address, keeps the cookie, and asks for what it is told to."""

    def __init__(self, server):
        self._port = server.server_port
        _, _, headers = self.ask(f"/?token={server.token}")
        self._cookie = headers["Set-Cookie"].partition(";")[0]

    def ask(self, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        cookie = {"Cookie": self._cookie} if hasattr(self, "_cookie") else {}
        connection.request("GET", path, headers={**cookie, **{key.replace("_", "-"): v for key, v in headers.items()}})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content, answer.headers

    def made(self, address, wanted=200):
        """The content and the headers of an address, for which it is asked until it is made."""
        status = 202
        while status == 202:
            status, content, headers = self.ask(f"/data/{address}")
        assert status == wanted, content
        return content, headers

    def document(self, address, status=200):
        return json.loads(self.made(address, status)[0])


@pytest.fixture(scope="module")
def reader(viewed):
    with viewer.serve(viewed, 0, "launch.reproduce:eval_command") as server:
        yield Reader(server)


def test_the_application_is_served_with_its_policy(reader):
    status, content, headers = reader.ask("/")
    (own,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', content.decode())
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Content-Security-Policy"] == f"{own}; frame-ancestors 'none'"
    assert "default-src 'none'" in own
    assert headers["Cache-Control"] == "no-cache"
    for path in ("/", "/main.js"):
        tag = reader.ask(path)[2]["ETag"]
        assert reader.ask(path, If_None_Match=tag)[:2] == (304, b"")


def test_every_file_of_the_application_has_its_kind(reader):
    kinds = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".html": "text/html"}
    for path in viewer.APP.rglob("*.*"):
        if path.is_file() and not path.is_symlink():
            status, content, headers = reader.ask(f"/{path.relative_to(viewer.APP)}")
            assert (status, len(content)) == (200, path.stat().st_size)
            assert headers["Content-Type"].partition(";")[0] == kinds.get(path.suffix, "text/plain"), path


@pytest.mark.parametrize(
    "path",
    [
        "/absent.js",
        "/../server.py",
        "/..%2fserver.py",
        "/vendor/%2e%2e/%2e%2e/server.py",
        "/vendor",
        "/%00",
        "//etc/passwd",
        "/data/",
        "/data/absent.json",
        "/data/runs/absent/run.json",
        "/data/runs/../run.json",
        "/data/runs/weak/absent.json",
        "/data/runs/weak/errors/part-0-00000.parquet",
        "/data/runs/weak/examples/absent.parquet",
        "/data/runs/weak/examples/..%2fconfig.json",
        "/data/runs/weak/examples/..%2f..%2fstrong%2fexamples%2fclevr.parquet",
        "/data/runs/weak/examples/%00.parquet",
        "/data/runs/weak/examples/" + "x" * 5_000 + ".parquet",
        "/data/runs/weak/errors/clevr/999999999.json",
        "/data/runs/weak/errors/clevr/-1.json",
        "/data/runs/weak/errors/clevr/%D9%A1.json",
        "/data/runs/weak/errors/absent/0.json",
        "/data/runs/drawn/pictures/one/0/..%2f..%2f..%2f..%2fconfig.png",
        "/data/runs/weak/export/absent.md",
        "/data/report/weak~absent.html",
        "/data/report/weak~weak.html",
        "/data/report/a~b~c~d~e~f~g.html",
        "/data/report/weak.json",
        "/data/pairs/weak.json",
    ],
)
def test_what_is_not_there_is_a_sentence(reader, path):
    status, content, headers = reader.ask(path)
    assert (status, headers["Content-Type"]) == (404, "application/json")
    assert 5 < len(json.loads(content)["error"]) < 600
    assert b"Traceback" not in content


def test_the_documents_of_a_run(reader, viewed):
    assert reader.document("site.json")["bundle"] is False
    runs = {run["slug"]: run for run in reader.document("runs.json")["runs"]}
    assert set(runs) == {path.name for path in viewed}
    assert runs["killed"]["status"] == "interrupted"
    found = reader.document("runs/weak/run.json")
    assert (found["slug"], found["label"], found["kind"]) == ("weak", runs["weak"]["label"], "images")
    assert set(found["tasks"]) == set(runs["weak"]["tasks"])
    board = {run["slug"]: run for run in reader.document("leaderboard.json")["runs"]}
    assert set(board) == {slug for slug, run in runs.items() if run["kind"] != "generated"} - {"killed"}
    assert board["weak"]["tasks"]["clevr"]["results"]["accuracy"] == {
        key: read_run(viewed[0]).results["tasks"]["clevr"]["accuracy"][key]
        for key in ("value", "low", "high", "chance", "n")
    }


def test_a_list_that_is_the_same_is_not_sent_again(reader):
    _, _, headers = reader.ask("/data/runs.json")
    assert headers["Cache-Control"] == "no-store"
    assert reader.ask("/data/runs.json", If_None_Match=headers["ETag"])[:2] == (304, b"")


def test_files_are_sent_as_they_are(reader, viewed):
    for name in ("results.json", "config.json", "examples/clevr.parquet", "gallery/clevr.parquet"):
        wanted = (viewed[0] / name).read_bytes()
        status, content, headers = reader.ask(f"/data/runs/weak/{name}")
        assert (status, content) == (200, wanted)
        status, content, more = reader.ask(f"/data/runs/weak/{name}", Range="bytes=-100")
        assert (status, content, more["ETag"]) == (206, wanted[-100:], headers["ETag"])
    image = next((viewed[-2] / "pictures").rglob("*.png"))
    status, content, headers = reader.ask(f"/data/runs/drawn/{image.relative_to(viewed[-2])}")
    assert (status, content, headers["Content-Type"]) == (200, image.read_bytes(), "image/png")


@pytest.mark.parametrize("slug", ["weak", "strong"])
def test_the_errors_of_a_row_are_those_of_the_run(reader, viewed, slug):
    run = read_run(next(path for path in viewed if path.name == slug))
    compared = 0
    for task, record in run.tasks.items():
        for batch in run.batches(task) or ():
            for place, row in enumerate(batch.rows.tolist()):
                found = reader.document(f"runs/{slug}/errors/{task}/{row}.json")
                assert set(found["terms"]) == {term.name for term in batch.terms}
                assert [found["images"], found["texts"]] == list(record.examples.scores[row].shape)
                for name, values in found["terms"].items():
                    np.testing.assert_array_equal(np.array(values, np.float32), batch.errors[name][place])
                compared += 1
    assert compared > 10


def test_what_takes_long_is_computed_once(reader):
    report, headers = reader.made("report/weak.html")
    assert b'<section id="tasks">' in report
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert b'<section id="overlap">' in reader.made("report/weak~strong.html")[0]
    assert reader.document("pairs/weak~strong.json")["rows"]
    assert len(reader.document("runs/drawn/drawn.json")["images"]) > 3
    began = time.monotonic()
    assert reader.made("report/weak.html")[0] == report
    assert time.monotonic() - began < 1


def test_a_file_to_save_says_its_name(reader):
    status, content, headers = reader.ask("/data/runs/weak/export/results.csv")
    assert (status, headers["Content-Disposition"]) == (200, 'attachment; filename="weak-results.csv"')
    assert content.startswith(b"task,")


def test_a_run_of_another_kind_is_a_sentence(reader):
    assert "kind" in reader.document("report/weak~text-first.html", 404)["error"]


def test_a_run_is_followed_while_it_is_written_and_deleted(viewed, tmp_path):
    live = tmp_path / "runs" / "live"
    with viewer.serve([tmp_path / "runs"], 0) as server:
        reader = Reader(server)
        assert reader.document("runs.json") == {"runs": []}
        parts = folders.begin(viewed[0], live)
        with folders.taken(live):
            (run,) = reader.document("runs.json")["runs"]
            assert (run["status"], run["progress"]["done"]) == ("running", 0)
            assert reader.document("runs/live/run.json", 404)["error"]
            for part in parts:
                folders.add(viewed[0], live, part)
            (run,) = reader.document("runs.json")["runs"]
            assert run["progress"]["done"] > 0
        folders.set_status(viewed[0], live, "finished")
        assert reader.document("runs.json")["runs"][0]["status"] == "finished"
        before = reader.document("runs/live/errors/clevr/0.json")
        assert reader.document("runs/live/run.json")["tasks"]
        shutil.rmtree(live)
        assert reader.document("runs.json") == {"runs": []}
        for address in ("run.json", "results.json", "errors/clevr/0.json", "examples/clevr.parquet"):
            assert "moved or deleted" in reader.document(f"runs/live/{address}", 404)["error"]
        shutil.copytree(viewed[0], live)
        assert reader.document("runs/live/errors/clevr/0.json") == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("errors", b"PAR1 is not all that a table is"),
        ("examples", b"PAR1"),
        ("examples", None),
        ("results.json", b'{"tasks": {"clevr": {"accuracy": {"value": "high"}}}}'),
    ],
)
def test_damaged_runs_are_sentences_and_the_others_stay(viewed, tmp_path, name, content):
    damaged = shutil.copytree(viewed[0], tmp_path / "damaged")
    for path in [damaged / name] if name.endswith(".json") else (damaged / name).iterdir():
        path.unlink()
        if content is None:
            path.symlink_to(tmp_path / "absent")
        else:
            path.write_bytes(content)
    with viewer.serve([damaged, viewed[1]], 0) as server:
        reader = Reader(server)
        error = reader.document("runs/damaged/errors/clevr/0.json", 404)["error"]
        assert 5 < len(error) < 600
        assert "\n" not in error
        for address in ("runs.json", "leaderboard.json", "runs/strong/run.json", "runs/strong/errors/clevr/0.json"):
            assert reader.document(address)


def test_a_crash_of_the_worker_is_a_sentence(viewed, monkeypatch):
    monkeypatch.setattr(viewer, "Worker", lambda functions: Worker("tests.viewer.worker_functions"))
    monkeypatch.setattr(viewer.site.Site, "_work", lambda self, *_, **__: viewer.site.Work("die", {}, 0))
    with viewer.serve(viewed[:1], 0) as server:
        reader = Reader(server)
        assert "without a result" in reader.document("report/weak.html", 500)["error"]
        assert reader.document("runs.json")["runs"]
