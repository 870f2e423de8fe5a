"""The store of raw responses: nothing is lost, nothing is asked twice, damage is named."""

import json
import os
import threading

import pytest

from tests.expectations import raises
from winobench.runs import responses
from winobench.runs.requests import (
    Entailment,
    Generation,
    ImageOptions,
    ImagesOptions,
    ImagesText,
    ImageText,
    InputImage,
    Options,
    Turn,
    check_request,
)
from winobench.runs.responses import ResponseStore, key

MODEL = {"model": "small", "options": {"b": 1, "a": 2}}


def request(text, **options):
    return Generation((Turn("user", text),), **options)


def fill(folder, *texts, process=0, **options):
    with ResponseStore(folder, process, **options) as store:
        for text in texts:
            store.add(key(MODEL, request(text)), request(text), {"body": f"to {text} — ü"}, 0.25)


def add(store, text, raw=None):
    store.add(key(MODEL, request(text)), request(text), {} if raw is None else raw, 0.0)


def num_stored(folder):
    with ResponseStore(folder) as store:
        return len(store)


def parts(folder):
    return sorted(path.name for path in folder.glob("*.jsonl"))


def test_responses_come_back_as_written(tmp_path):
    fill(tmp_path, "a", "b")
    with ResponseStore(tmp_path) as store:
        assert len(store) == 2
        assert set(store.keys()) == {key(MODEL, request("a")), key(MODEL, request("b"))}
        stored = store.get(key(MODEL, request("b")))
        options = {"max_tokens": 512, "temperature": 0.0, "sample": 0, "prefix_turns": 0}
        assert stored.request == {"kind": "generation", "turns": [{"role": "user", "text": "b"}], **options}
        assert (stored.raw, stored.seconds, stored.origin) == ({"body": "to b — ü"}, 0.25, None)
        assert key(MODEL, request("c")) not in store
        assert store.get(key(MODEL, request("c"))) is None


def test_keys_tell_apart_what_can_change_an_answer():
    same = key(MODEL, request("a"))
    assert same == key({"options": {"a": 2, "b": 1}, "model": "small"}, request("a", temperature=0, prefix_turns=1))
    assert len(same) == 64
    others = [
        key({"model": "large"}, request("a")),
        key(MODEL, request("a", sample=1)),
        key(MODEL, request("a", temperature=0.5)),
        key(MODEL, request("a", max_tokens=2)),
        key(MODEL, Generation((Turn("system", "a"),))),
        key(MODEL, Options((Turn("user", "a"),), ("x", "y"))),
        key(MODEL, Options((Turn("user", "a"),), ("y", "x"))),
        key(MODEL, Entailment("a", ("x",))),
    ]
    assert len({same, *others}) == 9


def test_keys_of_one_image_stay_and_those_of_several_have_all_in_their_order():
    """The first two as version 0.2.0 made them: recorded answers are found again."""
    first, second = (InputImage(f"{name}.png", name * 64) for name in "01")
    assert key(MODEL, ImageText(first, "q")) == "d07513e3c1607d460e1eebd99a8ccfbd0c1cdfbc5b9d2af67e279c6868534127"
    assert (
        key(MODEL, ImageOptions(first, "q", ("yes", "no")))
        == "45b225af83dca3a9b5e639bf6df7dd8c61588bd1b71afcc531fe5421f56ab9cb"
    )
    asked = ImagesText(first, "q", more_images=(second,))
    assert responses.request_json(asked)["more_images"] == [{"path": "1.png", "sha256": "1" * 64}]
    moved = ImagesText(InputImage("elsewhere.png", "0" * 64), "q", more_images=(InputImage("b.png", "1" * 64),))
    assert key(MODEL, moved) == key(MODEL, asked)
    others = [
        key(MODEL, ImageText(first, "q")),
        key(MODEL, ImagesText(second, "q", more_images=(first,))),
        key(MODEL, ImagesText(first, "q", more_images=(second, second))),
        key(MODEL, ImagesOptions(first, "q", ("yes", "no"), more_images=(second,))),
    ]
    assert len({key(MODEL, asked), *others}) == 5
    for wrong in (ImagesText(first, "q"), ImagesOptions(first, "q", ("yes", "no"))):
        with raises("wrong-length", "one image", type(wrong).__base__.__name__):
            check_request(wrong)


def test_a_line_is_synced_before_it_is_handed_on(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(os.fstat(descriptor).st_size), real(descriptor)))
    with ResponseStore(tmp_path) as store:
        before = len(synced)
        for text in "ab":
            add(store, text)
            assert synced[-1] == (tmp_path / "part-0-00000.jsonl").stat().st_size
        assert len(synced) == before + 2
    with ResponseStore(tmp_path, seconds_between_syncs=60.0) as store:
        before = len(synced)
        for text in "cd":
            add(store, text)
        assert len(synced) == before
        # Not synced, but a kill does not take what the operating system has.
        assert (tmp_path / "part-0-00001.jsonl").read_bytes().count(b"\n") == 2
    assert len(synced) == before + 1


def test_each_call_writes_a_part_and_leaves_none_empty(tmp_path):
    fill(tmp_path, "a")
    fill(tmp_path)
    fill(tmp_path, "b")
    fill(tmp_path, "c", process=1)
    assert parts(tmp_path) == ["part-0-00000.jsonl", "part-0-00001.jsonl", "part-1-00000.jsonl"]
    assert num_stored(tmp_path) == 3


@pytest.mark.parametrize("tail", [b"\x00" * 50, b'{"key":"%s","request":{}}\n' % (b"0" * 64)])
def test_a_line_that_was_cut_off_is_taken_away(tmp_path, tail):
    fill(tmp_path, "a", "b")
    path = tmp_path / "part-0-00000.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    with ResponseStore(tmp_path, process=1) as store:
        assert len(store) == 2
    assert path.read_bytes() == whole + tail  # another process's part is left alone
    fill(tmp_path, "c")
    assert path.read_bytes() == whole
    assert num_stored(tmp_path) == 3
    for end in range(whole.index(b"\n") + 1, len(whole), 50):
        path.write_bytes(whole[:end])
        with ResponseStore(tmp_path) as store:
            assert set(store.keys()) == {key(MODEL, request(text)) for text in "ac"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[:-20] + b"\n",
        lambda line: b"{}\n",
        lambda line: line.replace(b'"raw":{', b'"raw":' + b"[" * 200_000 + b"]" * 200_000 + b',"x":{'),
        lambda line: line.replace(b'"seconds":', b'"seconds":' + b"9" * 5000),
        lambda line: line.replace(b'"raw":', b'"was":'),
        lambda line: line[:-2] + b',"origin":3}\n',
        lambda line: line[:-1] + b" " * responses._LARGEST_LINE + b"\n",
    ],
)
def test_a_damaged_line_is_named_and_left_aside(tmp_path, damage, caplog):
    """What it held is asked for again; the lines around it are as they were."""
    fill(tmp_path, "a", "b", "c")
    path = tmp_path / "part-0-00000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage(lines[1]) + lines[2])
    with ResponseStore(tmp_path) as store:
        assert list(store.keys()) == [key(MODEL, request("a")), key(MODEL, request("c"))]
        assert store.get(key(MODEL, request("c"))).raw == {"body": "to c — ü"}
    assert "part-0-00000.jsonl, line 2 is damaged: its request is sent again" in caplog.text
    assert parts(tmp_path) == ["part-0-00000.jsonl"]


def test_what_an_older_version_has_stored_of_an_odd_answer_can_be_read(tmp_path):
    odd = r"Option 1 \ud83d"
    fill(tmp_path, "a")
    path = tmp_path / "part-0-00000.jsonl"
    path.write_bytes(path.read_bytes().replace(b"to a", odd.encode()))
    with ResponseStore(tmp_path) as store:
        body = store.get(key(MODEL, request("a"))).raw["body"]
    assert body.encode() == "Option 1 \ufffd — ü".encode()


def test_parts_that_kills_have_left_empty_are_used_or_taken_away(tmp_path):
    fill(tmp_path, "a")
    for number in (1, 2, 3):
        (tmp_path / f"part-0-{number:05d}.jsonl").touch()
    (tmp_path / "part-1-00000.jsonl").touch()  # another process's
    with ResponseStore(tmp_path) as store:
        assert parts(tmp_path) == ["part-0-00000.jsonl", "part-0-00003.jsonl", "part-1-00000.jsonl"]
        with raises("in-use"):
            ResponseStore(tmp_path).open()
        add(store, "b", {"body": "b"})
    assert num_stored(tmp_path) == 2
    assert parts(tmp_path) == ["part-0-00000.jsonl", "part-0-00003.jsonl", "part-1-00000.jsonl"]


def test_a_rejected_response_counts_as_absent(tmp_path):
    name = key(MODEL, request("a"))
    with ResponseStore(tmp_path / "run" / "responses") as store:
        store.add(name, request("a"), {"body": "{"}, 0.0)
        store.reject(name, "the body is not JSON")
        assert name not in store
    # A neighbour that had copied it before does not give it back.
    fill(tmp_path / "other" / "responses", "a")
    with ResponseStore(tmp_path / "run" / "responses") as store:
        assert name not in store
        assert store.share(store.neighbours(), [name]) == {}
        store.add(name, request("a"), {"body": "{}"}, 0.0)
    with ResponseStore(tmp_path / "run" / "responses") as store:
        assert store.get(name).raw == {"body": "{}"}
    assert b'{"body":"{"}' in (tmp_path / "run" / "responses" / "part-0-00000.jsonl").read_bytes()


def test_failures_are_no_responses(tmp_path):
    with ResponseStore(tmp_path, process=2) as store:
        store.fail(key(MODEL, request("a")), request("a"), {"kind": "timeout", "message": "x", "attempts": 3}, 1.5)
        assert len(store) == 0
    line = json.loads((tmp_path / "failures-2.jsonl").read_text())
    assert line["key"] == key(MODEL, request("a"))
    assert line["error"] == {"kind": "timeout", "message": "x", "attempts": 3}
    assert (line["seconds"], line["request"]["turns"]) == (1.5, [{"role": "user", "text": "a"}])
    assert parts(tmp_path) == ["failures-2.jsonl"]


def test_runs_share_responses(tmp_path, caplog):
    wanted = [key(MODEL, request(text)) for text in "abcd"]
    fill(tmp_path / "one" / "responses", "a", "b", "x")
    path = tmp_path / "one" / "responses" / "part-0-00000.jsonl"
    path.write_bytes(b"junk\n" + path.read_bytes())  # which is left aside
    fill(tmp_path / "two" / "responses", "b", "c")
    (tmp_path / "gdbench" / "errors").mkdir(parents=True)
    fill(tmp_path / "mine" / "responses", "a")
    with ResponseStore(tmp_path / "mine" / "responses") as store:
        assert [path.parent.name for path in store.neighbours()] == ["one", "two"]
        assert store.share(store.neighbours(), wanted) == {wanted[1]: "one", wanted[2]: "two"}
        assert [name in store for name in wanted] == [True, True, True, False]
        assert store.get(wanted[0]).origin is None
        assert [store.get(name).origin for name in wanted[1:3]] == ["one", "two"]
        assert store.get(wanted[2]).raw == {"body": "to c — ü"}
    # From there it goes on, and is still of the run that had asked.
    with ResponseStore(tmp_path / "last" / "responses") as store:
        assert len(store.share([tmp_path / "mine" / "responses"], wanted)) == 3
        assert store.get(wanted[1]).origin == "one"
    assert "part-0-00000.jsonl, line 1 is damaged" in caplog.text


def test_one_process_of_a_number_at_a_time(tmp_path):
    with ResponseStore(tmp_path) as store:
        add(store, "a")
        with raises("in-use"):
            ResponseStore(tmp_path).open()
        with ResponseStore(tmp_path, process=1) as other:
            assert len(other) == 1
        add(store, "b")
    assert num_stored(tmp_path) == 2


def test_threads_may_share_a_store(tmp_path):
    def work(number):
        for index in range(20):
            text = f"{number} {index}"
            add(store, text, {"body": text * 50})

    with ResponseStore(tmp_path, seconds_between_syncs=60.0) as store:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with ResponseStore(tmp_path) as store:
        assert len(store) == 80
        assert store.get(key(MODEL, request("3 19"))).raw == {"body": "3 19" * 50}


def test_a_full_disk_spoils_nothing(tmp_path, monkeypatch):
    with ResponseStore(tmp_path) as store:
        add(store, "a")
        real, written = os.write, []

        def write(descriptor, data):
            if written:
                raise OSError(28, "No space left on device")
            written.append(real(descriptor, data[:10]))
            return written[0]

        with monkeypatch.context() as patch:
            patch.setattr(responses.os, "write", write)
            with raises("cannot-write", "No space left on device"):
                add(store, "b")
        assert key(MODEL, request("b")) not in store
        add(store, "c")
    with ResponseStore(tmp_path) as store:
        assert set(store.keys()) == {key(MODEL, request("a")), key(MODEL, request("c"))}


def test_what_json_cannot_hold_is_refused(tmp_path):
    with ResponseStore(tmp_path) as store:
        with pytest.raises(ValueError, match="JSON"):
            add(store, "a", {"score": float("nan")})
        assert len(store) == 0


@pytest.mark.parametrize(
    ("make", "code"),
    [(os.mkfifo, "cannot-read"), (os.mkdir, "cannot-read"), (lambda path: os.symlink("gone", path), "dangling-link")],
)
def test_parts_that_are_not_files_are_named_and_not_waited_for(tmp_path, make, code):
    fill(tmp_path, "a")
    make(tmp_path / "part-1-00000.jsonl")
    with raises(code, "part-1-00000.jsonl"):
        fill(tmp_path, "b")
    with raises("cannot-write", "Not a directory"):
        ResponseStore(tmp_path / "part-0-00000.jsonl" / "responses").open()
