"""Edited images from folders in the published layouts, and judges that see the images before and after the edit."""

import hashlib
import io
import json
import pathlib

import PIL.Image
import pytest

from tests.contrib.benchmarks import test_gedit
from tests.expectations import raises
from winobench.generation.collecting import collect_images
from winobench.generation.judged import judge_images
from winobench.runs.image_runs import read_images
from winobench.runs.requests import ImagesText, Response

KEYS = ("1082", "7")
MARKS = (  # of two kinds of edits
    "Prompt Compliance: 4\nVisual Naturalness: 3\nPhysical & Detail Coherence: 3\n"
    "Style Fidelity: 4\nContent Preservation: 3\nRendering Quality: 3"
)


def save(path, shade):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", (3, 2), (shade, 0, 0)).save(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def imgedit(tmp_path):
    """The set's folder, with two edits of one image, and the results next to it. Returns the image's SHA-256."""
    sha256 = save(tmp_path / "set" / "animal" / "a.png", 1)
    edits = {
        key: {"id": "animal/a.png", "prompt": f"Add {key}.", "edit_type": kind}
        for key, kind in zip(KEYS, ("add", "style"), strict=True)
    }
    (tmp_path / "set" / "singleturn.json").write_text(json.dumps(edits))
    for shade, key in enumerate(KEYS, 2):
        save(tmp_path / "results" / f"{key}.png", shade)
    return sha256


class Judge:
    """Answers by the kind of question."""

    kinds = frozenset({ImagesText.kind})

    def __init__(self, text=MARKS):
        self.asked, self.text = [], text

    def fingerprint(self):
        return {"responder": "judge"}

    def ask(self, requests):
        for number, request in enumerate(requests):
            self.asked.append(request)
            yield number, {"text": self.text}

    def read(self, request, raw):
        return Response(text=raw["text"])


def collect(tmp_path, **how):
    return collect_images(tmp_path / "results", f"imgedit:{tmp_path / 'set'}", tmp_path / "run", progress=False, **how)


def test_the_judge_sees_the_image_before_and_after(imgedit, tmp_path):
    run, judge = collect(tmp_path), Judge()
    copy = tmp_path / "run" / "drawn" / "sources" / imgedit
    assert copy.read_bytes() == (tmp_path / "set" / "animal" / "a.png").read_bytes()
    found = judge_images(run, judge, name="judge", progress=False)
    assert found.rubric == "imgedit"
    assert found.models["results"]["score"]["all"]["value"] == pytest.approx(3.33 / 5, abs=1e-12)
    for request, record in zip(judge.asked, run.records, strict=True):
        assert pathlib.Path(request.image.path) == copy
        assert [image.sha256 for image in (request.image, *request.more_images)] == [imgedit, record.sha256]
    again = Judge()
    assert judge_images(read_images(run.folder), again, name="judge", progress=False) == found
    assert again.asked == []


@pytest.mark.parametrize("change", ["absent", "other", "folder"])
def test_a_run_without_the_image_before_is_refused_in_one_sentence(imgedit, tmp_path, change):
    run = collect(tmp_path)
    copy = tmp_path / "run" / "drawn" / "sources" / imgedit
    copy.unlink()
    if change == "other":
        copy.write_bytes(b"other")
    elif change == "folder":
        copy.mkdir()
    with raises("no-source-image", "1082", str(copy), "copy it there"):
        judge_images(run, Judge(), name="judge", progress=False)


def test_the_same_command_restores_the_image_before(imgedit, tmp_path):
    run = collect(tmp_path)
    copy = run.folder / "drawn" / "sources" / imgedit
    copy.write_bytes(b"other")
    collect(tmp_path)
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == imgedit


def test_another_image_before_is_another_run(imgedit, tmp_path):
    collect(tmp_path)
    save(tmp_path / "set" / "animal" / "a.png", 9)
    with raises("another-run"):
        collect(tmp_path)


def test_gedits_results_are_next_to_the_images_before(tmp_path):
    rows = [test_gedit.row(key, language, shade=1) for key in ("k", "é_SRC") for language in ("en", "cn")]
    test_gedit.write(tmp_path / "set", *rows)
    for number, row in enumerate(rows):
        folder = tmp_path / "results" / "fullset" / row["task_type"] / row["instruction_language"]
        save(folder / f"{row['key']}.png", number)
        save(folder / f"{row['key']}_SRCIMG.png", 200)
    run = collect_images(tmp_path / "results", f"gedit:{tmp_path / 'set'}", tmp_path / "run", progress=False)
    named = {record.prompt.id: record.source["file"] for record in run.records}
    assert named == {
        f"ps_human-{language}-{key}": f"fullset/ps_human/{language}/{key}.png"
        for key in ("k", "é_SRC")
        for language in ("en", "cn")
    }
    found = judge_images(run, Judge('{"score": [9, 4]}'), name="judge", progress=False)
    assert found.models["results"]["overall"]["ps_human-cn"]["value"] == pytest.approx(0.4, abs=1e-12)


def test_other_languages_are_left_out(tmp_path):
    test_gedit.write(tmp_path / "set", test_gedit.row("k"), test_gedit.row("k", "cn"))
    for language in ("en", "cn"):
        save(tmp_path / "results" / "ps_human" / language / "k.png", 1)
    for language in ("en", "cn"):
        source = f"gedit_{language}:{tmp_path / 'set'}"
        run = collect_images(tmp_path / "results", source, tmp_path / language, progress=False)
        assert [record.source["file"] for record in run.records] == [f"ps_human/{language}/k.png"]


def test_an_image_before_with_alpha_is_copied_as_it_is(tmp_path):
    buffer = io.BytesIO()
    PIL.Image.new("RGBA", (2, 2)).save(buffer, "PNG")
    test_gedit.write(tmp_path / "set", test_gedit.row("k", image=buffer.getvalue()))
    save(tmp_path / "results" / "ps_human" / "en" / "k.png", 1)
    run = collect_images(tmp_path / "results", f"gedit_en:{tmp_path / 'set'}", tmp_path / "run", progress=False)
    (copy,) = (run.folder / "drawn" / "sources").iterdir()
    assert copy.read_bytes() == buffer.getvalue()
