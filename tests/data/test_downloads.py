"""Downloads from a server on this machine that breaks off, fails for a while or for ever, and changes its files."""

import contextlib
import hashlib
import io
import resource
import socket
import stat
import tarfile
import types
import urllib.error
import urllib.request
import zipfile

import pytest

from tests.data import web_server
from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.data import downloads
from winobench.data.sources import Download

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web_server.running() as server:
        server.files["/file.bin"] = CONTENT
        yield server


def fetch(download, folder, **options):
    """Downloads; returns what was displayed, and the waits."""
    display, waits = web_server.Display(), []
    downloads.fetch(download, folder, display, **{"sleep": waits.append, **options})
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
    with raises("cannot-download", f"{server.address}/file.bin", "503", "later", str(tmp_path / "sub" / "file.bin")):
        fetch(_download(server), tmp_path)
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


def test_a_file_that_became_shorter(server, tmp_path):
    server.tag, server.behaviour = None, ["break 1000", "ok"]
    fetch(_download(server), tmp_path, sleep=lambda _: server.files.update({"/file.bin": CONTENT[:500]}))
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT[:500]


@pytest.mark.parametrize("length", [None, "\xb2", "9" * 5000, "-1"])
def test_servers_that_state_no_length(server, tmp_path, length):
    server.states_length, server.odd_length = False, length
    display, _ = fetch(_download(server), tmp_path)
    assert display.starts == [(None, 0)]
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("behaviour", ["no range", "other range"])
def test_servers_that_do_not_send_what_was_asked_for(server, tmp_path, behaviour):
    server.behaviour = ["break 1000", behaviour]
    fetch(_download(server), tmp_path)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT


def test_what_is_not_as_it_should_be(server, tmp_path, monkeypatch):
    server.behaviour = ["404"]
    with raises("cannot-download", "404", str(tmp_path / "sub" / "file.bin")):
        fetch(_download(server), tmp_path)
    assert len(server.requests) == 1
    with raises("wrong-checksum", "SHA-256", "00"):
        fetch(_download(server, sha256="00"), tmp_path)
    assert list((tmp_path / "sub").iterdir()) == []
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda path: types.SimpleNamespace(free=10))
    with raises("disk-full", "0.0", "GB"):
        fetch(_download(server), tmp_path)
    (tmp_path / "file").write_text("a file")
    with pytest.raises(InputError, match=names("file/file.bin")):
        fetch(_download(server, to="file/file.bin"), tmp_path)


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


@pytest.mark.parametrize("content", [b"<html>", _zip(["1", "2"])[:-30], _tar(["1" * 90] * 9, "w:gz")[:-20]])
def test_a_damaged_archive_is_downloaded_anew(server, tmp_path, content):
    server.files["/a.zip"] = content
    download = _download(server, "/a.zip", "a.zip", unpack=True)
    with pytest.raises(InputError, match=names("a.zip")):
        fetch(download, tmp_path)
    server.files["/a.zip"] = _zip(["1"])
    fetch(download, tmp_path)
    assert (tmp_path / "1").read_text() == "1"


@pytest.mark.parametrize("make", [_zip, lambda names: _tar(names, "w")])
def test_nothing_is_unpacked_outside_of_the_folder(server, tmp_path, make):
    server.files["/a.zip"] = make(["../../evil", "good"])
    # Zip leaves the dots out, tar refuses.
    with contextlib.nullcontext() if make is _zip else raises("damaged-file", "outside"):
        fetch(_download(server, "/a.zip", "sub/sub/a.zip", unpack=True), tmp_path)
    assert not (tmp_path / "evil").exists()


def _tar_of(*members):
    """A tar of (name, type, link, content)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, link, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size, info.mode = kind, link, len(content), 0o755
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _escaping_tar():
    """The shape of CVE-2025-4517: links whose paths are too long to be resolved lead out of the folder."""
    members, path, long = [], "", "d" * 247
    for step in "abcdefghijklmnop":
        members += [(f"{path}{long}", tarfile.DIRTYPE, "", b""), (f"{path}{step}", tarfile.SYMTYPE, long, b"")]
        path += f"{long}/"
    link = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    members += [(link, tarfile.SYMTYPE, "../" * 16, b""), ("escape", tarfile.SYMTYPE, f"{link}/../outside", b"")]
    members += [("new", tarfile.LNKTYPE, "escape/secret.txt", b""), ("new", tarfile.REGTYPE, "", b"written")]
    return _tar_of(*members, ("escape/more.txt", tarfile.REGTYPE, "", b"written"))


def _zip_of_link():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "../outside")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        _escaping_tar(),
        _tar_of(("link", tarfile.SYMTYPE, "../outside", b"")),
        _tar_of(("file", tarfile.REGTYPE, "", b"1"), ("link", tarfile.LNKTYPE, "file", b"")),
        _tar_of(("pipe", tarfile.FIFOTYPE, "", b"")),
        _tar_of(("device", tarfile.CHRTYPE, "", b"")),
        _zip_of_link(),
    ],
)
def test_links_and_devices_are_not_unpacked(tmp_path, content):
    outside, data = tmp_path / "outside", tmp_path / "data"
    outside.mkdir()
    data.mkdir()
    (outside / "secret.txt").write_text("secret")
    (data / "a.tar").write_bytes(content)
    with raises("unsupported-archive", "a.tar"):
        fetch(Download("a.tar", url="http://127.0.0.1:1/", unpack=True), data)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"secret.txt": "secret"}
    assert not any(path.is_symlink() for path in data.rglob("*"))
    assert not (data / "a.tar.unpacked").exists()


def test_nothing_is_written_through_a_link_of_the_folder(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sub").symlink_to(tmp_path / "outside")
    (tmp_path / "data" / "a.tar").write_bytes(_tar(["sub/file"], "w"))
    with raises("damaged-file", "a.tar", "sub/file"):
        fetch(Download("a.tar", url="http://127.0.0.1:1/", unpack=True), tmp_path / "data")
    assert not [*(tmp_path / "outside").iterdir()]


@pytest.mark.parametrize("make", [_zip, lambda names: _tar(names, "w")])
@pytest.mark.parametrize("name", ["list.csv", "LIST.csv", "x/../list.csv", "b.zip.unpacked", "list.csv.part", "a.zip"])
def test_an_archive_takes_no_name_of_another_download(tmp_path, make, name):
    (tmp_path / "a.zip").write_bytes(make(["first", name]))
    if make is _zip and ".." in name:
        name = "x/list.csv"  # zip leaves the dots out
        fetch(Download("a.zip", url="http://127.0.0.1:1/", unpack=True), tmp_path, others=["list.csv"])
        assert (tmp_path / name).exists()
        return
    with raises("damaged-file", "a.zip", name):
        fetch(Download("a.zip", url="http://127.0.0.1:1/", unpack=True), tmp_path, others=["list.csv", "b.zip"])
    assert not (tmp_path / "list.csv").exists()
    assert not (tmp_path / "b.zip.unpacked").exists()


def test_a_file_that_is_there_has_its_checksum(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(b"another")
    with raises("wrong-checksum", "file.bin"):
        fetch(_download(server, to="file.bin", sha256=hashlib.sha256(CONTENT).hexdigest()), tmp_path)
    assert (tmp_path / "file.bin").read_bytes() == b"another"


@pytest.mark.parametrize("name", ["file.bin", "file.bin.unpacked"])
@pytest.mark.parametrize("unpack", [False, True])
def test_a_folder_is_not_a_finished_download(server, tmp_path, name, unpack):
    (tmp_path / name).mkdir()
    with raises("cannot-write", name):
        fetch(_download(server, to="file.bin", unpack=unpack), tmp_path)
    assert not server.requests


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
    with raises("damaged-file"):
        fetch(HUB, tmp_path / "others")
    assert cached.exists()


def test_hub_errors_say_what_to_do(monkeypatch, tmp_path):
    from huggingface_hub import errors

    def answered(kind, status):
        # As much of a response as the library's errors look at, whatever package it has responses from.
        request = types.SimpleNamespace(method="GET", url="https://huggingface.co", headers={})
        return kind("no", response=types.SimpleNamespace(status_code=status, headers={}, request=request))

    page = "https://huggingface.co/datasets/owner/name"
    for error, code, *words in [
        (answered(errors.GatedRepoError, 403), "gated-repository", page, "HF_TOKEN"),
        (answered(errors.RepositoryNotFoundError, 404), "no-such-repository", "owner/name", page),
        (errors.LocalEntryNotFoundError("offline"), "hub-not-reached", "HF_HUB_OFFLINE"),
        (answered(errors.RemoteEntryNotFoundError, 404), "no-such-file", "images.zip", page),
        (RuntimeError("disk\nfull"), "cannot-download", "images.zip", "owner/name", "disk"),
    ]:
        _hub(monkeypatch, error)
        with raises(code, *words):
            fetch(HUB, tmp_path)


def _zip_with(value, offset):
    """A zip file with another value in both headers of its member."""
    content = bytearray(_zip(["1.jpg"]))
    for place in (content.index(b"PK\x03\x04") + offset, content.index(b"PK\x01\x02") + offset + 2):
        content[place] = value
    return bytes(content)


def _with_a_damaged_middle(mode):
    content = bytearray(_tar([f"{number:04d}" * 20 for number in range(500)], mode))
    middle = len(content) // 2 // 1024 * 1024 if mode == "w" else len(content) // 2
    content[middle : middle + 40] = bytes(255 - byte for byte in content[middle : middle + 40])
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason", "stays"),
    [
        (_zip_with(1, 6), ("unsupported-archive", "encrypted"), True),
        (_zip_with(97, 8), ("unsupported-archive", "method"), True),
        *((_with_a_damaged_middle(mode), ("damaged-file",), False) for mode in ("w:xz", "w:gz", "w:bz2", "w")),
        (_tar(["a", "a/b"], "w"), ("damaged-file",), False),
        (_zip(["x" * 300]), ("damaged-file",), False),
    ],
    ids=range(8),
)
def test_archives_that_cannot_be_unpacked_are_one_sentence(tmp_path, content, reason, stays):
    (tmp_path / "a.zip").write_bytes(content)
    with raises(*reason, "a.zip"):
        fetch(Download("a.zip", url="http://127.0.0.1:1/", unpack=True), tmp_path)
    assert (tmp_path / "a.zip").exists() == stays
    assert not (tmp_path / "a.zip.unpacked").exists()


ARCHIVES = pytest.mark.parametrize("make", [_zip, lambda names: _tar(names, "w:xz")])


@ARCHIVES
def test_what_does_not_fit_on_the_disk_is_not_begun(tmp_path, monkeypatch, make):
    (tmp_path / "a.zip").write_bytes(make(["x" * 200, "y" * 200]))
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda _: types.SimpleNamespace(free=150))
    with pytest.raises(InputError, match=names("a.zip", "0.0", "GB")):
        fetch(Download("a.zip", url="http://127.0.0.1:1/", unpack=True), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize(
    "limits", [{"_LARGEST_RATIO": 0, "_UNPACKED_AT_LEAST": 3000}, {"_MOST_FILES": 10, "_UNPACKED_AT_LEAST": 10**9}]
)
@ARCHIVES
def test_bombs_are_refused(tmp_path, monkeypatch, make, limits):
    names = [f"{number:02d}" * 100 for number in range(20)]
    (tmp_path / "a.zip").write_bytes(make(names))
    for name, value in limits.items():
        monkeypatch.setattr(downloads, name, value)
    with raises("archive-too-large"):
        fetch(Download("a.zip", url="http://127.0.0.1:1/", unpack=True), tmp_path)
    assert len(list(tmp_path.iterdir())) <= 1 + 20
    assert (tmp_path / "a.zip").exists()


@ARCHIVES
def test_a_limit_on_the_size_of_files_is_told_as_such(tmp_path, make):
    name = "x" * 100
    (tmp_path / "a.zip").write_bytes(make([name]))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))
    try:
        with pytest.raises(InputError, match=names("a.zip", "-f")):
            fetch(Download("a.zip", url="http://127.0.0.1:1/", unpack=True), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "a.zip").exists()


@pytest.mark.parametrize("notes", ["[]", '{"url": "u"}', '{"url": "u", "validator": 5, "total": 5}', "[" * 10**5])
def test_odd_notes_of_an_earlier_attempt_are_dropped(tmp_path, notes):
    part = downloads._Part(tmp_path / "a.part", "u")
    part.path.write_bytes(b"abc")
    (tmp_path / "a.part.json").write_text(notes)
    part.recall()
    assert part.size == 0


@pytest.mark.parametrize(
    ("errors", "num_waits"),
    [
        ([ConnectionRefusedError(111, "Connection refused")] * 9, 2),
        ([TimeoutError("timed out")] * 9, 7),
        ([ConnectionResetError(104, "reset"), *[socket.gaierror(-3, "Temporary failure")] * 8], 7),
    ],
    ids=["no server", "no answer", "a network that fails later"],
)
def test_a_host_that_is_not_there_is_told_of_soon(tmp_path, monkeypatch, errors, num_waits):
    left = iter(errors)

    def fail(*_, **__):
        raise urllib.error.URLError(next(left))

    monkeypatch.setattr(urllib.request, "urlopen", fail)
    waits = []
    with pytest.raises(InputError, match=names("http://nowhere/x")):
        fetch(Download("x", "http://nowhere/x"), tmp_path, sleep=waits.append)
    assert len(waits) == num_waits
    assert num_waits > 2 or sum(waits) <= 5


def test_a_page_in_the_place_of_a_file_is_told(server, tmp_path):
    server.kind = "text/html; charset=utf-8"
    with raises("cannot-download", "page", "browser", "file.bin"):
        fetch(_download(server), tmp_path)
    assert not list(tmp_path.rglob("file.bin*"))
    assert len(server.requests) == 1
    server.kind = "application/octet-stream"
    fetch(_download(server), tmp_path)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http:///a", "a.zip", "http://[::1/a", "http://a b/c"])
def test_addresses_that_no_web_server_has_are_refused_at_once(tmp_path, url):
    with raises("bad-url", repr(url), str(tmp_path / "a.zip")):
        fetch(Download("a.zip", url=url), tmp_path, sleep=lambda _: pytest.fail("waited"))
