"""Oxford-IIIT Pet."""

import pytest

from tests.expectations import names, raises
from tests.tasks import published_layouts
from tests.tasks.published_layouts import write_image
from winobench.base.errors import InputError
from winobench.tasks import TASKS
from winobench.tasks.annotations import read_lines


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_pets(tmp_path)


@pytest.mark.parametrize(
    ("name", "prompt"), [("pets", "an image of a shiba inu"), ("pets_photo", "a photo of a shiba inu")]
)
def test_test_images_with_all_breeds(folder, name, prompt):
    items = list(TASKS[name].source.read(folder))
    assert [item.id for item in items] == ["Abyssinian_201", "shiba_inu_12"]
    assert [len(item.texts) for item in items] == [37, 37]
    assert items[1].texts[items[1].target] == prompt
    assert items[1].images[0].path == folder / "images" / "shiba_inu_12.jpg"


@pytest.mark.parametrize(
    ("name", "prompt"), [("pets_all", "an image of a shiba inu"), ("pets_photo_all", "a photo of a shiba inu")]
)
def test_all_photographs_need_no_split(folder, name, prompt):
    (folder / "annotations" / "test.txt").unlink()
    (folder / "images" / "._shiba_inu_12.jpg").write_bytes(b"Mac OS X")
    (folder / "images" / "Abyssinian_201.mat").write_bytes(b"no photograph")
    items = list(TASKS[name].source.read(folder))
    assert [item.id for item in items] == ["Abyssinian_201", "american_pit_bull_terrier_7", "shiba_inu_12"]
    assert items[2].texts[items[2].target] == prompt
    assert (TASKS[name].source.num_examples, TASKS["pets"].source.num_examples) == (7390, 3669)
    assert [download.to for download in TASKS[name].source.downloads] == ["classes.txt", "images.tar.gz"]
    write_image(folder / "images" / "wolf_1.jpg")
    with raises("bad-annotations", "'wolf_1'", str(folder / "images")):
        list(TASKS[name].source.read(folder))
    for path in (folder / "images").glob("*.jpg"):
        path.unlink()
    with raises("no-such-file", str(folder / "images")):
        list(TASKS[name].source.read(folder))


def test_unknown_breeds_and_missing_classes_are_named(folder):
    split = folder / "annotations" / "test.txt"
    split.write_text("#Image CLASS-ID SPECIES BREED ID\nAbyssinian_201 1 1 1\nwolf_1 1 2 1\n")
    with pytest.raises(InputError, match=names("test.txt", "'wolf_1'")):
        list(TASKS["pets"].source.read(folder))
    split.unlink()
    with pytest.raises(InputError, match=names("annotations/test.txt")):
        list(TASKS["pets"].source.read(folder))
    classes = folder / "classes.txt"
    lines = classes.read_text().splitlines()
    classes.write_text("\n".join(lines[:-1]))
    with pytest.raises(InputError, match=names("classes.txt", "36", "37")):
        list(TASKS["pets"].source.read(folder))
    classes.write_text("\n".join([*lines[:-1], lines[0]]))
    with pytest.raises(InputError, match=names("classes.txt", "'abyssinian'", "2")):
        list(TASKS["pets"].source.read(folder))


def test_published_classes(reference_data):
    classes = read_lines(reference_data / "gdbench" / "pets" / "classes.txt")
    assert len(classes) == 37
    assert sorted(classes) == [name.replace("_", " ") for name in sorted(published_layouts._PETS.split())]
