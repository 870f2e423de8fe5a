"""Tiny sets in the published layouts of the data sets of the contrib package, as in `tests.tasks.published_layouts`."""

import csv
import json
import pathlib
from functools import partial

import numpy as np
import scipy.io

from tests.tasks import published_layouts
from tests.tasks.published_layouts import (
    CAPTIONS,
    COCO,
    items_of,
    make_image,
    write_image,
    write_json,
    write_pair_table,
    write_table,
)
from winobench.contrib.datasets import (
    cola,
    conme,
    crepe,
    eqbench,
    meta_genai_bench,
    meta_geneval,
    meta_tifa160,
    mmvp,
    naturalbench,
    spec,
    sugarcrepe,
    sugarcrepe_pp,
    sugarcrepe_selfbench,
    valse,
    vismin,
    vlchecklist,
    whatsup,
)
from winobench.data.example import Item

TENCH, GOLDFISH, MISSILE, PROJECTILE = "n01440764", "n01443537", "n03773504", "n04008634"

_IMAGENET = {0: "tench", 1: "goldfish", 657: "missile", 744: "missile", 836: "sunglasses", 837: "sunglasses"}


def write_sugarcrepe(folder: pathlib.Path, name: str) -> pathlib.Path:
    rows = {}
    for key, file, (caption, _, negative) in zip("013", COCO, CAPTIONS, strict=True):
        write_image(folder / "val2017" / file)
        rows[key] = {"filename": file, "caption": caption, "negative_caption": negative}
    write_json(folder / f"{name}.json", rows)
    return folder


def write_whatsup(folder: pathlib.Path, subset: str) -> pathlib.Path:
    name, _, arrangements = whatsup.SUBSETS[subset]
    words = {"left": "to the left of", "right": "to the right of", "in-front": "in front of"}
    rows = []
    for one, other in (("mug", "plate"), ("beer-bottle", "armchair")):
        captions = {each: f"A {one} {words.get(each, each)} a {other}" for each in arrangements}
        for each in arrangements:
            file = f"{one}_{each}{'_of' if each in words else ''}_{other}.jpeg"
            write_image(folder / name / file)
            options = [captions[each], *(text for key, text in captions.items() if key != each)]
            rows.append({"image_path": f"data/{name}/{file}", "caption_options": options})
    write_json(folder / f"{name}_dataset.json", rows)
    return folder


def write_whatsup_spatial(folder: pathlib.Path, task: str) -> pathlib.Path:
    file, _, images, name, _ = whatsup.SPATIAL[task]
    rows = []
    for number in (139, 285, 632):
        write_image(folder / images / name.format(number))
        rows.append([number, f"A cup {number} on the left", f"A cup {number} on the right"])
    write_json(folder / file, rows)
    return folder


def write_sugarcrepe_merged(folder: pathlib.Path, what: str) -> pathlib.Path:
    """Three sets with the same three keys, of which the first one has a fourth."""
    for name in sugarcrepe_selfbench.MERGED[what]:
        write_sugarcrepe(folder, name)
    path = folder / f"{sugarcrepe_selfbench.MERGED[what][0]}.json"
    rows = json.loads(path.read_text())
    write_json(path, {**rows, "5": rows["0"]})
    return folder


def write_sugarcrepe_pp(folder: pathlib.Path, name: str) -> pathlib.Path:
    rows = []
    for number, (file, (caption, other, negative)) in enumerate(zip(COCO, CAPTIONS, strict=True)):
        write_image(folder / "val2017" / file)
        row = {"id": number, "filename": file, "caption": caption, "caption2": other, "negative_caption": negative}
        rows.append(row)
    write_json(folder / "sugarcrepe_pp" / f"{name}.json", rows)
    return folder


def write_valse(folder: pathlib.Path, file: str, images: str) -> pathlib.Path:
    """Three rows that annotators found valid, and a fourth one."""
    rows = {}
    for number, votes in enumerate((3, 2, 2, 1)):
        caption, _, foil = CAPTIONS[number % 3]
        row = {"image_file": f"{number}.jpg", "caption": caption, "foil": foil}
        rows[f"{file}_{number}"] = row | {"mturk": {"caption": votes, "foil": 3 - votes, "other": 0}}
        write_image(folder / "images" / images / f"{number}.jpg")
    write_json(folder / f"{file}.json", rows)
    return folder


def write_cola(folder: pathlib.Path) -> pathlib.Path:
    rows = []
    for number, (caption, _, other) in enumerate(CAPTIONS):
        addresses = [f"https://cs.stanford.edu/people/rak248/VG_100K/{number}{side}.jpg" for side in (0, 1)]
        for address in addresses:
            write_image(folder / "images" / address.rsplit("/", 1)[1])
        rows.append([addresses[0], caption, addresses[1], other])
    write_json(folder / "COLA_multiobjects_matching_benchmark.json", rows)
    return folder


COLA_SINGLE = {
    # Text -> of six images: shown and hard (2), hard (1), shown (3), neither (0).
    "square white plate": (2, 1, 2, 1, 0, 1),
    "round red cup": (1, 2, 1, 1, 1, 2),
    "small black dog": (1, 1, 0, 0, 0, 0),  # shown by none
    "tall green tree": (3, 0, 1, 1, 0, 0),  # shown by none of the hard ones
    "old wooden chair": (3, 3, 0, 0, 0, 0),  # without hard ones
    "clear blue sky": (0, 0, 2, 0, 2, 1),
}


def write_cola_single(folder: pathlib.Path, source: str) -> pathlib.Path:
    """Six images and six texts, three of which count. Those of CLEVR are attributes with an object."""
    folders = {"gqa": "vg_gqa_images/{}.jpg", "clevr": "images/val/CLEVR_val_{:06d}.png", "paco": "val2017/{:012d}.jpg"}
    data = []
    for number in range(6):
        address = f"/data/{folders[source].format(number)}"
        write_image(folder / "images" / address.rsplit("/", 1)[1])
        states = [states[number] for states in COLA_SINGLE.values()]
        shown, hard = ([int(state in which) for state in states] for which in ((2, 3), (1, 2)))
        data.append([address, {"plate": ["white"]}, shown, hard])
    words = [text.rsplit(" ", 1) for text in COLA_SINGLE]
    labels = [[one.split(), thing] for one, thing in words] if source == "clevr" else list(COLA_SINGLE)
    content = [labels, data] if source == "paco" else {"labels": labels, "data": data}
    write_json(folder / cola.single_file(source), content)
    return folder


def write_countbench(folder: pathlib.Path) -> pathlib.Path:
    """Three rows that count, one without a picture and one without its number."""
    rows = [
        (make_image(0), "Three cups on a table", 3),
        (make_image(1), "set of ten icons", 10),
        (None, "two dogs", 2),
        (make_image(3), "a few birds", 4),
        (make_image(4), "TWO BOOKS, two pens", 2),
    ]
    rows = [dict(zip(("image", "text", "number"), row, strict=True)) for row in rows]
    write_table(folder / "data" / "train-00000-of-00001-cf54c241ba947306.parquet", rows)
    return folder


def write_mmvp(folder: pathlib.Path, kind: str) -> pathlib.Path:
    """Three pairs, not in the order of their numbers, and a row of another type."""
    lines = ["Question ID,Type,Statement"]
    for number in (3, 4, 1, 2, 5, 6):
        write_image(folder / "MLLM_VLM Images" / kind / f"{number}.jpg")
        lines.append(f'{number},{kind},"a cup, seen {number} times"')
    lines.append("7,Another,a dog")
    (folder / "Questions.csv").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return folder


def write_eqbench(folder: pathlib.Path, source: str) -> pathlib.Path:
    """Three pairs, of which the last one has frames as arrays, and one of another source."""
    rows = []
    for number, kind in enumerate((source, source, source, "another")):
        names = [f"eqben{kind}/{number}/{side}.{'npy' if number == 2 else 'png'}" for side in (0, 1)]
        for side, name in enumerate(names):
            path = folder / "images" / name
            if path.suffix == ".npy":
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, np.full((4, 6, 3), (250, 100, side), np.uint8))
            else:
                write_image(path)
        texts = CAPTIONS[number % 3]
        rows.append({"image0": names[0], "image1": names[1], "caption0": texts[0], "caption1": texts[2]})
    write_json(folder / "all_select.json", rows)
    return folder


def write_eqbench_full(folder: pathlib.Path, source: str, images: str = "image") -> pathlib.Path:
    """Three pairs and two of other sources, each in four rows, in random order. The third has frames as arrays."""
    rows = []
    for number, kind in ((4, source), (9, "another"), (5, source), (6, source), (5, "elsewhere")):
        names = [f"eqben{kind}/{number}/{side}.{'npy' if number == 6 else 'png'}" for side in (0, 1)]
        for side, name in enumerate(names):
            path = folder / images / name
            if path.suffix == ".npy":
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, np.full((4, 6, 3), (250, 100, side), np.uint8))
            else:
                write_image(path.with_suffix(".jpg" if images == "image_jpg" else ".png"))
        texts = CAPTIONS[number % 3]
        for caption, image in np.ndindex(2, 2):
            about = {"dataset": f"eqben{kind}", "name": f"c{caption}i{image}", "sample_cnt": number}
            rows.append({"image": names[image], "caption": (texts[0], texts[2])[caption], "private_info": about})
    order = np.random.default_rng(0).permutation(len(rows))
    write_json(folder / "ann_json_finegrained_random.json", [rows[place] for place in order])
    return folder


def write_spec(folder: pathlib.Path, subset: str) -> pathlib.Path:
    size = spec.SUBSETS[subset][0]
    root = folder / "data" / subset
    images = [f"images/{index}.png" for index in range(size)]
    texts = [f"A photo of {index} cups." for index in range(size)]
    for name in images:
        write_image(root / name)
    labels = [0, 1, size - 1]
    write_json(root / "image2text.json", [{"query": images[i], "keys": texts, "label": i} for i in labels])
    write_json(root / "text2image.json", [{"query": texts[i], "keys": images, "label": i} for i in labels])
    return folder


def write_vlchecklist(folder: pathlib.Path, check: str) -> pathlib.Path:
    for file in vlchecklist.CHECKS[check][0]:
        images = vlchecklist._IMAGES[vlchecklist._source(file)]
        rows = []
        for number in range(3):
            name = f"VG_100K/{number}.jpg"
            write_image(folder / images / name)
            rows.append([name, {"POS": [f"cup {number} is red"], "NEG": [f"cup {number} is blue"]}])
        write_json(folder / "data" / f"{file}.json", rows)
    return folder


def write_prompts(path: pathlib.Path, names: dict[int, str], count: int) -> None:
    """The table of Diffusion Classifier; classes that are not named are called by their numbers."""
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["prompt", "classname", "classidx"])
        for number in range(count):
            name = names.get(number, f"class {number}")
            table.writerow([f"a photo of a {name}.", name, number])


def write_imagenet(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_prompts(folder / "imagenet_prompts.csv", _IMAGENET, 1000)
    known = {0: TENCH, 1: GOLDFISH, 657: MISSILE, 744: PROJECTILE}
    classes = {str(number): [known.get(number, f"n1{number:07d}"), f"class_{number}"] for number in range(1000)}
    write_json(folder / "imagenet_class_index.json", classes)
    for wordnet, number in ((TENCH, 3), (GOLDFISH, 1), (PROJECTILE, 2)):
        write_image(folder / "val" / wordnet / f"ILSVRC2012_val_{number:08d}.JPEG")
    return folder


def flatten(folder: pathlib.Path) -> None:
    for path in sorted((folder / "val").glob("*/*.JPEG")):
        path.rename(folder / "val" / path.name)
        path.parent.rmdir()


def write_kaggle(folder: pathlib.Path) -> None:
    flatten(folder)
    boxes = (f"{GOLDFISH} 1 2 3 4 {GOLDFISH} 5 6 7 8", f"{PROJECTILE} 1 2 3 4", f"{TENCH} 1 2 3 4")
    rows = [f"ILSVRC2012_val_{number:08d},{box}" for number, box in enumerate(boxes, 1)]
    (folder / "LOC_val_solution.csv").write_text("\n".join(["ImageId,PredictionString", *rows]) + "\n")


def write_devkit(folder: pathlib.Path) -> None:
    """Flat, with the development kit, whose numbers are its own."""
    flatten(folder)
    data = folder / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    synsets = np.array([[(1, PROJECTILE, "a")], [(2, TENCH, "b")], [(3, GOLDFISH, "c")]], dtype=fields)
    scipy.io.savemat(data / "meta.mat", {"synsets": synsets})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n1\n2\n")


def write_flowers102(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_prompts(folder / "flowers_prompts.csv", {0: "pink primrose", 76: "passion flower"}, 102)
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": np.array([[77, 1, 102, 5, 6]], np.uint8)})
    scipy.io.savemat(folder / "setid.mat", {"trnid": np.array([[4]]), "tstid": np.array([[3, 1, 2]], np.uint16)})
    for number in range(1, 6):
        write_image(folder / "jpg" / f"image_{number:05d}.jpg")
    return folder


def write_crepe(folder: pathlib.Path, kind: str) -> pathlib.Path:
    """Three rows a table, of which the last one has no false caption."""
    part, _, negatives = kind.partition("_")
    column = "hard_negs" if part == "productivity" else f"valid_hard_negs_{negatives}"
    if part == "productivity":
        place = folder / crepe.PRODUCTIVITY / negatives
        names = [f"prod_vg_hard_negs_{negatives}_complexity_{level}.csv" for level in crepe.COMPLEXITIES]
    else:
        place = folder / crepe.SYSTEMATICITY
        names = [f"syst_vg_hard_negs_{seen}_compounds_in_laion.csv" for seen in ("seen", "unseen")]
    place.mkdir(parents=True, exist_ok=True)
    for name in names:
        with open(place / name, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["", "image_id", "caption", "x", "y", "width", "height", column])
            for number, false in enumerate((5, 4, 0)):
                captions = [f"a {color} cup" for color in ("red", "green", "gray", "pink", "black")][:false]
                captions += captions[:1] * (number == 1)
                table.writerow([number, number + 1, f"a blue cup, {number}", 2, 1, 10, 12, captions])
    for number, images in ((1, "VG_100K"), (2, "VG_100K_2"), (3, "VG_100K")):
        write_image(folder / images / f"{number}.jpg")
    return folder


def write_cifar10(folder: pathlib.Path) -> pathlib.Path:
    """Three pictures: red, green with a white pixel at the right of the first row, and noise."""
    root = folder / "cifar-10-batches-bin"
    root.mkdir(parents=True, exist_ok=True)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (root / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    pictures = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), np.uint8)
    pictures[0] = np.array([255, 0, 0], np.uint8)[:, None, None]
    pictures[1] = np.array([0, 255, 0], np.uint8)[:, None, None]
    pictures[1, :, 0, 31] = 255
    labels = np.array([[3], [9], [0]], np.uint8)
    (root / "test_batch.bin").write_bytes(np.concatenate([labels, pictures.reshape(3, -1)], axis=1).tobytes())
    return folder


def write_stl10(folder: pathlib.Path) -> pathlib.Path:
    """Three pictures: blue with a white pixel at the right of the first row, and noise."""
    root = folder / "stl10_binary"
    root.mkdir(parents=True, exist_ok=True)
    names = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
    (root / "class_names.txt").write_text("\n".join(names) + "\n")
    pictures = np.random.default_rng(0).integers(0, 256, (3, 96, 96, 3), np.uint8)
    pictures[0] = (0, 0, 255)
    pictures[0, 0, 95] = 255
    (root / "test_X.bin").write_bytes(pictures.transpose(0, 3, 2, 1).tobytes())
    (root / "test_y.bin").write_bytes(bytes([1, 10, 4]))
    return folder


def write_fgvc_aircraft(folder: pathlib.Path) -> pathlib.Path:
    root = folder / "fgvc-aircraft-2013b" / "data"
    for name in ("1514522", "0747566", "1008575"):
        write_image(root / "images" / f"{name}.jpg")
    variants = ["707-320", "DHC-8-100", *(f"Variant {number}" for number in range(98))]
    (root / "variants.txt").write_text("\n".join(variants) + "\n")
    (root / "images_variant_test.txt").write_text("1514522 707-320\n0747566 DHC-8-100\n1008575 Variant 97\n")
    return folder


def write_tifa160(folder: pathlib.Path, authors: bool) -> pathlib.Path:
    pictures, lines = {}, ["data_type,model_type,item_id,source_id,worker_id,question,answer"]
    for number, (prompt, (text, _, _)) in enumerate(zip(("coco_1", "drawbench_2", "coco_3"), CAPTIONS, strict=True)):
        for place, (model, name) in enumerate(meta_tifa160._MODELS.items()):
            key = f"{prompt}_{name}"
            write_image(folder / "tifa160" / f"{key}.jpg")
            given = [1 + (number + place) % 5, 1 + (2 * number + place * place) % 5]
            pictures[key] = {"text_id": prompt, "image_path": f"{key}.jpg", "text": text}
            if authors:
                pictures[key] |= {"human_scores": given, "human_avg": sum(given) / 2}
            lines += [f'tifa160,{model},tifa160_{number},{prompt},7,"How consistent, is it?",{one}' for one in given]
    write_json(folder / ("human_annotations.json" if authors else "tifa160.json"), pictures)
    if not authors:
        (folder / "dsg_tifa160_anns.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_imagereward(folder: pathlib.Path) -> pathlib.Path:
    """Three prompts with four to nine ranked pictures; two share a text."""
    rows = []
    for number, size in enumerate((4, 9, 5)):
        names = [f"part-{number:06d}/images/0040/{index}.webp" for index in range(size)]
        for name in names:
            write_image(folder / "test_images" / name)
        ranking = [1 + (index * (number + 1)) % 4 for index in range(size)]
        prompt = CAPTIONS[number % 2][0]
        rows.append({"id": f"{number:06d}-0040", "prompt": prompt, "generations": names, "ranking": ranking})
    write_json(folder / "test.json", rows)
    return folder


def write_geneval(folder: pathlib.Path) -> pathlib.Path:
    """Three sets of two prompts with four pictures and five answers each; as published, one answer is cut in two."""
    heading = "HITId,Input.index,Input.prompt_id,Input.image_id,Input.image_url,Input.caption,Input.object_0_name,"
    heading += "Input.object_1_name,Input.object_0_name_plural,Input.object_1_name_plural,Input.exclude,Answer.ee,"
    heading += "Answer.task-color-0,Answer.task-color-1,Answer.task-count-0,Answer.task-count-1,Answer.task-objects,"
    heading += "Answer.task-position-x,Answer.task-position-y,Answer.task-quality,Answer.task-real-0,Answer.task-real-1"
    for place, name in enumerate(meta_geneval.SETS):
        lines = [heading]
        for prompt, caption in ((0, "a photo of a bench"), (94, "a photo of a frisbee and a vase")):
            for sample in range(4):
                write_image(folder / "images" / name / f"{prompt:05d}" / "samples" / f"{sample:05d}.png")
                begin = f"HIT,{prompt}_{sample},{prompt},{sample},https://example.org/{sample}.png,{caption}"
                begin += ",bench,,benches,,,9.5,red|green,,1,,"
                for worker in range(5):
                    is_cut = (name, prompt, sample, worker) == ("if-xl", 94, 1, 0)
                    listed = "1.Frisbees\n2.Vase" if is_cut else '"bench, tree"'
                    quality = 4 if is_cut else min(4, 1 + (place + prompt + sample + worker) % 6)
                    lines.append(f"{begin}{listed},right,neither_y,{quality},3.0,")
        (folder / f"annotations_{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_coco_counterfactuals(folder: pathlib.Path) -> pathlib.Path:
    """Three pairs, whose images are named without an ending."""
    lines = []
    for number, (caption, _, other) in enumerate(CAPTIONS):
        names = [f"{number}_0_img_{side}" for side in (0, 1)]
        for name in names:
            write_image(folder / "data" / "images" / f"{name}.jpg")
        row = {"id": f"{number}_0", "image_0": names[0], "image_1": names[1], "caption_0": caption}
        lines.append(json.dumps(row | {"caption_1": other}))
    (folder / "data" / "examples.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def write_conme(folder: pathlib.Path, part: str) -> pathlib.Path:
    """Three rows, whose questions list the options; one has its options in two lines."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"replace-{part}.csv"
    columns = ("image", "question", "answer", "base_question", "correct_option", "incorrect_option")
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for number, (name, options) in enumerate(zip(COCO, ("red", "two\ncats", "under it"), strict=True)):
            write_image(folder / "val2017" / name)
            base, wrong = f"What is there, {number}?", f"not {options}"
            listed = (wrong, options) if number == 1 else (options, wrong)
            question = f"{base}\nA. {listed[0]}\nB. {listed[1]}"
            table.writerow([f"images/{name}", question, "B" if number == 1 else "A", base, options, wrong])
    return folder


def write_seetrue(folder: pathlib.Path) -> pathlib.Path:
    """Four texts of three sources, with two to four images each; rows of a text are apart."""
    lines = ["image,text,label,original_dataset_id,dataset_source"]
    for side in range(4):
        for number, source in enumerate(("editbench", "coco_t2i", "drawbench", "editbench")):
            if side > 1 + number:
                continue
            text = f"a red cup, number {number}"
            write_image(folder / "images" / f"{number}_{side}.png")
            label = int((number + side * side) % 3 == 0 or side == 1)
            lines.append(f'{number}_{side}.png,"{text}",{label},text_{number},{source}')
    (folder / "SeeTRUE.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_genai_bench(folder: pathlib.Path) -> pathlib.Path:
    """Five prompts with six images and three answers each. The third lacks two models, the last has no skill."""
    prompts = {}
    for number in range(1, 6):
        id, models = f"{number:05d}", {}
        for place, model in enumerate(meta_genai_bench.MODELS):
            if number == 3 and place in (1, 4):
                continue
            write_image(folder / model / f"{id}.jpeg")
            models[model] = [1 + (number * (place + 1) + person * person) % 5 for person in range(3)]
        text = CAPTIONS[number % 3][number % 2]
        prompts[id] = {"id": id, "prompt": text, "prompt in Chinese": "\u4e00", "models": models}
    write_json(folder / "genai_image.json", prompts)
    skills = {"attribute": [1, 3], "spatial relation": [1], "basic": [1, 3], "counting": [2, 4], "advanced": [2, 4]}
    write_json(folder / "genai_skills.json", skills)
    return folder


def write_hpdv2(folder: pathlib.Path) -> pathlib.Path:
    """Three prompts with nine or ten ranked images."""
    rows = []
    for number, size in enumerate((9, 10, 9)):
        names = [f"{number}{index:07d}.jpg" for index in range(size)]
        for name in names:
            write_image(folder / "test" / name)
        rank = [1 + (index * 7 + number * 3) % size for index in range(size)]
        row = {"prompt": CAPTIONS[number % 2][0], "image_path": names, "rank": rank}
        rows.append(row | {"raw_annotations": [{"rank": rank[::-1], "user_hash": "a1"}]})
    write_json(folder / "test.json", rows)
    return folder


def write_evalmuse(folder: pathlib.Path) -> pathlib.Path:
    """Four prompts with four images each and two or three elements, of three or six people."""
    rows = []
    elements = [
        ("a red cup (object)", "red (color)"),
        ("two cats (animal/human)", "two (counting)", "chases (activity)"),
    ]
    for number in range(4):
        for place, model in enumerate(("SDXL-Turbo", "SD3", "IF", "Kolors")):
            path, people = f"{model}/{number:05d}.png", range(6 if (number + place) % 3 == 0 else 3)
            write_image(folder / "images" / path)
            answers = {
                name: [(number + place * (which + 1) + person) % 5 % 2 for person in people]
                for which, name in enumerate(elements[number % 2])
            }
            row = {"prompt_id": f"{number:05d}", "prompt": CAPTIONS[number % 2][number // 2], "img_path": path}
            row |= {"type": ("real", "synth")[number // 2], "element_score": answers, "fidelity_label": []}
            row["total_score"] = [1 + (2 * number + 3 * place + person * person) % 5 for person in people]
            rows.append(row | {f"{what}_confidence": [0 for _ in people] for what in ("split", "attribute")})
    write_json(folder / "train_list.json", rows)
    return folder


def write_naturalbench(folder: pathlib.Path) -> pathlib.Path:
    """Three rows, of which the second one has letters for answers."""
    rows = []
    for number in range(3):
        answers = ("A", "B") if number == 1 else ("Yes", "No")
        options = " Option: A: red; B: blue;" if number == 1 else ""
        row = {f"Image_{side}": make_image(number, side) for side in (0, 1)}
        row |= {f"Question_{side}": f"Is cup {number} {color}?{options}" for side, color in enumerate(("red", "blue"))}
        row |= {"Index": number, "Question_Type": "multiple_choice" if number == 1 else "yes_no"}
        for image in (0, 1):
            row |= {f"Image_{image}_Question_{question}": answers[image != question] for question in (0, 1)}
        rows.append(row)
    write_table(folder / "data" / "train-00000-of-00001.parquet", rows)
    return folder


def write_naturalbench_retrieval(folder: pathlib.Path) -> pathlib.Path:
    root, rows = folder / "NaturalBench-Retrieval", []
    for number, (caption, _, other) in enumerate(CAPTIONS):
        names = [f"{number}_{side}.jpg" for side in (0, 1)]
        for name in names:
            write_image(root / "images" / name)
        row = {"index": number, "caption_0": caption, "caption_1": other}
        rows.append(row | {"image_0": names[0], "image_1": names[1]})
    write_json(root / "metadata.json", rows)
    return folder


LAYOUTS = {
    **{
        f"sugarcrepe_selfbench_{what}": partial(write_sugarcrepe_merged, what=what)
        for what in sugarcrepe_selfbench.MERGED
    },
    **{f"sugarcrepe_pp_{name}": partial(write_sugarcrepe_pp, name=name) for name in sugarcrepe_pp.SETS},
    **{
        f"valse_{piece}": partial(write_valse, file=file, images=images)
        for piece, (file, _, images, _, _) in valse.PIECES.items()
    },
    "cola": write_cola,
    **{f"cola_single_{source}": partial(write_cola_single, source=source) for source in cola.SINGLES},
    **{
        task: partial(write_pair_table, task=task)
        for task in (*(f"vismin_{category}" for category in vismin.CATEGORIES), "bivlc")
    },
    "countbench": write_countbench,
    **{f"mmvp_{name}": partial(write_mmvp, kind=kind) for name, (kind, _, _) in mmvp.PATTERNS.items()},
    **{f"eqbench_{name}": partial(write_eqbench, source=name) for name in eqbench.SOURCES_OF_FRAMES},
    **{f"eqbench_full_{name}": partial(write_eqbench_full, source=name) for name in eqbench.SOURCES_OF_FRAMES},
    **{
        f"spec_{subset}_{side}": partial(write_spec, subset=subset)
        for subset in spec.SUBSETS
        for side in ("text", "image")
    },
    **{f"vlchecklist_{check}": partial(write_vlchecklist, check=check) for check in vlchecklist.CHECKS},
    **{f"naturalbench{form}": write_naturalbench for form in naturalbench.FORMS},
    "naturalbench_retrieval": write_naturalbench_retrieval,
    **{f"crepe_{kind}": partial(write_crepe, kind=kind) for kind in crepe.KINDS},
    "imagenet": write_imagenet,
    "flowers102": write_flowers102,
    "cifar10": write_cifar10,
    "stl10": write_stl10,
    "fgvc_aircraft": write_fgvc_aircraft,
    "meta_geneval": write_geneval,
    **{f"sugarcrepe_{edit}_{what}": partial(write_sugarcrepe, name=f"{edit}_{what}") for edit, what in sugarcrepe.SETS},
    **{
        f"whatsup_{subset}{suffix}": partial(write_whatsup, subset=subset)
        for subset in whatsup.SUBSETS
        for suffix in ("", "_pairs", "_sets")
    },
    **{task: partial(write_whatsup_spatial, task=task) for task in whatsup.SPATIAL},
    "meta_tifa160": partial(write_tifa160, authors=False),
    "meta_tifa160_authors": partial(write_tifa160, authors=True),
    "meta_imagereward": write_imagereward,
    "meta_seetrue": write_seetrue,
    "coco_counterfactuals": write_coco_counterfactuals,
    **{
        f"conme_replace_{part}{form}": partial(write_conme, part=part)
        for part in conme.PARTS
        for form in ("", "_options")
    },
    "meta_genai_bench": write_genai_bench,
    "meta_genai_bench_527": write_genai_bench,
    "meta_hpdv2": write_hpdv2,
    "meta_evalmuse": write_evalmuse,
    "meta_evalmuse_elements": write_evalmuse,
}
"""Task -> its writer."""

ALL = {**published_layouts.LAYOUTS, **LAYOUTS}
"""The same with the tasks of the core."""

ANNOTATIONS = {
    "sugarcrepe_swap_att": "swap_att.json",
    "whatsup_a": "controlled_images_dataset.json",
    "whatsup_b_sets": "controlled_clevr_dataset.json",
    "coco_spatial_one": "coco_qa_one_obj.json",
    "meta_geneval": "annotations_if-xl.csv",
    "sugarcrepe_selfbench_att": "add_att.json",
    "sugarcrepe_pp_swap_obj": "sugarcrepe_pp/swap_obj.json",
    "valse_existence": "existence.json",
    "cola": "COLA_multiobjects_matching_benchmark.json",
    "conme_replace_att": "replace-att.csv",
    "conme_replace_rel_options": "replace-rel.csv",
    "cola_single_gqa": "COLA_singleobjects_benchmark_GQA.json",
    "vismin_object": "data/test-00001-of-00002.parquet",
    "countbench": "data/train-00000-of-00001-cf54c241ba947306.parquet",
    "mmvp_color": "Questions.csv",
    "eqbench_kubric_cnt": "all_select.json",
    "eqbench_full_youcook2": "ann_json_finegrained_random.json",
    "spec_count_text": "data/count/image2text.json",
    "spec_count_image": "data/count/text2image.json",
    "vlchecklist_attribute_color": "data/Attribute/vaw/color.json",
    "naturalbench_groups": "data/train-00000-of-00001.parquet",
    "naturalbench_retrieval": "NaturalBench-Retrieval/metadata.json",
    "crepe_productivity_swap": "prod_hard_negatives/swap/prod_vg_hard_negs_swap_complexity_7.csv",
    "imagenet": "imagenet_class_index.json",
    "flowers102": "setid.mat",
    "cifar10": "cifar-10-batches-bin/test_batch.bin",
    "stl10": "stl10_binary/test_X.bin",
    "fgvc_aircraft": "fgvc-aircraft-2013b/data/images_variant_test.txt",
    "meta_tifa160": "tifa160.json",
    "meta_tifa160_authors": "human_annotations.json",
    "meta_imagereward": "test.json",
    "meta_seetrue": "SeeTRUE.csv",
    "coco_counterfactuals": "data/examples.jsonl",
    "meta_genai_bench": "genai_image.json",
    "meta_hpdv2": "test.json",
    "meta_evalmuse": "train_list.json",
}
"""Task -> its annotation file; of tasks that one function reads, one task."""


def written(task: str, folder: pathlib.Path) -> list[Item]:
    """The examples of a task whose set is written into the folder."""
    return items_of(task, ALL[task](folder))
