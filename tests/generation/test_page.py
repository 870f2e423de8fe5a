"""The page of a run: what it shows, that it trusts no prompt, and its thumbnails."""

import html

import PIL.Image
import pytest

import winobench
from tests.expectations import raises
from tests.generation import fakes
from tests.report.test_page import Page
from winobench import report
from winobench.base.errors import InputError
from winobench.generation import page
from winobench.generation.collecting import collect_images
from winobench.generation.generate import generate_images


def draw(folder, *sizes):
    return fakes.draw(folder, *(fakes.FakePipeline(f"size{size}", size=size) for size in sizes), seeds=(4, 2))


def test_every_picture_is_there_models_side_by_side(tmp_path):
    run = draw(tmp_path, 8, 16)
    path = page.write_page(run)
    assert path == tmp_path / "pictures.html"
    elements = Page(path)
    files = elements.images
    # A row is a seed, and its pictures are the models'.
    assert files == [
        f"pictures/{model}/{seed}/0000{number}.png"
        for number in range(3)
        for seed in (4, 2)
        for model in ("size8", "size16")
    ]
    assert all((tmp_path / file).is_file() for file in files)
    assert [link["href"] for link in elements.all("a")] == files
    assert not (tmp_path / "thumbnails").exists()
    assert len(elements.all("option")) == 4  # all, and three categories, of which one is none
    assert [article["data-category"] for article in elements.all("article")] == ["1", "2", "3"]
    # Prompts are texts and nothing else.
    assert all(f"<h2>{prompt.text}</h2>" in html.unescape(elements.source) for prompt in fakes.PROMPTS)
    assert not elements.all("b")
    assert elements.all("img")[4]["alt"] == f"{fakes.PROMPTS[1].text}, by the size8, seed 4"
    # One script and one style, both its own; nothing is loaded from elsewhere.
    assert (len(elements.all("script")), len(elements.all("style")), len(elements.all("link"))) == (1, 1, 0)
    assert "http://" not in elements.source
    assert "https://" not in elements.source


def test_large_pictures_have_thumbnails_that_follow_them(tmp_path):
    run = draw(tmp_path, 300)
    page.write_page(run)
    thumbnails = {path.name for path in (tmp_path / "thumbnails").iterdir()}
    assert len(thumbnails) == 6
    with PIL.Image.open(tmp_path / "thumbnails" / min(thumbnails)) as image:
        assert (image.format, image.size) == ("JPEG", (256, 256))
    elements = Page(tmp_path / "pictures.html")
    assert set(elements.images) == {f"thumbnails/{name}" for name in thumbnails}
    assert elements.all("a")[0]["href"] == "pictures/size300/4/00000.png"
    # Other pictures of the same places: other thumbnails, and none is left over.
    others = [fakes.generator(fakes.FakePipeline("other", size=300), "size300")]
    run = generate_images(others, fakes.PROMPTS, tmp_path, seeds=(4, 2), overwrite=True, progress=False)
    page.write_page(run)
    assert {path.name for path in (tmp_path / "thumbnails").iterdir()}.isdisjoint(thumbnails)
    run.path(run.records[0]).write_bytes(b"no picture")
    for path in (tmp_path / "thumbnails").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"00000\.png is not an image: give the command again"):
        page.write_page(run)


def test_a_run_that_has_not_finished_says_what_is_missing(tmp_path):
    run = draw(tmp_path, 8)
    run.path(run.records[1]).unlink()
    text = page.page_text(winobench.read_images(tmp_path, complete=False))
    assert "5 images: 3 prompts, 2 seeds. Missing: 1" in text
    assert text.count('<span class="lost" title="">missing</span>') == 1
    with raises("not-a-run", "pictures.html"):
        report.write_report([tmp_path])


def test_images_of_other_programs_and_reasons_of_missing_ones(tmp_path):
    (tmp_path / "in").mkdir()
    PIL.Image.new("RGB", (300, 300)).save(tmp_path / "in" / "one.png")
    run = collect_images(tmp_path / "in", fakes.PROMPTS, tmp_path / "run", allow_missing=True, progress=False)
    elements = Page(page.write_page(run))
    assert elements.images == [f"thumbnails/{run.records[0].sha256[:32]}.jpg"]
    assert "1 images: 3 prompts, 1 seed. Missing for good: 2." in elements.source
    assert "the run has copies" in elements.source
    assert elements.source.count('title="absent: no file was there"') == 2
