"""The faults of newer data sets, for test_bad_sources: of tasks that one function reads, one has them."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import scipy.io

from tests.launch.source_faults import (
    BROKEN,
    DUPLICATE,
    FEWER,
    MISSING,
    MORE,
    at,
    broken_off,
    change,
    change_lines,
    copy,
    cut,
    delete_first,
    first_again,
    missing_image,
    no_file,
    remove,
    repeat_first_key,
    row,
    too_few,
    too_many,
    usual,
    wrong,
)
from tests.tasks import class_layouts, newer_layouts

_COLA = "COLA_multiobjects_matching_benchmark.json"
_WHATSUP_A, _WHATSUP_B = "controlled_images_dataset.json", "controlled_clevr_dataset.json"
_COCO_ONE, _VAW, _QUESTIONS = "coco_qa_one_obj.json", "data/Attribute/vaw/color.json", "Questions.csv"
_VISMIN, _COUNTBENCH, _NATURAL = (
    newer_layouts.ANNOTATIONS[name] for name in ("vismin_object", "countbench", "naturalbench_groups")
)


def _by_key(file, image, key, field, first):
    """Of an object of three rows."""

    def more(rows):
        rows["9"] = rows[key]

    return [
        *usual(file, image, 3, 3, lambda rows: delete_first(rows, 1), more),
        no_file(file),
        wrong(BROKEN, change(file, lambda rows: rows[key].pop(field)), f"'{key}'", at(file), f"'{field}'"),
        wrong(DUPLICATE, repeat_first_key(file), at(file), f"'{first}'"),
    ]


def _merged():
    file = "add_att.json"
    return [
        missing_image("val2017/000000000285.jpg", 3),
        too_few(change(file, lambda rows: rows.pop("5")), 3, 4),
        too_many(change("swap_att.json", lambda rows: rows.update({"9": rows["1"]})), 5, 4),
        broken_off(file),
        no_file("replace_att.json"),
        wrong(BROKEN, change(file, lambda rows: rows["1"].pop("caption")), "'1'", at(file), "'caption'"),
        wrong(DUPLICATE, repeat_first_key(file), at(file), "'0'"),
    ]


def _rows(file, image, num_images, field):
    """Of a list of three rows, which are objects without an id."""
    return [
        *usual(file, image, num_images, 3, lambda rows: rows.pop(0), first_again),
        no_file(file),
        wrong(BROKEN, change(file, lambda rows: rows[1].pop(field)), *row(2, file), f"'{field}'"),
    ]


def _sugarcrepe_pp():
    file = "sugarcrepe_pp/swap_obj.json"
    return [
        *usual(file, "val2017/000000000285.jpg", 3, 3, list.pop, lambda rows: rows.append({**rows[0], "id": 9})),
        wrong(DUPLICATE, change(file, lambda rows: rows.append(rows[1])), "'id'", *row(4, file), "1"),
    ]


def _cola():
    return [
        *usual(_COLA, "images/11.jpg", 6, 3, list.pop, first_again),
        wrong(BROKEN, change(_COLA, lambda rows: rows[1].pop()), *row(2, _COLA), "3", "4"),
    ]


def _whatsup_a():
    def more(folder):
        new = "controlled_images/mug_left_of_armchair.jpeg"
        change(_WHATSUP_A, lambda rows: rows.append({**rows[0], "image_path": f"data/{new}"}))(folder)
        shutil.copyfile(folder / "controlled_images" / "mug_left_of_plate.jpeg", folder / new)

    return [
        missing_image("controlled_images/mug_on_plate.jpeg", 8),
        too_few(change(_WHATSUP_A, list.pop), 7, 8),
        too_many(more, 9, 8),
        broken_off(_WHATSUP_A),
        wrong(DUPLICATE, change(_WHATSUP_A, first_again), "'mug_left_of_plate'"),
    ]


def _whatsup_b_sets():
    def more(rows):
        rows += [{**row, "image_path": row["image_path"].replace("mug", "cup")} for row in rows[:4]]

    return [
        *usual(
            _WHATSUP_B, "controlled_clevr/mug_left_of_plate.jpeg", 8, 2, lambda rows: rows.__delitem__(slice(4)), more
        ),
        wrong(BROKEN, change(_WHATSUP_B, list.pop), *row(5, _WHATSUP_B), "beer-bottle", "armchair", "'behind'"),
        wrong(DUPLICATE, change(_WHATSUP_B, first_again), "'image_path'", *row(9, _WHATSUP_B), "'left'"),
    ]


def _coco_spatial():
    return [
        *usual(_COCO_ONE, "val2017/000000000285.jpg", 3, 3, list.pop, first_again),
        wrong(BROKEN, change(_COCO_ONE, lambda rows: rows[1].pop()), *row(2, _COCO_ONE), "2", "3"),
    ]


def _change_table(name, function):
    def make(folder):
        rows = pq.read_table(folder / name).to_pylist()
        function(rows)
        newer_layouts.write_table(folder / name, rows)

    return make


def _table(file, pattern, broken, *named):
    """``broken`` changes the rows so that the second one is wrong."""
    return [
        wrong(BROKEN, cut(file), at(file)),
        wrong(BROKEN, remove("data"), pattern),
        wrong(BROKEN, _change_table(file, broken), *row(2, file), *named),
    ]


def _vismin():
    return [
        too_few(_change_table(_VISMIN, list.pop), 2, 3),
        too_many(_change_table(_VISMIN, lambda rows: rows.append(rows[-1])), 4, 3),
        *_table(_VISMIN, "test-*.parquet", lambda rows: rows[1].update(text_1=" "), "'text_1'"),
    ]


def _countbench():
    return _table(_COUNTBENCH, "train-*.parquet", lambda rows: rows[1].update(number=1), "'number'", "1", "2", "10")


def _mmvp():
    def more(folder):
        change_lines(_QUESTIONS, lambda lines: [*lines, "9,Color,a dog\n", "10,Color,a cat\n"])(folder)
        images = folder / "MLLM_VLM Images" / "Color"
        for number in (9, 10):
            shutil.copyfile(images / "1.jpg", images / f"{number}.jpg")

    return [
        missing_image("MLLM_VLM Images/Color/4.jpg", 6),
        too_few(change_lines(_QUESTIONS, lambda lines: [*lines[:1], *lines[3:]]), 2, 3),
        too_many(more, 4, 3),
        no_file(_QUESTIONS),
        wrong(
            BROKEN,
            change_lines(_QUESTIONS, lambda lines: lines[:-2]),
            "'Question ID'",
            *row(5, _QUESTIONS),
            "5",
            "'Color'",
            "6",
        ),
        wrong(
            DUPLICATE,
            change_lines(_QUESTIONS, lambda lines: [*lines, lines[1]]),
            "'Question ID'",
            *row(8, _QUESTIONS),
            "3",
        ),
    ]


def _spec(file, num_images):
    return _uncounted(_rows(f"data/count/{file}", "data/count/images/1.png", num_images, "keys"))


def _vlchecklist():
    return [
        missing_image("vg/VG_100K/1.jpg", 3),
        broken_off(_VAW),
        no_file(_VAW),
        wrong(BROKEN, change(_VAW, lambda rows: rows[1][1].pop("NEG")), *row(2, _VAW), "'NEG'"),
    ]


def _shorten(name, count):
    """Takes ``count`` bytes, which is negative, off a file's end."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:count])


def _lengthen(name, count):
    """Repeats a file's first bytes at its end."""

    def make(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content + content[:count])

    return make


def _cifar10():
    file, record = "cifar-10-batches-bin/test_batch.bin", 3073
    return [
        too_few(_shorten(file, -record), 2, 3),
        too_many(_lengthen(file, record), 4, 3),
        wrong(BROKEN, _shorten(file, -1), at(file), "9,218", "3,073"),
        no_file(file),
    ]


def _stl10():
    pictures, labels, size = "stl10_binary/test_X.bin", "stl10_binary/test_y.bin", 3 * 96 * 96

    def both(change_file, sign):
        def make(folder):
            change_file(pictures, sign * size)(folder)
            change_file(labels, sign)(folder)

        return make

    return [
        too_few(both(_shorten, -1), 2, 3),
        too_many(both(_lengthen, 1), 4, 3),
        wrong(BROKEN, _shorten(pictures, -size), at(labels), "3", at(pictures), "2"),
        no_file(labels),
    ]


def _aircraft():
    root = "fgvc-aircraft-2013b/data"
    file = f"{root}/images_variant_test.txt"

    def more(folder):
        change_lines(file, lambda lines: [*lines, "0000001 707-320\n"])(folder)
        shutil.copyfile(folder / root / "images" / "1514522.jpg", folder / root / "images" / "0000001.jpg")

    return [
        missing_image(f"{root}/images/0747566.jpg", 3),
        too_few(change_lines(file, lambda lines: lines[:-1]), 2, 3),
        too_many(more, 4, 3),
        no_file(f"{root}/variants.txt"),
        wrong(
            BROKEN,
            change_lines(file, lambda lines: [*lines[:-1], "1008575 Vari"]),
            at(file),
            "'1008575 Vari'",
            at(root),
        ),
        wrong(DUPLICATE, change_lines(file, lambda lines: [*lines, lines[0]]), at(file), "'1514522 707-320'"),
    ]


def _tifa160(file):
    picture = "coco_1_mini_dalle"

    def rename(rows):
        rows |= {f"new_{key}": {**row, "text_id": "new"} for key, row in list(rows.items())[:5]}

    def more(folder):
        change(file, rename)(folder)
        answers = folder / "dsg_tifa160_anns.csv"
        lines = [line for line in answers.read_text().splitlines() if ",coco_1," in line]
        with answers.open("a") as stream:
            stream.writelines(f"{line.replace(',coco_1,', ',new_coco_1,')}\n" for line in lines)

    def fewer(folder):
        change(file, lambda rows: delete_first(rows, 5))(folder)
        change_lines("dsg_tifa160_anns.csv", lambda lines: [line for line in lines if ",coco_1," not in line])(folder)

    return [
        missing_image(f"tifa160/{picture}.jpg", 15),
        too_few(fewer, 2, 3),
        too_many(more, 4, 3),
        broken_off(file),
        no_file("dsg_tifa160_anns.csv"),
        wrong(BROKEN, change(file, lambda rows: rows[picture].pop("text")), f"'{picture}'", at(file), "'text'"),
        wrong(DUPLICATE, repeat_first_key(file), at(file), f"'{picture}'"),
    ]


def _tifa160_authors():
    file = "human_annotations.json"

    def more(rows):
        rows |= {f"new_{key}": {**row, "text_id": "new"} for key, row in list(rows.items())[:5]}

    return [
        *usual(file, "tifa160/coco_1_mini_dalle.jpg", 15, 3, lambda rows: delete_first(rows, 5), more),
        no_file(file),
        wrong(
            BROKEN,
            change(file, lambda rows: rows["coco_1_mini_dalle"].update(human_scores=[])),
            "'coco_1_mini_dalle'",
            at(file),
        ),
        wrong(DUPLICATE, repeat_first_key(file), at(file), "'coco_1_mini_dalle'"),
    ]


def _imagereward():
    file = "test.json"
    return [
        *usual(
            file,
            "test_images/part-000000/images/0040/1.webp",
            18,
            3,
            list.pop,
            lambda rows: rows.append({**rows[0], "id": "9"}),
        ),
        no_file(file),
        wrong(BROKEN, change(file, lambda rows: rows[1]["ranking"].pop()), "'ranking'", *row(2, file), "8", "9"),
        wrong(DUPLICATE, change(file, first_again), "'id'", *row(4, file), "000000-0040"),
    ]


def _geneval():
    file = "annotations_clip.csv"

    def more(folder):
        old, new = (folder / "images" / "clip" / name for name in ("00000", "00001"))
        shutil.copytree(old, new)
        change_lines(
            file,
            lambda lines: [
                *lines,
                *(
                    line.replace("HIT,0_", "HIT,1_").replace(",0,", ",1,", 1)
                    for line in lines
                    if line.startswith("HIT,0_")
                ),
            ],
        )(folder)

    return [
        missing_image("images/sdv2/00000/samples/00002.png", 24),
        too_few(change_lines(file, lambda lines: [line for line in lines if not line.startswith("HIT,94_")]), 5, 6),
        too_many(more, 7, 6),
        no_file("annotations_if-xl.csv"),
        wrong(
            BROKEN,
            change_lines(file, lambda lines: [lines[0], lines[1].replace("HIT,0_0,", "HIT,zero,"), *lines[2:]]),
            "'Input.index'",
            *row(1, file),
            "328_1",
        ),
        wrong(
            DUPLICATE,
            change_lines(file, lambda lines: [*lines, lines[1]]),
            at(file),
            "6",
            "image 00000",
            "prompt 00000",
            "5",
        ),
    ]


def _imagenet():
    tench, goldfish = (f"val/{wordnet}" for wordnet in (class_layouts.TENCH, class_layouts.GOLDFISH))
    name, file = "ILSVRC2012_val_00000003.JPEG", "imagenet_class_index.json"

    def no_image(folder):
        (folder / tench / name).write_text("no image")

    return [
        missing_image(f"{tench}/{name}", 3, make=no_image, reason="is not an image"),
        too_few(remove(f"{tench}/{name}"), 2, 3),
        too_many(copy(f"{tench}/{name}", f"{tench}/ILSVRC2012_val_00000004.JPEG"), 4, 3),
        broken_off(file),
        no_file("imagenet_prompts.csv"),
        wrong(BROKEN, change(file, lambda rows: rows.pop("7")), at(file), "999", "1000"),
        wrong(
            BROKEN,
            lambda folder: (folder / tench).rename(folder / "val" / "tench"),
            "{root}/val/tench",
            "'tench'",
            at(file),
        ),
        wrong(BROKEN, remove("val"), "{root}/val"),
        wrong(DUPLICATE, copy(f"{tench}/{name}", f"{goldfish}/{name}"), at(goldfish), name),
    ]


def _flowers102():
    def split(numbers):
        return lambda folder: scipy.io.savemat(folder / "setid.mat", {"tstid": np.array([numbers])})

    return [
        missing_image("jpg/image_00002.jpg", 3),
        too_few(split([3, 1]), 2, 3),
        too_many(split([3, 1, 2, 4]), 4, 3),
        wrong(BROKEN, cut("imagelabels.mat", 0.3), "{root}/imagelabels.mat"),
        wrong(
            BROKEN,
            lambda folder: scipy.io.savemat(folder / "setid.mat", {"trnid": np.array([[1]])}),
            "{root}/setid.mat",
            "'tstid'",
        ),
        wrong(BROKEN, split([3, 1, 6]), "'tstid'", "{root}/setid.mat", "6", "{root}/imagelabels.mat", "5"),
        no_file("setid.mat"),
        wrong(DUPLICATE, split([3, 1, 3]), "'tstid'", "{root}/setid.mat", "3"),
    ]


def _naturalbench():
    return [
        too_few(_change_table(_NATURAL, list.pop), 2, 3),
        too_many(_change_table(_NATURAL, lambda rows: rows.append(rows[-1])), 4, 3),
        *_table(
            _NATURAL,
            "train-*.parquet",
            lambda rows: rows[1].update(Image_1_Question_1="B"),
            "'Image_1_Question_1'",
            "'B'",
        ),
    ]


def _naturalbench_retrieval():
    file = newer_layouts.ANNOTATIONS["naturalbench_retrieval"]
    return [
        missing_image("NaturalBench-Retrieval/images/1_0.jpg", 6),
        broken_off(file),
        no_file(file),
        wrong(BROKEN, change(file, lambda rows: rows[2].pop("caption_1")), *row(3, file), "'caption_1'"),
        wrong(DUPLICATE, change(file, first_again), "'index'", *row(4, file), "0"),
    ]


def _crepe():
    file = newer_layouts.ANNOTATIONS["crepe_productivity_swap"]

    def in_row_2(old, new):
        return change_lines(file, lambda lines: [*lines[:2], lines[2].replace(old, new), *lines[3:]])

    return [
        missing_image("VG_100K/1.jpg", 2),
        no_file(file),
        wrong(BROKEN, in_row_2("[", "("), "'hard_negs'", *row(2, file)),
        wrong(BROKEN, in_row_2(",10,", ",ten,"), "'width'", *row(2, file), "'ten'"),
        wrong(BROKEN, in_row_2(",2,1,10,12,", ",-12,1,10,12,"), *row(2, file), "10 x 12", "(-12, 1)"),
    ]


def _uncounted(faults):
    return [fault for fault in faults if fault.kind not in (FEWER, MORE)]


FAULTS = {
    "sugarcrepe_swap_att": _by_key("swap_att.json", "val2017/000000000285.jpg", "1", "negative_caption", "0"),
    "sugarcrepe_selfbench_att": _merged(),
    "sugarcrepe_pp_swap_obj": _sugarcrepe_pp(),
    "valse_existence": _by_key("existence.json", "images/visual7w/1.jpg", "existence_2", "foil", "existence_0"),
    "cola": _cola(),
    "whatsup_a": _whatsup_a(),
    "whatsup_b_sets": _whatsup_b_sets(),
    "coco_spatial_one": _coco_spatial(),
    "vismin_object": _vismin(),
    "countbench": _countbench(),
    "mmvp_color": _mmvp(),
    "eqbench_kubric_cnt": _rows("all_select.json", "images/eqbenkubric_cnt/1/0.png", 6, "caption1"),
    "spec_count_text": _spec("image2text.json", 3),
    "spec_count_image": _spec("text2image.json", 9),
    "vlchecklist_attribute_color": _vlchecklist(),
    "naturalbench_groups": _naturalbench(),
    "naturalbench_retrieval": _naturalbench_retrieval(),
    "crepe_productivity_swap": _crepe(),
    "imagenet": _imagenet(),
    "flowers102": _flowers102(),
    "cifar10": _cifar10(),
    "stl10": _stl10(),
    "fgvc_aircraft": _aircraft(),
    "meta_tifa160": _tifa160("tifa160.json"),
    "meta_tifa160_authors": _tifa160_authors(),
    "meta_imagereward": _imagereward(),
    "meta_geneval": _geneval(),
}

_NO_ID = "its rows have no id: a repeated row is one more row, which the count tells"
_NO_COUNT = "no number of examples is published, so that any is right"
_ONE_FILE = "its pictures are in its tables"
_UNCOUNTED_WITHOUT_ID = (
    *("countbench", "spec_count_text", "spec_count_image"),
    *("vlchecklist_attribute_color", "crepe_productivity_swap"),
)
_UNCOUNTED = ("naturalbench_retrieval", *_UNCOUNTED_WITHOUT_ID)
_WITHOUT_ID = (
    *("cola", "coco_spatial_one", "vismin_object", "eqbench_kubric_cnt", "cifar10", "stl10", "naturalbench_groups"),
    *_UNCOUNTED_WITHOUT_ID,
)
_IN_TABLES = ("vismin_object", "countbench", "cifar10", "stl10", "naturalbench_groups")
INEXPRESSIBLE = {
    **{(task, DUPLICATE): _NO_ID for task in _WITHOUT_ID},
    **{(task, kind): _NO_COUNT for task in _UNCOUNTED for kind in (FEWER, MORE)},
    **{(task, MISSING): _ONE_FILE for task in _IN_TABLES},
}
