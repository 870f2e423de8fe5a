"""Pictures from web sites on this machine: dead, slow, truncated, moved, busy; killed and gone on with."""

import itertools

import pytest

from tests.data import photo_sites, web_server
from tests.expectations import raises
from winobench.data import web_images

QUICK = web_images.RateLimits(delay=0.0, first_wait=0.01, timeout=5.0, longest=0.25)


@pytest.fixture
def sites(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    with photo_sites.running() as sites:
        yield sites


def fetch(folder, addresses, limits=QUICK):
    display = web_server.Display()
    found = web_images.fetch(folder, addresses, display, limits)
    assert display.lines == []
    return found, display


def listed(path):
    return {name: reason for name, _, reason in web_images.read_list(path)}


def test_what_is_there_comes_and_what_is_not_is_listed(sites, tmp_path):
    kinds = ("moved", "404", "page", "disguised", "half", "truncated", "slow", "busy", "loop", "to-file", "403")
    paths = {f"{n}.jpg": f"/{kind}" for n, kind in enumerate(kinds, 2)}
    paths |= {"1.jpg": "/photo/1?size=2", "13.jpg": "/photo/with a space/\u00e9.jpg"}
    addresses = {name: sites.url(path) for name, path in paths.items()}
    addresses |= {"14.jpg": "file:///etc/hostname", "15.jpg": "not an address", "16.jpg": "", "17.jpg": "http://[::1"}
    found, display = fetch(tmp_path, addresses)
    there = {path.name: path.read_bytes() for path in (tmp_path / "images").iterdir()}
    assert there == {
        "1.jpg": photo_sites.photograph(len("/photo/1?size=2")),
        "2.jpg": photo_sites.photograph(len("/photo/moved")),
        "9.jpg": photo_sites.photograph(),
        "13.jpg": photo_sites.photograph(len("/photo/with%20a%20space/%C3%A9.jpg")),
    }
    dead, failed = listed(tmp_path / web_images.DEAD), listed(tmp_path / web_images.FAILED)
    assert set(failed) == {"7.jpg", "8.jpg"}
    assert dead.keys() == addresses.keys() - there.keys() - failed.keys()
    for name, part in {"3.jpg": "404", "4.jpg": "text/html", "5.jpg": "no image", "12.jpg": "403"}.items():
        assert part in dead[name]
    assert "broke off" in failed["7.jpg"]
    assert "not whole" in failed["8.jpg"]
    assert found == web_images.Fetched(there=4, dead=11, failed=2)
    assert (display.starts, display.count) == ([(17, 0)], 17)
    # Failures that may pass were tried three times, dead addresses once; the site said when to come again.
    counts = {path: sites.paths().count(path) for path in ("/truncated", "/slow", "/404", "/page")}
    assert counts == {"/truncated": 3, "/slow": 3, "/404": 1, "/page": 1}
    first, second = (request for request in sites.requests if request[1] == "/busy")
    assert second[3] - first[4] > 0.95
    assert {agent for _, _, agent, *_ in sites.requests} == {web_images.USER_AGENT}

    # Again: what is there and what is dead is not asked for, unless its line is deleted.
    sites.requests.clear()
    dead_list = tmp_path / web_images.DEAD
    dead_list.write_text("".join(line for line in dead_list.read_text().splitlines(True) if not line.startswith("3.")))
    found, display = fetch(tmp_path, {name: addresses[name] for name in paths if name != "8.jpg"})
    assert set(sites.paths()) == {"/404", "/truncated"}
    assert found == web_images.Fetched(there=4, dead=7, failed=1)
    assert display.starts == [(12, 10)]


def test_a_site_is_asked_for_one_picture_at_a_time_with_pauses(sites, tmp_path):
    hosts = ("127.0.0.1", "localhost")
    addresses = {f"{host}-{n}.jpg": sites.url(f"/photo/{n}", host) for n in range(4) for host in hosts}
    found, _ = fetch(tmp_path, addresses, web_images.RateLimits(delay=0.2))
    assert found.there == 8
    assert list(sites.most.values()) == [1, 1]
    for host in sites.most:
        times = sorted((begin, end) for other, _, _, begin, end in sites.requests if other == host)
        assert all(after[0] - before[1] >= 0.19 for before, after in itertools.pairwise(times))
    begins = {host: min(begin for other, _, _, begin, _ in sites.requests if other == host) for host in sites.most}
    ends = {host: max(end for other, _, _, _, end in sites.requests if other == host) for host in sites.most}
    assert max(begins.values()) < min(ends.values())


def test_a_site_that_wants_to_be_left_alone_is(sites, tmp_path):
    addresses = {"1.jpg": sites.url("/leave"), "2.jpg": sites.url("/photo/2"), "3.jpg": sites.url("/a", "localhost")}
    found, _ = fetch(tmp_path, addresses)
    assert found == web_images.Fetched(there=0, dead=1, failed=2)
    assert sorted(sites.paths()) == ["/a", "/leave"]
    assert listed(tmp_path / web_images.FAILED).keys() == {"1.jpg", "2.jpg"}


def test_without_a_connection_nothing_is_dead(sites, tmp_path):
    with raises("cannot-download", "127.0.0.1:1"):
        fetch(tmp_path, {"1.jpg": "http://127.0.0.1:1/a.jpg", "2.jpg": "http://127.0.0.1:1/b.jpg"})
    assert not (tmp_path / web_images.DEAD).exists()


def test_names_lead_nowhere_else(tmp_path):
    for name in ("../1.jpg", "/1.jpg", "a/b.jpg", "..", ""):
        with raises("bad-name"):
            fetch(tmp_path, {name: "http://127.0.0.1:1/a.jpg"})
    assert not any(tmp_path.iterdir())


def test_what_a_killed_download_left_is_gone_on_with(sites, tmp_path):
    addresses = {f"{n}.jpg": sites.url(f"/photo/{n}") for n in range(4)} | {"x.jpg": sites.url("/404")}
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "0.jpg").write_bytes(photo_sites.photograph(7))
    (tmp_path / "images" / "1.jpg.part").write_bytes(b"half")
    (tmp_path / web_images.DEAD).write_text("2.jpg\thttp")  # a line that was cut
    found, _ = fetch(tmp_path, addresses)
    assert found == web_images.Fetched(there=4, dead=1, failed=0)
    assert sorted(sites.paths()) == ["/404", "/photo/1", "/photo/2", "/photo/3"]
    there = {path.name: path.read_bytes() for path in (tmp_path / "images").iterdir()}
    assert there == {f"{n}.jpg": photo_sites.photograph(len("/photo/n") if n else 7) for n in range(4)}
    assert listed(tmp_path / web_images.DEAD).keys() == {"x.jpg"}
