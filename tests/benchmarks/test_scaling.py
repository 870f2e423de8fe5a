import dataclasses
import json

import pytest

from benchmarks import scaling
from winobench.data import images as image_files
from winobench.errors import InputError
from winobench.evaluation import plan as planning
from winobench.evaluation import race
from winobench.metrics import sequential
from winobench.tasks import TASKS, clevr, coco_hardneg, flickr30k, get_task, imagecode, winoground

NOTHING = scaling.Measured(**{field.name: 0.0 for field in dataclasses.fields(scaling.Measured)})
FREE = scaling.Assumptions(compile_seconds=0, connect_seconds=0, weights_gigabytes=0, bytes_an_image=0)


def plain(counts, **options):
    return scaling.TaskWork("plain", scaling.Counts(*counts), "", **options)


def seconds(measured=NOTHING, assumed=FREE, **options):
    flops = {"vae": 1000.0, "text": 100.0}
    return scaling.model(measured, flops, assumed, **{"passes_per_second": 100.0, "devices": 1, **options})


@pytest.mark.parametrize(
    "name",
    [
        "clevr",
        pytest.param("clevr_image", marks=pytest.mark.slow),
        pytest.param("clevr_winoground", marks=pytest.mark.slow),
    ],
)
def test_counts_as_a_plan_does(name):
    task = get_task(name)
    plan = planning.make_plan([task], data_dir=None, limit=5, normalize="auto")
    examples = (
        ([image_files.image_hash(image) for image in example.images], example.texts) for example in task.load(None, 5)
    )
    counts = scaling.count(examples, normalized=task.images_compete)
    questions = len(plan.questions[name])
    assert counts == scaling.Counts(questions, len(plan.images), len(plan.texts), len(plan.pairs))


def test_work_is_that_of_the_published_annotations(reference_data, tmp_path):
    folder = reference_data / "gdbench"
    if not folder.is_dir():
        pytest.skip("the reference data have no annotations of GDBench")
    (tmp_path / "captions").symlink_to(folder / "clevr")
    items = {
        "clevr": clevr.read(tmp_path),
        "coco_hardneg_text": coco_hardneg.read_texts(folder / "coco_hardneg"),
        "coco_hardneg_image": coco_hardneg.read_images(folder / "coco_hardneg"),
        "flickr30k_image": flickr30k.read_image_side(folder / "flickr30k"),
        "flickr30k_text": flickr30k.read_text_side(folder / "flickr30k"),
        "imagecode_static": imagecode.read(folder / "imagecode", True),
        "imagecode_video": imagecode.read(folder / "imagecode", False),
        "winoground": winoground.read(folder / "winoground"),
    }
    work = {one.name: one for one in (*scaling.WORK, *scaling.MORE_WORK)}
    pairs = {}
    for name, of_task in items.items():
        examples = [(item.images, item.texts) for item in of_task]
        assert scaling.count(examples, normalized=get_task(name).images_compete) == work[name].counts, name
        pairs[name] = {(image.path.name, text) for images, texts in examples for image in images for text in texts}
    # The right pairs of every caption, of which the order tasks have all.
    captions = json.loads((folder / "flickr30k" / "val_top10_RN50x64.json").read_text())
    order = {(paths[0].rsplit("/", 1)[1], caption) for caption, paths in captions.items()}
    image, text = pairs["flickr30k_image"], pairs["flickr30k_text"]
    assert work["flickr30k_image"].repeated_pairs == len(image & order)
    assert work["flickr30k_text"].repeated_pairs == len(text & (order | image))


def test_work_has_every_task_of_the_benchmark_with_its_number_of_examples():
    names = [name for work in (*scaling.WORK, *scaling.MORE_WORK) for name in work.name.split(", ")]
    published = [name for name, task in TASKS.items() if task.source is not None]
    assert sorted(names) == sorted(set(published))
    for work in (*scaling.WORK, *scaling.MORE_WORK):
        first = get_task(work.name.split(", ")[0])
        if first.source.num_examples is not None:
            assert work.counts.questions == first.source.num_examples
        most = first.shape[0] * first.shape[1] * work.counts.questions
        most += work.counts.images if first.images_compete else 0
        assert work.counts.pairs <= most
        assert work.is_bias == (first.association is not None)


def test_passes_and_encoding_on_the_devices():
    work = [plain((10, 10, 20, 20))]
    found = seconds(work=work, samples=50)  # 20 pairs x 50 samples at 100 a second
    assert found["passes"] == pytest.approx(10)
    # 10 images of 1,000 and 20 texts of 100 GFLOP, at 27 TFLOP/s.
    assert found["encoding"] == pytest.approx(12 / 27)
    # One end: a step of 32 passes, a batch of 8 images.
    assert found["tails"] == pytest.approx(0.32 + 8 / 27)
    assert sum(found.values()) == pytest.approx(sum(found[name] for name in ("passes", "encoding", "tails")))
    shared = seconds(work=work, samples=50, devices=16)
    assert shared["passes"] == pytest.approx(10 / 16)
    assert shared["encoding"] == pytest.approx(12 / 27 / 16)
    assert shared["unequal shares"] == pytest.approx(0)


def test_bias_takes_its_own_samples_also_in_a_race():
    work = [plain((10, 10, 20, 20)), plain((1, 1, 5, 5), is_bias=True)]
    assert seconds(work=work, samples=250)["passes"] == pytest.approx(50 + 1)
    assert seconds(work=work, samples=250, factor=10)["passes"] == pytest.approx(5 + 1)


def test_hosts_work():
    measured = dataclasses.replace(
        NOTHING, plan_a_question=1, read_a_row=2, read_a_part=3, summarise_a_question=4, index_a_pair=0.5, start=7
    )
    work = [plain((10, 10, 20, 20))]
    alone = seconds(measured, work=work, samples=50)
    assert alone["planning"] == 10
    assert alone["summarising"] == 10 * 4 + 20 * 0.5
    assert alone["collecting"] == 0  # there are no others
    assert alone["start and weights"] == 7
    two = seconds(measured, work=work, samples=50, devices=16)
    # In each of two rounds the first process reads 20 records, from a file of each process.
    assert two["collecting"] == 2 * (20 * 2 + 2 * 3)
    assert seconds(measured, dataclasses.replace(FREE, read_by_one=False), work=work, devices=16)["collecting"] == 0


def test_storage_is_shared():
    assumed = dataclasses.replace(FREE, bytes_an_image=1e9, gigabytes_a_second=1, storage_gigabytes_a_second=4)
    work = [plain((10, 10, 20, 20))]
    assert seconds(assumed=assumed, work=work)["checking data"] == pytest.approx(10)
    assert seconds(assumed=assumed, work=work, devices=64)["checking data"] == pytest.approx(10 * 8 / 4)
    once = dataclasses.replace(assumed, verify_by_all=False)
    assert seconds(assumed=once, work=work, devices=64)["checking data"] == pytest.approx(10 / 4)


def test_shares_of_a_race_are_equal_in_passes():
    # Half of the questions have nine tenths of the pairs.
    work = [plain((10, 10, 10, 90)), plain((10, 10, 10, 10))]
    found = seconds(work=work, samples=250, factor=10, devices=16)
    assert found["passes"] == pytest.approx(2500 / 1600)
    assert found["unequal shares"] == pytest.approx(0)


def test_the_largest_share_may_lie_across_tasks():
    work = [plain((10, 1, 1, 10)), plain((4, 8, 1, 10)), plain((10, 1, 1, 10))]
    share = scaling.largest_share(work, 2, samples=1, seconds_a_pass=1, seconds_an_image=1, seconds_a_text=0)
    assert share.passes == pytest.approx(15)
    assert share.images == pytest.approx(8.5)


def test_looks_and_parts():
    assert scaling.looks_of_a_question(1) == 1
    numbers = sequential.looks(250, race.ALPHA)
    assert scaling.looks_of_a_question(10) == 1  # nothing is sure before the first look, whatever the factor
    assert scaling.looks_of_a_question(250 / (numbers[0] + 1)) == 2
    assert scaling.looks_of_a_question(1.0001) == len(numbers)
    assert scaling.looks_of_a_question(5, samples=4) == 1
    assert scaling.parts_written(100) == 50
    # From 200 s on, each part takes 1% longer than the one before.
    assert scaling.parts_written(200 * 1.01**10 + 1e-6) == 110


def test_where_it_stops():
    def of(devices):
        return {"passes": 64 / devices, "start": 1.0, "storage": devices / 64}

    assert scaling.half_efficient(of) == 32
    assert scaling.fastest(of) == 64


def test_table_from_earlier_measurements(tmp_path, capsys):
    figures = {
        "measured": dataclasses.asdict(NOTHING),
        "gigaflops": {"pass": 804.3, "vae": 1116.7, "text": 45.1},
        "machine": {"accelerator": None, "processor": "one", "cores": 2, "libraries": {"jax": "0", "torch": "0"}},
        "load_average": [0, 0],
    }
    earlier, output = tmp_path / "earlier.json", tmp_path / "figures.json"
    earlier.write_text(json.dumps(figures))
    given = ["--measured", str(earlier), "--output", str(output)]
    scaling.main([*given, "--passes_per_second", "480", "--price", "2"])
    found = json.loads(output.read_text())
    assert found["rates"] == {"given": 480}
    assert found["measured"] == figures["measured"]
    assert found["passes"] == sum(one.new_pairs * one.samples(250) for one in scaling.WORK)
    assert "480 passes/s a device; 2 USD" in capsys.readouterr().out
    scaling.main(given)
    assert "not measured" in capsys.readouterr().out
    earlier.write_text("{}")
    with pytest.raises(InputError, match="no figures"):
        scaling.main(given)
    with pytest.raises(InputError, match="--passes_per_second is 0"):
        scaling.main(["--passes_per_second", "0"])


@pytest.mark.slow
def test_measures_something():
    measured = dataclasses.asdict(scaling.measure())
    assert all(value >= 0 for value in measured.values())
    assert all(measured[name] > 0 for name in ("start", "plan_a_question", "load_an_image", "look_a_question"))
