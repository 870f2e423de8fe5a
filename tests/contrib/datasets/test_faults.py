"""Published files that are damaged: the fault and its place. tests/launch/test_bad_sources has whole sentences."""

import numpy as np

from tests.contrib.datasets import layouts
from tests.contrib.datasets.layouts import ANNOTATIONS, LAYOUTS
from tests.tasks.damage import (
    again,
    copied,
    cut,
    drop,
    gone,
    lines,
    mat,
    more,
    on,
    put,
    renamed,
    sub,
    twice,
    write,
)
from tests.tasks.test_faults import cases, check_fault, readers


def devkit(damage):
    """Puts ImageNet's photographs side by side, with the development kit."""

    def both(path):
        layouts.write_devkit(path.parents[2])
        damage(path)

    return both


_DEVKIT = "ILSVRC2012_devkit_t12/data"
_TRUTH = f"{_DEVKIT}/ILSVRC2012_validation_ground_truth.txt"
_TENCH, _GOLDFISH = (f"val/{wordnet}" for wordnet in (layouts.TENCH, layouts.GOLDFISH))
_CSV, _CIFAR, _AIRCRAFT = "dsg_tifa160_anns.csv", "cifar-10-batches-bin", "fgvc-aircraft-2013b/data"
_PHOTO = "ILSVRC2012_val_00000003.JPEG"
_EVALMUSE = ANNOTATIONS["meta_evalmuse"]
_PROMPTS = "flowers_prompts.csv"

# Task -> (file, None for its annotation file; how it is damaged; code; what the message names beside the file). Faults
# of all annotation files are in test_annotations.
FAULTS = {
    "coco_spatial_two": [("coco_qa_two_obj.json", put(0, 0, "a/139"), "not-a-number", "1")],
    "meta_geneval": [
        (None, sub("2.Vase,right,neither_y,4,3.0,\n", ""), "incomplete-row", "26"),
        (None, sub("2.Vase,right,neither_y,4,", "2.Vase,right,neither_y,7,"), "out-of-range", "'Input.image_id'", "27"),
        (None, sub("HIT,0_0,", "HIT,0,"), "wrong-value", "'Input.index'", "1"),
        (None, sub("a bench,bench", "a bank,bench"), "contradicting-rows", "'a photo of a bench'"),
    ],
    "sugarcrepe_swap_att": [(None, twice(), "repeated-key", "'0'")],
    "whatsup_a": [(None, drop(1, "caption_options", 0), "wrong-number-of-entries", "2", "3", "4")],
    "whatsup_b_sets": [
        (None, drop(7), "missing-items", "5", "beer-bottle and armchair", "'behind'"),
        (None, put(1, "image_path", "x/mug_over_plate.jpeg"), "bad-annotations", "2", "'mug_over_plate.jpeg'"),
    ],
    "cola": [(None, put(0, 0, "http://x/"), "outside-of-folder", "1")],
    "cola_single_gqa": [
        (None, put("data", 1, 2, 3, 2), "out-of-range", "entry 4", "entry 2", "2"),
        (None, put("data", 1, 3, 0, True), "not-a-number", "entry 1", "entry 2"),
        (None, drop("data", 4, 3, 5), "wrong-number-of-entries", "entry 5", "5", "6"),
        (None, put("data", 2, 0, "x/"), "outside-of-folder", "3"),
        (None, put("data", 2, 0, "x/1.jpg"), "repeated-image", "3", "'/data/vg_gqa_images/1.jpg'"),
        (None, put("labels", 2, [["red"]]), "wrong-number-of-entries", "'labels'", "3", "1", "2"),
        (None, put("data", []), "empty-list"),
        (None, drop("data"), "missing-field", "'data'"),
    ],
    "conme_replace_att": [
        (None, sub(",A,", ",C,"), "unknown-name", "'answer'", "1", "'C'"),
        (None, sub(",answer,", ",letter,"), "missing-column", "'answer'"),
    ],
    "conme_replace_rel_options": [
        (None, sub(",not red", ",red"), "same-answers", "'incorrect_option'", "1", "'red'"),
        (None, sub(",base_question,", ",base,"), "missing-column", "'base_question'"),
    ],
    "coco_counterfactuals": [
        (None, lines(lambda old: [*old, old[0]]), "repeated-id", "'id'", "4", "0_0"),
        (None, sub('"0_0_img_1"', "1"), "not-a-text", "'image_1'", "1"),
    ],
    "countbench": [(None, put(1, "number", 11), "out-of-range", "'number'", "2", "11")],
    "crepe_productivity_swap": [
        (None, sub('"[', '"('), "not-a-list", "'hard_negs'", "1"),
        (None, sub(",2,1,10,12,", ",-12,1,10,12,"), "bad-box", "1", "10 x 12", "(-12, 1)"),
    ],
    "eqbench_kubric_cnt": [(None, drop(1, "caption1"), "missing-field", "2", "'caption1'")],
    "eqbench_full_youcook2": [
        (None, drop(9), "missing-items", "c0i0", "5", "eqbenyoucook2"),
        (None, again(9), "repeated-id", "'name'", "21", "c0i0"),
        (None, put(9, "caption", "a dog"), "contradicting-rows", "'caption'", "c0i0", "5"),
        (None, put(8, "image", "eqbenyoucook2/5/1.png"), "contradicting-rows", "'image'", "9", "c0i0", "5"),
        (None, put(3, "private_info", "name", "c0i2"), "unknown-name", "'name'", "4", "'c0i2'"),
        (None, drop(3, "private_info"), "missing-field", "'private_info'", "4"),
    ],
    "cifar10": [
        (None, cut(0.999), "incomplete-file", "9,209", "3,073"),
        (None, lambda path: path.write_bytes(bytes([10]) + path.read_bytes()[1:]), "bad-annotations", "1", "10"),
    ],
    "stl10": [("stl10_binary/test_y.bin", write("\1\2"), "wrong-number-of-entries", "2", "3", "test_X.bin")],
    "fgvc_aircraft": [
        (None, more("1514522 707-320"), "bad-annotations", "'1514522 707-320'"),
        (None, more("0000001 Zeppelin"), "bad-annotations", "'0000001 Zeppelin'", "variants"),
    ],
    "flowers102": [
        ("imagelabels.mat", cut(0.3), "damaged-file"),
        ("imagelabels.mat", mat(labels=np.array([[77, 1, 103, 5, 6]])), "out-of-range", "'labels'", "102"),
        ("setid.mat", mat(tstid=np.array([[3, 1, 6]])), "bad-annotations", "'tstid'", "6", "5"),
        (_PROMPTS, lines(lambda old: [*old[:-1], "a,b,0\n"]), "repeated-id", "0"),
        (_PROMPTS, lines(lambda old: old[:-1]), "wrong-number-of-entries", "101", "102"),
    ],
    "imagenet": [
        (None, drop("7"), "wrong-number-of-entries", "999", "1000"),
        ("val/tench", on(_TENCH, renamed("tench")), "unknown-name", "'tench'"),
        (f"{_GOLDFISH}/{_PHOTO}", copied(f"../{layouts.TENCH}/{_PHOTO}"), "repeated-id"),
        (_TRUTH, devkit(write("3\n4\n2\n")), "unknown-name", "2", "'4'"),
        (f"{_DEVKIT}/meta.mat", devkit(write("no matrix")), "damaged-file"),
    ],
    "meta_evalmuse": [
        (None, put(0, "total_score", [3, 6]), "out-of-range", "'total_score'", "1", "6"),
        (None, put(0, "total_score", []), "missing-answer", "'total_score'", "1"),
        (None, put(1, "img_path", "SDXL-Turbo/00000.png"), "repeated-id", "'img_path'", "2", "SDXL-Turbo/00000.png"),
        (None, put(1, "prompt", "A cup"), "contradicting-rows", "'prompt'", "2", "00000"),
    ],
    "meta_evalmuse_elements": [
        (_EVALMUSE, put(2, "element_score", "red (color)", [0, 2, 1]), "out-of-range", "'red (color)'", "3", "2"),
        (_EVALMUSE, put(2, "element_score", "red", [0, 1, 1]), "wrong-value", "'red'", "3"),
    ],
    "meta_genai_bench": [
        (None, put("00002", "models", "SDXL_Base", 1, 6), "out-of-range", "'SDXL_Base'", "'00002'", "2", "6"),
        (None, put("00002", "models", "SDXL_Base", [41]), "missing-answer", "'SDXL_Base'", "'00002'"),
        (None, put("00002", "models", {"DALLE_2": [3]}), "missing-answer", "'models'", "'00002'"),
        ("genai_skills.json", put("counting", [2, 9]), "unknown-name", "'counting'", "2", "9", "genai_image.json"),
        ("genai_skills.json", put("counting", [2, 2]), "repeated-id", "'counting'", "2", "00002"),
        ("genai_skills.json", put("counting", ["2"]), "not-a-number", "'counting'", "1"),
    ],
    "meta_hpdv2": [
        (None, drop(1, "rank", -1), "wrong-number-of-entries", "'rank'", "2", "9", "10"),
        (None, put(1, "rank", 3, 2.5), "not-a-number", "'rank'", "2", "4"),
    ],
    "meta_imagereward": [(None, drop(1, "ranking", -1), "wrong-number-of-entries", "'ranking'", "2", "8", "9")],
    "meta_seetrue": [
        (None, sub('",0,text_1,', '",2,text_1,'), "out-of-range", "'label'", "2"),
        (None, sub('",0,text_1,', '",0.5,text_1,'), "not-a-number", "'label'", "2"),
        (None, sub("\n1_0.png", "\n0_0.png"), "repeated-id", "'image'", "2", "0_0.png"),
    ],
    "meta_tifa160": [
        (_CSV, sub('it?",1', 'it?",6'), "out-of-range", "'answer'"),
        (_CSV, sub(",coco_1,", ",coco_9,"), "unknown-name", "'coco_9_mini_dalle'", "tifa160.json"),
        (
            *(None, on(_CSV, lines(lambda old: [line for line in old if "mini-dalle" not in line]))),
            *("missing-answer", "'coco_1_mini_dalle'"),
        ),
    ],
    "meta_tifa160_authors": [
        (None, put("coco_1_mini_dalle", "human_scores", []), "missing-answer", "'coco_1_mini_dalle'"),
        (None, put("coco_1_vq_diffusion", "text", "x"), "contradicting-rows", "coco_1_vq_diffusion"),
    ],
    "mmvp_color": [
        (None, more("8,Color,a cup"), "not-a-pair", "7", "'Color'"),
        (None, more("6,Color,a cup"), "repeated-id", "6"),
    ],
    "naturalbench_groups": [
        (None, put(1, "Image_1_Question_1", "B"), "same-answers", "'Image_1_Question_1'", "2", "'B'"),
        (None, put(0, "Question_Type", "essay"), "unknown-name", "'Question_Type'", "1", "'essay'"),
    ],
    "naturalbench_retrieval": [(None, put(1, "image_0", 3), "not-a-text", "'image_0'", "2")],
    **{
        f"spec_count_{side}": [(None, put(1, "label", 9), "target-not-among-candidates", "'label'", "2", "9")]
        for side in ("text", "image")
    },
    "sugarcrepe_selfbench_att": [("replace_att.json", gone, "no-such-file")],
    "sugarcrepe_pp_swap_obj": [(None, again(1), "repeated-id", "'id'", "4", "1")],
    "valse_existence": [(None, put("existence_1", "mturk", "caption", "3"), "not-a-number", "'mturk'")],
    "vismin_object": [(None, put(1, "text_1", " "), "not-a-text", "'text_1'", "2")],
    "vlchecklist_attribute_color": [(None, put(1, 1, "NEG", []), "empty-list", "2")],
}


@cases(FAULTS)
def test_a_bad_file_is_named(task, fault, tmp_path):
    check_fault(task, fault, LAYOUTS[task](tmp_path), ANNOTATIONS)


def test_every_reader_has_faults():
    assert readers(LAYOUTS) == readers(FAULTS)
