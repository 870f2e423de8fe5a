"""Published files that are damaged: the fault and its place. tests/launch/test_bad_sources has whole sentences."""

import pytest

from tests.expectations import raises
from tests.tasks import published_layouts
from tests.tasks.damage import (
    again,
    copied,
    drop,
    empty,
    lines,
    on,
    put,
    renamed,
    rows,
    sub,
    twice,
    write,
)
from tests.tasks.published_layouts import ANNOTATIONS, LAYOUTS
from winobench.tasks import TASKS


def _without_women(path):
    for word in ("beer", "wine"):
        empty("7.jpg", "12.jpg")(path.parent / f"{word}-images")


_SPLIT, _MUSLIM, _MAN = "annotations/test.txt", "data/Images/Religion/Muslim", "A man walks on the wide beach."
_VIDEO, _LISTED = "MSR-VTT-videoTestVideo_video7047-shot1_0", "datasets/flickr30k/images/{}.jpg"

# Task -> (file, None for its annotation file; how it is damaged; code; what the message names beside the file). Faults
# of all annotation files are in test_annotations.
FAULTS = {
    "aro_coco_order": [
        (None, put(1, "caption", ["Dog."]), "no-other-order", "'caption'", "2", "'Dog.'"),
        (None, again(0), "repeated-image", "'image'", "3", "'val2014/COCO_val2014_000000000000.jpg'"),
    ],
    "aro_flickr_order": [(None, drop(1, "image"), "missing-field", "2", "'image'")],
    "aro_vg_attribution": [
        (None, put(4, "attributes", ["white"]), "wrong-number-of-entries", "'attributes'", "5", "1", "2"),
    ],
    "aro_vg_relation": [
        (None, put(2, "bbox_w", 0), "bad-box", "3", "0", "9", "(2, 2)"),
        (None, put(2, "bbox_x", -40), "bad-box", "3"),
        (None, put(2, "bbox_y", "7"), "not-a-number", "'bbox_y'", "3"),
    ],
    "clevr": [(None, put("CLEVR_val_1.png", 1, list("abc")), "wrong-number-of-entries", "2", "'CLEVR_val_1.png'", "3")],
    "coco_hardneg_image": [
        (None, sub("[2, 3, 0]", "[2, 4, 0]"), "no-such-image", "'neg_image'", "2", "4", "3"),
        (None, sub("[2, 3, 0]", "[2, 3, 0"), "not-a-list", "'neg_image'", "2"),
        (None, sub("\n2\tLugg", "\n1\tLugg"), "rows-out-of-order", "3", "'1'", "2"),
    ],
    "coco_hardneg_text": [
        (None, sub("\"['luggage on and around Luggage carts']\"", "[]"), "no-negative", "'neg_caption'", "3"),
    ],
    "colorswap": [("data/test-00001-of-00002.parquet", put(0, "image_1", None), "not-an-object", "'image_1'", "1")],
    "flickr30k_image": [
        (None, drop(_MAN, 9), "wrong-number-of-entries", f"'{_MAN}'", "9", "10"),
        (None, rows(lambda lists: lists[_MAN].__setitem__(9, lists[_MAN][3])), "repeated-image", f"'{_MAN}'"),
    ],
    "flickr30k_text": [
        (None, rows(lambda lists: lists[_LISTED.format(1005)].append("more")), "wrong-number-of-entries", "11", "10"),
        (None, put(_LISTED.format(1000), 4, _MAN), "repeated-text", _LISTED.format(1000)),
    ],
    "genderbias": [
        ("suit-images", empty(), "missing-images"),
        ("suit-images/7.jpeg", copied("7.jpg"), "two-files", "7.jpg"),
        ("suit-images/man.jpg", copied("7.jpg"), "bad-file-name"),
        ("beer-images", _without_women, "missing-images", "wine-images", "women"),
    ],
    "imagecode_static": [
        *(
            ("valid_data.json", put("open-images-2_a", key, "A cup"), "no-such-image", f"'{key}'", "'open-images-2_a'")
            for key in ("10", "٣")
        ),
        ("valid_data.json", twice(_VIDEO), "repeated-key", f"'{_VIDEO}'", "'0'"),
    ],
    "mmbias": [
        (None, put("pleasant_phrases", 3, "unsafe"), "not-as-published", "'pleasant_phrases'"),
        (_MUSLIM, empty("1.jpg", "2.jpg", "3.jpg"), "missing-images", "--allow_partial"),
        (f"{_MUSLIM}/2.jpeg", copied("2.jpg"), "two-files", "2.jpg"),
    ],
    "pets": [
        (None, lines(lambda old: old[:-1]), "bad-annotations", "36", "37"),
        (None, lines(lambda old: [*old[:-1], old[0]]), "bad-annotations", "'abyssinian'", "2"),
        (_SPLIT, sub("shiba", "#Image CLASS-ID SPECIES BREED ID\nwolf_1 1 2 1\nshiba"), "bad-annotations", "'wolf_1'"),
    ],
    "pets_all": [("images", on("images/Abyssinian_201.jpg", renamed("wolf_1.jpg")), "bad-annotations", "'wolf_1'")],
    "svo_subj": [(None, put(3, "neg_type", "adverb"), "unknown-name", "'neg_type'", "4", "'adverb'")],
    "winoground": [
        (None, lines(lambda old: [*old, old[0]]), "repeated-id", "'id'", "4", "0"),
        ("data.json", write('[{"id" 0}]'), "not-json", "8"),  # where both are there, this is the one that is read
    ],
}


def cases(faults):
    """Parametrises a test by task and fault."""
    each = [(task, fault, f"{task}-{number}") for task in faults for number, fault in enumerate(faults[task])]
    return pytest.mark.parametrize(("task", "fault"), [pytest.param(*given, id=id) for *given, id in each])


@cases(FAULTS)
def test_a_bad_file_is_named(task, fault, tmp_path):
    check_fault(task, fault, LAYOUTS[task](tmp_path), ANNOTATIONS)


def check_fault(task, fault, folder, annotations):
    file, damage, code, *words = fault
    path = folder / (file or annotations[task])
    damage(path)
    with raises(code, *words, path.name):
        published_layouts.items_of(task, folder)


def readers(names):
    """The functions that read the published data of tasks."""
    reads = [TASKS[name].source.read for name in names]
    return {getattr(read, "keywords", {}).get("read") or getattr(read, "func", read) for read in reads}


def test_every_reader_has_faults():
    assert readers(LAYOUTS) == readers(FAULTS)
