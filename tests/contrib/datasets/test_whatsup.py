"""What'sUp's images in three forms, and the numbers of its photographs; SugarCrepe's number of rows."""

from tests.contrib.datasets.layouts import written
from tests.tasks.damage import put
from tests.tasks.published_layouts import items_of, pairs_of
from winobench.contrib.datasets import sugarcrepe, whatsup
from winobench.tasks import TASKS


def test_whatsup_by_image_pair_and_set(tmp_path):
    ones, pairs, sets = (written(f"whatsup_b{suffix}", tmp_path) for suffix in ("", "_pairs", "_sets"))
    assert [len(ones), len(pairs), len(sets)] == [8, 4, 2]
    assert (ones[2].id, ones[2].groups) == ("mug_in-front_of_plate", ("in-front",))
    assert ones[2].texts[0] == "A mug in front of a plate"
    assert [pair.id for pair in pairs[:2]] == ["mug and plate/left-right", "mug and plate/in-front-behind"]
    assert [image.path.name for image in pairs[1].images] == ["mug_in-front_of_plate.jpeg", "mug_behind_plate.jpeg"]
    assert pairs[1].texts[:2] == ("A mug in front of a plate", "A mug behind a plate")
    assert pairs_of(ones) == pairs_of(pairs) == pairs_of(sets)


def test_numbers_of_examples_are_the_published_ones():
    def counts(*names):
        return [TASKS[name].source.num_examples for name in names]

    # What'sUp's code counts a pair or set where all its images are right, over N / 2 and N / 4.
    for subset, (_, count, _) in whatsup.SUBSETS.items():
        names = [f"whatsup_{subset}{kind}" for kind in ("", "_pairs", "_sets")]
        assert counts(*names) == [count, count / 2, count / 4]
    # SugarCrepe's set swap_obj lacks the key 108.
    assert sum(counts(*(f"sugarcrepe_{edit}_{what}" for edit, what in sugarcrepe.SETS))) == 7511


def test_numbers_of_photographs(tmp_path):
    (first, *_) = written("coco_spatial_two", tmp_path)
    assert first.images[0].path == tmp_path / "val2017" / "000000000139.jpg"
    put(0, 0, "139")(tmp_path / "coco_qa_two_obj.json")
    assert items_of("coco_spatial_two", tmp_path)[0] == first
    assert written("gqa_spatial_one", tmp_path)[0].images[0].path == tmp_path / "vg_images" / "139.jpg"
