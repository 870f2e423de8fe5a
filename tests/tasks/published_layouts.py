"""Tiny data sets in the exact layouts in which the tasks' data were published.

Each writer fills the folder that ``winobench prepare --tasks=<task> --source=<folder>`` reads,
and returns it. The sets are far smaller than the published ones, so prepare them with ``allow_partial``. The order
tasks call `winobench.data.word_order.spacy_tagger`: replace it by ``lambda **_: stand_in_tagger``; those with the
published shuffles call `winobench.data.published_order.nltk_tokenizer`, too: ``lambda: stand_in_tokenizer``.
"""

import functools
import io
import json
import pathlib
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from winobench.clevr import captions as clevr_captions
from winobench.data.example import Item
from winobench.data.sources import LeftOut
from winobench.tasks import TASKS, genderbias, mmbias

COCO = ["000000000139.jpg", "000000000285.jpg", "000000000632.jpg"]
CAPTIONS = [
    ("A red cup beside a blue plate.", "A cup in red beside a plate in blue.", "A blue cup beside a red plate."),
    ("A dog chases two cats.", "Two cats are chased by a dog.", "Two cats chase a dog."),
    ("A man under a tree.", "Below a tree there is a man.", "A man above a tree."),
]
NUM_FLICKR_IMAGES = 12
_FLICKR_WORDS = ["man", "woman", "dog", "child", "horse", "girl", "boy", "cat", "crowd", "couple", "team", "artist"]
_PLACES = ["on the wide beach", "in a busy street", "near an old house", "under green trees", "by the cold river"]
_PETS = (
    "abyssinian american_bulldog american_pit_bull_terrier basset_hound beagle bengal birman bombay boxer"
    " british_shorthair chihuahua egyptian_mau english_cocker_spaniel english_setter german_shorthaired great_pyrenees"
    " havanese japanese_chin keeshond leonberger maine_coon miniature_pinscher newfoundland persian pomeranian pug"
    " ragdoll russian_blue saint_bernard samoyed scottish_terrier shiba_inu siamese sphynx staffordshire_bull_terrier"
    " wheaten_terrier yorkshire_terrier"
)

_TAGS = {"the": "DT", "a": "DT", "in": "IN", "on": "IN", "near": "IN", "under": "IN", "by": "IN", "with": "IN"}
_TAGS |= {"walks": "VBZ", "sits": "VBZ", "riding": "VBG", "wearing": "VBG", "cutting": "VBG", "her": "PRP$"}
_TAGS |= {word: "JJ" for word in ("wide", "busy", "old", "green", "cold", "red", "small", "large", "white", "dirt")}


def stand_in_tagger(text: str) -> list[tuple[str, str]]:
    """For tests without spaCy: ends of sentences are tokens of their own, and unknown words are nouns."""
    tokens = text.replace(".", " .").split()
    return [(token, "." if token == "." else _TAGS.get(token.lower(), "NN")) for token in tokens]


def stand_in_tokenizer(text: str) -> list[str]:
    return [token for token, _ in stand_in_tagger(text)]


def write_image(path: pathlib.Path, size: tuple[int, int] = (24, 16)) -> None:
    """Coarse noise that differs from path to path, in the format of the path's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(zlib.crc32("/".join(path.parts[-3:]).encode()))
    Image.fromarray(rng.integers(0, 256, (4, 6, 3), np.uint8)).resize(size, Image.Resampling.NEAREST).save(path)


def write_json(path: pathlib.Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False), encoding="utf-8")


def _flickr_captions() -> list[list[str]]:
    """Five of each image; the last one of image 1 is that of image 0, as it happens in the published set."""
    captions = [
        [f"A {word} walks {place}." for place in _PLACES[:4]] + [f"A {word} {number} sits {_PLACES[4]}."]
        for number, word in enumerate(_FLICKR_WORDS)
    ]
    captions[1][4] = captions[0][4]
    return captions


def write_flickr30k(folder: pathlib.Path) -> pathlib.Path:
    """Both lists, Karpathy's rows and the images: what flickr30k_image, flickr30k_text and aro_flickr_order read."""
    captions = _flickr_captions()
    names = [f"{1000 + number}.jpg" for number in range(NUM_FLICKR_IMAGES)]
    paths = [f"datasets/flickr30k/images/{name}" for name in names]
    for name in names:
        write_image(folder / "images" / name)
    neighbours = [[(number + step) % NUM_FLICKR_IMAGES for step in range(1, 10)] for number in range(NUM_FLICKR_IMAGES)]
    owner = {caption: number for number, own in reversed(list(enumerate(captions))) for caption in own}
    order = dict.fromkeys(caption for own in captions for caption in own)
    lists = {caption: [paths[i] for i in (owner[caption], *neighbours[owner[caption]])] for caption in order}
    write_json(folder / "val_top10_RN50x64.json", lists)
    texts = {
        path: [own[0], *(captions[i][0] for i in near)]
        for path, own, near in zip(paths, captions, neighbours, strict=True)
    }
    texts[paths[3]][8] = texts[paths[3]][7]  # the published lists have four with a wrong caption twice
    write_json(folder / "val_top10_RN50x64_text.json", texts)
    karpathy = [
        {"image": f"flickr30k-images/{name}", "caption": own} for name, own in zip(names, captions, strict=True)
    ]
    write_json(folder / "flickr30k_val.json", karpathy)
    return folder


def write_winoground(folder: pathlib.Path) -> pathlib.Path:
    rows = [
        ("an old person kisses a young person", "a young person kisses an old person", "Adjective-Age", "", 1),
        ("a dog near a cat", "a cat near a dog", "Noun, Adjective-Color", "Symbolic, Series", 1),
        ("it is falling so she sits", "she is falling so it sits", "Scope", "Pragmatics", 2),
    ]
    keys = ("caption_0", "caption_1", "tag", "secondary_tag", "num_main_preds")
    content = []
    for number, row in enumerate(rows):
        images = {f"image_{side}": f"ex_{number}_img_{side}" for side in (0, 1)}
        collapsed = ("Relation", "Both", "Object")[number]
        content.append({"id": number, **images, **dict(zip(keys, row, strict=True)), "collapsed_tag": collapsed})
        for name in images.values():
            write_image(folder / "images" / f"{name}.png")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "examples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return folder


def write_svo(folder: pathlib.Path) -> pathlib.Path:
    rows = [
        ("Girl is standing in the grass.", "girl,stand,grass", "dog,stand,grass", "subj"),
        ("A father holds a baby.", "father,hold,baby", "person,hold,baby", "subj"),
        ("A car passes another on a street.", "car,pass,street", "car,hit,street", "verb"),
        ("A man rides a horse.", "man,ride,horse", "man,ride,bike", "obj"),
        ("A man leads a horse.", "man,lead,horse", "man,ride,horse", "verb"),
        ("A woman reads a book.", "woman,read,book", "woman,read,paper", "obj"),
    ]
    content = []
    for number, row in enumerate(rows):
        ids = {"pos_id": f"{2 * number}.jpg", "neg_id": f"{2 * number + 1}.jpg"}
        for name in ids.values():
            write_image(folder / "images" / name)
        keys = ("sentence", "pos_triplet", "neg_triplet", "neg_type")
        content.append({**ids, **dict(zip(keys, row, strict=True))})
    write_json(folder / "svo.json", content)
    return folder


def write_imagecode(folder: pathlib.Path) -> pathlib.Path:
    content = {
        "open-images-1815_f91d6f546e63f20d": {"5": "A deer head hangs next to a painting", "7": "Some green grass"},
        "MSR-VTT-videoTestVideo_video7047-shot1_0": {"0": "the lady in blue", "9": "Two girls", "3": "empty"},
        "open-images-2_a": {"1": "A red cup"},
    }
    for name in content:
        for index in range(10):
            write_image(folder / "image-sets" / name / f"img{index}.jpg")
    write_json(folder / "valid_data.json", content)
    return folder


def _visual_genome_row(folder: pathlib.Path, number: int, true: str, false: str, **about) -> dict:
    write_image(folder / "images" / f"{number}.jpg")
    box = {"bbox_x": number % 3, "bbox_y": 2, "bbox_w": 12 + number % 2, "bbox_h": 9}
    captions = {"true_caption": true, "false_caption": false}
    return {"image_id": str(number), "image_path": f"{number}.jpg", **box, **captions, **about}


def write_aro_vg_relation(folder: pathlib.Path) -> pathlib.Path:
    rows = []
    for number, relation in enumerate(["on", "next to", "on", "behind", "to the left of"]):
        texts = (f"the cup is {relation} the table {number}", f"the table {number} is {relation} the cup")
        rows.append(_visual_genome_row(folder, number, *texts, relation_name=relation))
    write_json(folder / "visual_genome_relation.json", rows)
    return folder


def write_aro_vg_attribution(folder: pathlib.Path) -> pathlib.Path:
    """One pair of attributes has 25 rows, which is enough to count in the mean, the other 3."""
    rows = []
    for number in range(28):
        one, other = ("white", "black") if number < 25 else ("open", "wet")
        texts = (f"the {a} door and the {b} road {number}" for a, b in ((one, other), (other, one)))
        about = {"attributes": [one, other], "obj1_name": "door", "obj2_name": "road"}
        rows.append(_visual_genome_row(folder, number, *texts, **about))
    write_json(folder / "visual_genome_attribution.json", rows)
    return folder


def write_aro_coco_order(folder: pathlib.Path) -> pathlib.Path:
    captions = [
        ["A man with a red helmet on a small moped on a dirt road.", "Man riding a motor bike."],
        ["A woman wearing a net on her head cutting a cake.", "A woman cutting a large white sheet cake."],
    ]
    rows = []
    for number, own in enumerate(captions):
        path = f"val2014/COCO_val2014_{number:012d}.jpg"
        write_image(folder / path)
        rows.append({"image": path, "caption": own})
    write_json(folder / "coco_karpathy_test.json", rows)
    return folder


def write_pets(folder: pathlib.Path) -> pathlib.Path:
    for name in ("Abyssinian_201", "shiba_inu_12", "american_pit_bull_terrier_7"):
        write_image(folder / "images" / f"{name}.jpg")
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations" / "test.txt").write_text("Abyssinian_201 1 1 1\nshiba_inu_12 33 2 24\n", encoding="utf-8")
    lines = "".join(f"{name.replace('_', ' ')}\n" for name in _PETS.split())
    (folder / "classes.txt").write_text(lines, encoding="utf-8")
    return folder


def write_mmbias(folder: pathlib.Path) -> pathlib.Path:
    """Three images of each of the nine groups, one of a group that is not asked about, and what macOS leaves behind."""
    for group, category in {**mmbias.GROUPS, "Chinese": "Nationality"}.items():
        for number in range(1, 4):
            write_image(folder / "data" / "Images" / category / group / f"{number}.jpg")
    (folder / "data" / "Images" / "Religion" / "Muslim" / "._1.jpg").write_bytes(b"Mac OS X")
    phrases = {"unpleasant_phrases": mmbias.UNPLEASANT, "pleasant_phrases": mmbias.PLEASANT}
    write_json(folder / "textual_phrases.txt", {**phrases, "category_phrases": ["church"]})
    return folder


def write_genderbias(folder: pathlib.Path) -> pathlib.Path:
    for words in genderbias.PAIRS.values():
        for word in words:
            for number in (1, 6, 7, 12):
                write_image(folder / f"{word}-images" / f"{number}.jpg")
    return folder


def write_coco_hardneg(folder: pathlib.Path) -> pathlib.Path:
    """What coco_hardneg_text and coco_hardneg_image read: pandas' table, with Python lists as text."""
    rows = [
        (
            "A child holding a flowered umbrella and petting a yak.",
            ["A umbrella holding a flowered child .", "A child petting an umbrella ."],
            [1, 2, 3],
        ),
        ("A narrow kitchen filled with appliances.", ["A narrow appliances filled with kitchen ."], [2, 3, 0]),
        ("Luggage on and around luggage carts", ["luggage on and around Luggage carts"], [3, 0, 1]),
        (
            "A man's bike near it's shed.",
            ["A man 's bike near it 's shed .", "A shed 's bike near it 's man .", "A bike 's man near it 's shed ."],
            [0, 1, 2],
        ),
    ]
    lines = ["\ttitle\tfilepath\tneg_caption\tneg_image"]
    for number, (title, captions, images) in enumerate(rows):
        name = f"COCO_val2014_{number:012d}.jpg"
        write_image(folder / "val2014" / name)
        quoted = str(captions).replace('"', '""')
        lines.append(f'{number}\t{title}\tcoco/val2014/{name}\t"{quoted}"\t{images}')
    (folder / "valid_neg_clip.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_clevr(folder: pathlib.Path) -> pathlib.Path:
    names = [f"CLEVR_val_{number}.png" for number in range(3)]
    for name in names:
        write_image(folder / "images" / name)
    for sub_task in clevr_captions.SUBTASKS:
        items = {
            name: [[f"{sub_task} true {n}", f"{sub_task} false {n}"], [f"A cube {n}.", f"A ball {n}."]]
            for n, name in enumerate(names)
        }
        write_json(folder / "captions" / f"{sub_task}.json", items)
    return folder


_WRITERS = {
    write_aro_coco_order: ("aro_coco_order", "aro_coco_order_published"),
    write_aro_vg_attribution: ("aro_vg_attribution",),
    write_aro_vg_relation: ("aro_vg_relation",),
    write_clevr: ("clevr",),
    write_coco_hardneg: (f"coco_hardneg_{side}{rows}" for side in ("text", "image") for rows in ("", "_328")),
    write_flickr30k: ("aro_flickr_order", "aro_flickr_order_published", "flickr30k_image", "flickr30k_text"),
    write_genderbias: ("genderbias",),
    write_imagecode: ("imagecode", "imagecode_static", "imagecode_video"),
    write_mmbias: ("mmbias",),
    write_pets: ("pets", "pets_all", "pets_photo", "pets_photo_all"),
    write_svo: ("svo_obj", "svo_subj", "svo_verb"),
    write_winoground: ("winoground",),
}
GDBENCH = dict(
    sorted(((name, writer) for writer, names in _WRITERS.items() for name in names), key=lambda pair: pair[0])
)
"""Task name -> its writer, for every task of GDBench and its neighbours that read published data."""


def write_all(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes every set of ``GDBENCH`` into ``<folder>/<task>``; gives these folders by task."""
    return {name: writer(folder / name) for name, writer in GDBENCH.items()}


def make_image(*key: int, size: tuple[int, int] = (6, 4)) -> dict:
    pixels = np.random.default_rng(key).integers(0, 256, (size[1], size[0], 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return {"bytes": content.getvalue(), "path": None}


def write_table(path: pathlib.Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_pair_table(folder: pathlib.Path, task: str) -> pathlib.Path:
    """Three rows that the task asks, in two files, and rows of other categories."""
    table = TASKS[task].source.read.keywords["table"]
    rows = []
    for number, (caption, _, other) in enumerate(CAPTIONS):
        row = {column: make_image(number, side) for side, column in enumerate(table.images)}
        row |= dict(zip(table.texts, (caption, other), strict=True))
        row |= dict.fromkeys(table.groups, "swap")
        if table.only is not None:
            rows.append({**row, table.only[0]: "another"})
            row[table.only[0]] = table.only[1]
        rows.append(row)
    write_table(folder / "data" / "test-00000-of-00002.parquet", rows[:2])
    write_table(folder / "data" / "test-00001-of-00002.parquet", rows[2:])
    return folder


def items_of(task: str, folder: pathlib.Path) -> list[Item]:
    """The examples in a folder, without the rows that are left out."""
    return [item for item in TASKS[task].source.read(folder) if not isinstance(item, LeftOut)]


def left_out(task: str, folder: pathlib.Path) -> dict[str, str]:
    return {row.id: row.reason for row in TASKS[task].source.read(folder) if isinstance(row, LeftOut)}


LAYOUTS = {
    **GDBENCH,
    "clevr_spatial_selfbench": write_clevr,
    "colorswap": functools.partial(write_pair_table, task="colorswap"),
}
"""Task -> its writer, for every task of `winobench.tasks` that reads published data."""

ANNOTATIONS = {
    "aro_coco_order": "coco_karpathy_test.json",
    "aro_flickr_order": "flickr30k_val.json",
    "aro_vg_attribution": "visual_genome_attribution.json",
    "aro_vg_relation": "visual_genome_relation.json",
    "clevr": "captions/spatial.json",
    "coco_hardneg_image": "valid_neg_clip.tsv",
    "coco_hardneg_text": "valid_neg_clip.tsv",
    "flickr30k_image": "val_top10_RN50x64.json",
    "flickr30k_text": "val_top10_RN50x64_text.json",
    "imagecode": "valid_data.json",
    "mmbias": "textual_phrases.txt",
    "pets": "classes.txt",
    "svo_subj": "svo.json",
    "winoground": "examples.jsonl",
}
"""Task -> its annotation file. One task for each function that reads."""


def written(task: str, folder: pathlib.Path) -> list[Item]:
    """The examples of a task whose set is written into the folder."""
    return items_of(task, LAYOUTS[task](folder))


def pairs_of(items):
    return {(image.path, text) for item in items for image in item.images for text in item.texts}
