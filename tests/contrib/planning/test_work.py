"""The tasks' sizes against the published annotations, and against the tasks themselves."""

import json

import pytest

from tests.tasks import published_layouts
from winobench.contrib.planning import work
from winobench.tasks import clevr, coco_hardneg, flickr30k, get_task, imagecode, winoground

ALL = work.GDBENCH | work.OTHERS


def count(examples, *, normalized):
    """(questions, images, pairs) as an evaluation's plan counts them."""
    pairs = {(image, text) for images, texts in examples for image in images for text in [*texts, *[""] * normalized]}
    return len(examples), len({image for image, _ in pairs}), len(pairs)


def test_sizes_are_those_of_the_published_annotations(reference_data, tmp_path):
    folder = reference_data / "gdbench"
    if not folder.is_dir():
        pytest.skip("the reference data have no annotations of GDBench")
    (tmp_path / "captions").symlink_to(folder / "clevr")
    items = {
        "clevr": clevr.read(tmp_path),
        "coco_hardneg_text": coco_hardneg.read_texts(folder / "coco_hardneg"),
        "coco_hardneg_image": coco_hardneg.read_images(folder / "coco_hardneg"),
        **{
            f"coco_hardneg_{side}_328": coco_hardneg.read_validated(folder / "coco_hardneg", read)
            for side, read in (("text", coco_hardneg.read_texts), ("image", coco_hardneg.read_images))
        },
        "flickr30k_image": flickr30k.read_image_side(folder / "flickr30k"),
        "flickr30k_text": flickr30k.read_text_side(folder / "flickr30k"),
        "imagecode": imagecode.read(folder / "imagecode", None),
        "imagecode_static": imagecode.read(folder / "imagecode", True),
        "imagecode_video": imagecode.read(folder / "imagecode", False),
        "winoground": winoground.read(folder / "winoground"),
    }
    pairs = {}
    for name, of_task in items.items():
        examples = [(item.images, item.texts) for item in of_task]
        counted = count(examples, normalized=get_task(name).images_compete)
        assert counted == (ALL[name].questions, ALL[name].images, ALL[name].pairs), name
        pairs[name] = {(image.path.name, text) for images, texts in examples for image in images for text in texts}
    # The right pairs of every caption, of which the order tasks have all.
    captions = json.loads((folder / "flickr30k" / "val_top10_RN50x64.json").read_text())
    order = {(paths[0].rsplit("/", 1)[1], caption) for caption, paths in captions.items()}
    image, text = pairs["flickr30k_image"], pairs["flickr30k_text"]
    assert work.GDBENCH["flickr30k_image"].repeated_pairs == len(image & order)
    assert work.GDBENCH["flickr30k_text"].repeated_pairs == len(text & (order | image))


def test_every_task_of_the_benchmark_has_a_size():
    names = [part for name in ALL for part in (("svo_subj", "svo_verb", "svo_obj") if name == "svo" else (name,))]
    assert set(names) == published_layouts.GDBENCH.keys()
    for name, of_task in ALL.items():
        task = get_task("svo_verb" if name == "svo" else name)
        if name != "svo" and task.source.num_examples is not None:
            assert of_task.questions == task.source.num_examples
        most = task.shape[0] * task.shape[1] * of_task.questions + (of_task.images if task.images_compete else 0)
        assert of_task.pairs <= most


def test_newer_tasks_have_the_size_that_they_declare():
    assert work.total(["cola"], 10, 20) == work.Total((4 * 210 + 2 * 210) * 10, 2 * 210)
    assert work.total(["cola"], 10, 20, limit=21) == work.Total(42 * 2 * 10 + 42 * 10, 42)
    assert work.total(["sugarcrepe_swap_obj"], 1, 1) == work.Total(2 * 245, 245)


def test_totals():
    winoground = work.GDBENCH["winoground"]
    assert work.total(["winoground"], 250, 20) == work.Total(winoground.pairs * 250, winoground.images)
    # A quarter of the questions; samples of bias; what is counted once; what is not known.
    assert work.total(["winoground"], 10, 20, limit=100) == work.Total(6000, 200)
    assert work.total(["mmbias"], 250, 20).passes == 270_000 * 20
    assert work.total(["flickr30k_text"], 1, 1).images == 1014
    assert work.total(["aro_flickr_order", "flickr30k_text"], 1, 1).images == 1014
    assert work.total(["svo_subj", "svo_verb"], 1, 1) == work.total(["svo_obj"], 1, 1)
    assert work.total(["another"], 1, 1) == work.Total(0, 0, ("another",))
    everything = work.total([], 250, 20)
    assert everything.passes == 135_331_130 + (7_390 - 3_669) * 37 * 250
