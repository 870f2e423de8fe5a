"""SVO-Probes."""

import csv
import dataclasses
import functools

import winobench.tasks
from launch import prepare as launcher
from tests.data import photo_sites
from tests.expectations import raises
from winobench.base.progress import Progress
from winobench.data import web_images
from winobench.tasks import TASKS, svo

# sentence, image ids, addresses, and what is marked as different
PROBES = (
    ("A dog runs on grass.", (11, 12), ("/photo/11", "/photo/12"), ("True", "False", "False")),
    ("A child eats an apple.", (13, 14), ("/photo/13", "/404"), ("False", "True", "False")),
    ("A man rides a horse.", (15, 11), ("/photo/15", "/photo/11"), ("False", "True", "False")),
    ("A girl holds a ball.", (16, 17), ("/page", "/photo/17"), ("False", "False", "True")),
    ("", (18, 19), ("/photo/18", "/photo/19"), ("False", "False", "True")),
)


def write_probes(folder, url, rows=PROBES):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "svo_probes.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        sides = ("pos_triplet", "neg_triplet", "pos_url", "neg_url", "pos_image_id", "neg_image_id")
        writer.writerow(("", "sentence", *sides, "subj_neg", "verb_neg", "obj_neg"))
        for number, (sentence, ids, paths, marks) in enumerate(rows):
            writer.writerow((number, sentence, "a,b,c", "d,b,c", *map(url, paths), *ids, *marks))
    return folder


def test_rows_of_the_table(tmp_path):
    rows, addresses = svo.read_probes(write_probes(tmp_path, "http://a.test{}".format))
    assert [(row["pos_id"], row["neg_id"], row["neg_type"]) for row in rows] == [
        ("11.jpg", "12.jpg", "subj"),
        ("13.jpg", "14.jpg", "verb"),
        ("15.jpg", "11.jpg", "verb"),
        ("16.jpg", "17.jpg", "obj"),
    ]
    assert [rows[0][name] for name in ("sentence", "pos_triplet", "neg_triplet")] == [PROBES[0][0], "a,b,c", "d,b,c"]
    assert addresses["11.jpg"] == "http://a.test/photo/11"
    assert len(addresses) == 7
    write_probes(tmp_path, "http://a.test{}".format, [*PROBES, ("A cat.", (11, 3), ("/other", "/3"), ("True",) * 3)])
    with raises("repeated-id", "'pos_url'", "6", "11.jpg"):
        svo.read_probes(tmp_path)
    write_probes(tmp_path, "http://a.test{}".format, [("A cat.", ("../1", 3), ("/1", "/3"), ("True",) * 3)])
    with raises("not-a-number", "'pos_image_id'", "'../1'"):
        svo.read_probes(tmp_path)


def test_what_is_on_the_web_is_downloaded_and_prepared(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    quick = web_images.RateLimits(delay=0.0, first_wait=0.01)
    root = tmp_path / "sources" / "svo"
    tasks = {}
    for part in ("subj", "verb", "obj"):
        task = TASKS[f"svo_{part}"]
        source = dataclasses.replace(task.source, fetch=_fetch)
        tasks[task.name] = dataclasses.replace(task, source=source)
    monkeypatch.setattr(winobench.tasks, "TASKS", tasks)
    monkeypatch.setattr(svo, "fetch", functools.partial(svo.fetch, manners=quick))
    with photo_sites.running() as sites:
        write_probes(root, sites.url)
        names_of_all = ",".join(tasks)
        assert launcher.prepare_tasks(names_of_all, None, str(tmp_path), workers=1) == ["svo_verb", "svo_obj"]
        out, err = capsys.readouterr()
        assert "5 of 7 images are in" in out
        assert "2 addresses are dead" in out
        assert "rows of svo_probes.csv without a sentence, which are left out: 1" in out
        assert "images/14.jpg: missing" in err
        assert "--allow_partial" in err
        assert set(sites.paths()) == {"/404", "/page", *(f"/photo/{number}" for number in (11, 12, 13, 15, 17))}
        assert len(sites.requests) == 7  # once for the three tasks
        assert launcher.prepare_tasks(names_of_all, None, str(tmp_path), workers=1, allow_partial=True) == ["svo_obj"]
        assert len(sites.requests) == 7
    assert [example.texts for example in tasks["svo_verb"].load(str(tmp_path), None)] == [("A man rides a horse.",)]
    capsys.readouterr()

    # A list of the user's own is left alone.
    (root / "svo.json").write_text("[]")
    assert "no image is requested" in svo.fetch(root, Progress)
    (root / "svo_probes.csv").unlink()
    assert "no image is requested" in svo.fetch(root, Progress)


def _fetch(folder, progress):
    """Looks `svo.fetch` up when it is called, so that tests can give it other manners."""
    return svo.fetch(folder, progress)
