"""Downloads from a server on this machine that breaks off, fails for a while or for ever, and changes its files."""

import hashlib
import io
import tarfile
import types
import zipfile

import pytest

from tests.data import web_server
from winobench.data import downloads
from winobench.errors import InputError
from winobench.tasks.published import Download

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web_server.running() as server:
        server.files["/file.bin"] = CONTENT
        yield server


class Display:
    def __init__(self):
        self.starts, self.count, self.lines = [], 0, []

    def start(self, total, done=0):
        self.starts.append((total, done))

    def advance(self, count):
        self.count += count

    def say(self, line):
        self.lines.append(line)


def fetch(download, folder, **options):
    """Downloads; returns what was displayed, and the waits."""
    display, waits = Display(), []
    downloads.fetch(download, folder, display, sleep=waits.append, **options)
    return display, waits


def _download(server, path="/file.bin", to="sub/file.bin", **options):
    return Download(to, server.address + path, **options)


def test_a_file_comes_once(server, tmp_path):
    download = _download(server, sha256=hashlib.sha256(CONTENT).hexdigest())
    display, waits = fetch(download, tmp_path)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT
    assert (display.starts, display.count, waits) == ([(len(CONTENT), 0)], len(CONTENT), [])
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["file.bin"]
    fetch(download, tmp_path)
    assert len(server.requests) == 1


def test_what_breaks_off_goes_on(server, tmp_path):
    server.behaviour = ["break 1000", "break 500", "ok"]
    display, waits = fetch(_download(server), tmp_path)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT
    assert [asked for _, asked, _ in server.requests] == [None, "bytes=1000-", "bytes=1500-"]
    assert [validator for *_, validator in server.requests] == [None, '"one"', '"one"']
    assert display.starts == [(len(CONTENT), done) for done in (0, 1000, 1500)]
    assert display.count == len(CONTENT)
    # Each attempt brought something, so that the waits do not grow.
    assert waits == [1.0, 1.0]
    assert display.lines == ["file.bin: the connection broke off, trying again in 1 s"] * 2


def test_a_later_command_goes_on_too(server, tmp_path):
    server.behaviour = ["break 1000", *["503"] * 7]
    with pytest.raises(InputError) as caught:
        fetch(_download(server), tmp_path)
    assert str(caught.value) == (
        f"{server.address}/file.bin cannot be downloaded (503 Service Unavailable): give the same command again later,"
        f" and it goes on where it was, or get the file by other means and put it at {tmp_path / 'sub' / 'file.bin'}"
    )
    assert len(server.requests) == 8
    assert not (tmp_path / "sub" / "file.bin").exists()
    fetch(_download(server), tmp_path)
    assert server.requests[-1] == ("/file.bin", "bytes=1000-", '"one"')
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT


def test_waits_grow_and_heed_the_server(server, tmp_path):
    server.behaviour = ["500", "502", "close", "503 20", "429 9999", "ok"]
    _, waits = fetch(_download(server), tmp_path)
    assert waits == [1.0, 2.0, 4.0, 20.0, 60.0]


@pytest.mark.parametrize("tag", ['"two"', None])
def test_a_file_that_changed_between_two_commands_is_not_mixed(server, tmp_path, tag):
    server.behaviour = ["break 1000", "503"]
    with pytest.raises(InputError):
        fetch(_download(server), tmp_path, attempts=1)
    server.behaviour, server.tag = [], tag
    server.files["/file.bin"] = CONTENT[::-1]
    fetch(_download(server), tmp_path)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT[::-1]


def test_a_part_of_another_address_or_without_a_tag_is_dropped(server, tmp_path):
    server.files["/other.bin"] = CONTENT[::-1]
    server.behaviour = ["break 1000"]
    with pytest.raises(InputError):
        fetch(_download(server), tmp_path, attempts=1)
    fetch(_download(server, "/other.bin"), tmp_path)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT[::-1]
    assert server.requests[-1][1] is None

    server.tag, server.behaviour = None, ["break 1000"]
    with pytest.raises(InputError):
        fetch(_download(server, to="b"), tmp_path, attempts=1)
    fetch(_download(server, to="b"), tmp_path)
    assert server.requests[-1][1] is None
    # Within one command, the total size shows that it is the same file.
    server.behaviour = ["break 1000"]
    fetch(_download(server, to="c"), tmp_path)
    assert server.requests[-1][1] == "bytes=1000-"
    assert (tmp_path / "c").read_bytes() == CONTENT


@pytest.mark.parametrize("behaviour", ["no range", "other range"])
def test_servers_that_do_not_send_what_was_asked_for(server, tmp_path, behaviour):
    server.behaviour = ["break 1000", behaviour]
    fetch(_download(server), tmp_path)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT


def test_a_file_that_became_shorter(server, tmp_path):
    server.tag = None
    server.behaviour = ["break 1000", "ok"]
    server.files["/file.bin"] = CONTENT

    def shorten(_):
        server.files["/file.bin"] = CONTENT[:500]

    downloads.fetch(_download(server), tmp_path, Display(), sleep=shorten)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT[:500]


def test_servers_that_state_no_length(server, tmp_path):
    server.states_length = False
    display, _ = fetch(_download(server), tmp_path)
    assert display.starts == [(None, 0)]
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("status", ["404", "403", "410"])
def test_a_file_that_is_not_there_is_asked_for_once(server, tmp_path, status):
    server.behaviour = [status]
    with pytest.raises(InputError) as caught:
        fetch(_download(server), tmp_path)
    assert f"/file.bin cannot be downloaded ({status} " in str(caught.value)
    assert str(caught.value).endswith(f"put it at {tmp_path / 'sub' / 'file.bin'}")
    assert len(server.requests) == 1


def test_no_server(tmp_path, server):
    download = Download("x", "http://127.0.0.1:9/x")  # the discard port, where nothing listens
    with pytest.raises(InputError, match=r"cannot be downloaded \(.*refused.*\): give the same command again later"):
        fetch(download, tmp_path, attempts=2)


def test_a_wrong_checksum(server, tmp_path):
    with pytest.raises(InputError, match=r"is not the file that was published \(SHA-256 .* instead of 00\)"):
        fetch(_download(server, sha256="00"), tmp_path)
    assert list((tmp_path / "sub").iterdir()) == []


def test_a_disk_that_is_too_small(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(InputError, match=r"needs 0.0 GB, but .* has 0.0 GB left: make room"):
        fetch(_download(server), tmp_path)


def _zip(names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return buffer.getvalue()


def _tar(names, mode):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            archive.addfile(info, io.BytesIO(name.encode()))
    return buffer.getvalue()


@pytest.mark.parametrize("make", [_zip, lambda names: _tar(names, "w:gz"), lambda names: _tar(names, "w")])
def test_archives_are_unpacked_once(server, tmp_path, make):
    server.files["/a.zip"] = make(["images/1.jpg", "list.txt"])
    download = _download(server, "/a.zip", "data/a.zip", unpack=True)
    display, _ = fetch(download, tmp_path)
    assert (tmp_path / "data" / "images" / "1.jpg").read_text() == "images/1.jpg"
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["a.zip.unpacked", "images", "list.txt"]
    assert display.lines == ["unpacking a.zip"]
    fetch(download, tmp_path)
    assert len(server.requests) == 1


def test_unpacking_goes_on_after_a_stop(server, tmp_path):
    """The archive was there, and some of its content."""
    (tmp_path / "a.zip").write_bytes(_zip(["1", "2"]))
    (tmp_path / "1").write_text("a par")
    fetch(_download(server, "/a.zip", "a.zip", unpack=True), tmp_path)
    assert [(tmp_path / name).read_text() for name in "12"] == ["1", "2"]
    assert server.requests == []


@pytest.mark.parametrize("content", [b"<html>", _zip(["1", "2"])[:-30], _tar(["1" * 90] * 9, "w:gz")[:-20], b""])
def test_a_damaged_archive_is_downloaded_anew(server, tmp_path, content):
    server.files["/a.zip"] = content
    download = _download(server, "/a.zip", "a.zip", unpack=True)
    with pytest.raises(InputError, match=r"a\.zip is damaged \(.*\): give the same command again to download it anew"):
        fetch(download, tmp_path)
    server.files["/a.zip"] = _zip(["1"])
    fetch(download, tmp_path)
    assert (tmp_path / "1").read_text() == "1"


@pytest.mark.parametrize("make", [_zip, lambda names: _tar(names, "w")])
def test_nothing_is_unpacked_outside_of_the_folder(server, tmp_path, make):
    server.files["/a.zip"] = make(["../../evil", "good"])
    try:
        fetch(_download(server, "/a.zip", "sub/sub/a.zip", unpack=True), tmp_path)
    except InputError as error:
        assert "outside" in str(error)  # noqa: PT017 (zip leaves the dots out, tar refuses)
    assert not (tmp_path / "evil").exists()


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "sub").write_text("a file")
    with pytest.raises(InputError, match=r"sub/file\.bin cannot be written: "):
        fetch(_download(server), tmp_path)


# The hub.

HUB = Download("data/images.zip", hub_id="owner/name", filename="images.zip", unpack=True)


def _hub(monkeypatch, answer):
    import huggingface_hub

    asked = []

    def download(*arguments, **options):
        asked.append((arguments, options))
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return asked


def test_hub_files_come_from_the_cache(monkeypatch, tmp_path):
    cached = tmp_path / "cache" / "images.zip"
    cached.parent.mkdir()
    cached.write_bytes(_zip(["1.jpg"]))
    asked = _hub(monkeypatch, cached)
    fetch(HUB, tmp_path / "sources")
    assert asked == [(("owner/name", "images.zip"), {"repo_type": "dataset"})]
    assert (tmp_path / "sources" / "data" / "1.jpg").read_text() == "1.jpg"
    assert cached.exists()
    whole = Download("x.zip", hub_id="owner/name", filename="images.zip")
    fetch(whole, tmp_path / "sources")
    assert (tmp_path / "sources" / "x.zip").read_bytes() == cached.read_bytes()
    assert (tmp_path / "sources" / "x.zip").is_symlink()
    fetch(whole, tmp_path / "sources")
    assert len(asked) == 2

    cached.write_bytes(b"x")
    with pytest.raises(InputError, match=r"is damaged .*: delete it from the hub's cache"):
        fetch(HUB, tmp_path / "others")
    assert cached.exists()


def test_hub_errors_say_what_to_do(monkeypatch, tmp_path):
    from huggingface_hub import errors

    def answered(kind, status):
        # As much of a response as the library's errors look at, whatever package it has responses from.
        request = types.SimpleNamespace(method="GET", url="https://huggingface.co", headers={})
        return kind("no", response=types.SimpleNamespace(status_code=status, headers={}, request=request))

    for error, message in [
        (
            answered(errors.GatedRepoError, 403),
            "the hub data set owner/name is gated: accept its terms at https://huggingface.co/datasets/owner/name, then"
            " log in with `hf auth login` or set the environment variable HF_TOKEN, and try again",
        ),
        (answered(errors.RepositoryNotFoundError, 404), "owner/name does not exist or is private: see https"),
        (errors.LocalEntryNotFoundError("offline"), "as the hub cannot be reached: check the connection"),
        (answered(errors.RemoteEntryNotFoundError, 404), "has no images.zip any more: see https"),
        (RuntimeError("disk\nfull"), "images.zip of the hub data set owner/name cannot be downloaded: disk"),
    ]:
        _hub(monkeypatch, error)
        with pytest.raises(InputError) as caught:
            fetch(HUB, tmp_path)
        assert message in str(caught.value)
