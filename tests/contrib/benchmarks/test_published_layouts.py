"""Folders as benchmarks publish them: our pairs of image and prompt are those that the published readers make.

The readers here do what the published code does, in its order: djghosh13/geneval af4902f evaluate_images.py,
TencentQQGYLab/ELLA 3c228f1 compute_dpg_bench.py, Karine-Huang/T2I-CompBench 1b70949 BLIP_vqa.py,
OneIG-Bench/OneIG-Benchmark 41b4983 alignment_score.py, A113N-W3I/TIIF-Bench 3aae750 eval_with_vlm.py,
KaiyueSun98/T2I-ReasonBench efc1d20 eval_idiom.py, PKU-YuanGroup/WISE eb51174, CodeGoat24/UniGenBench 49d0bce.
"""

import glob
import json
import os
import re

import numpy as np
import PIL.Image
import pytest

from tests.expectations import raises
from winobench.contrib.benchmarks.prompts import named_sets
from winobench.generation import collecting
from winobench.generation.collecting import collect_images
from winobench.prompts.prompt_files import NamedSet, Prompt
from winobench.runs import image_records, image_runs


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch):
    """Thousands of files take long to sync."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def collect(tmp_path, name, prompts, monkeypatch, **keywords):
    """The run of the folder ``in``, by the layouts of a named set."""
    layouts = named_sets.NAMED_SETS[name].layouts if name in named_sets.NAMED_SETS else ()
    named = NamedSet(lambda source: prompts, "", "", layouts)
    monkeypatch.setattr(collecting.named_sets, "NAMED_SETS", {name: named})
    return collect_images(tmp_path / "in", f"{name}:x", tmp_path / "run", progress=False, **keywords)


def image(path, colour, size=(2, 2)):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", size, tuple(colour)).save(path)


def by_file(run):
    """(file, crop) -> the text of its prompt."""
    return {(r.source["file"], tuple(r.source.get("crop", ()))): r.prompt.text for r in run.records}


@pytest.mark.slow
def test_geneval(tmp_path, monkeypatch):
    prompts = [Prompt(f"{n:05d}", f"a photo of {n % 500} cats", "counting", {"tag": "counting"}) for n in range(553)]
    for n, prompt in enumerate(prompts):
        folder = tmp_path / "in" / f"{n:05d}"
        for sample in range(4):
            image(folder / "samples" / f"{sample:05d}.png", (n % 256, n // 256, sample))
        (folder / "metadata.jsonl").write_text(json.dumps({"tag": "counting", "prompt": prompt.text}))
    image(tmp_path / "in" / "00000" / "grid.png", (1, 2, 3))

    expected = {}
    for subfolder in os.listdir(tmp_path / "in"):
        folder = tmp_path / "in" / subfolder
        if not folder.is_dir() or not subfolder.isdigit():
            continue
        metadata = json.loads((folder / "metadata.jsonl").read_text())
        for name in os.listdir(folder / "samples"):
            if re.match(r"\d+\.png", name):
                expected[f"{subfolder}/samples/{name}", ()] = metadata["prompt"]
    run = collect(tmp_path, "geneval", prompts, monkeypatch)
    assert by_file(run) == expected
    assert (len(run.records), run.seeds, run.missing) == (2212, (0, 1, 2, 3), ())
    record = run.record("in", 3, 552)
    assert run.image(record).tolist() == [[[552 % 256, 2, 3]] * 2] * 2


def test_a_grid_of_dpg_bench(tmp_path, monkeypatch):
    prompts = [Prompt(name, f"about {name}") for name in ("partiprompts97", "drawtext.1", "COCOval2014000000000042")]
    resolution, rng = 3, np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    expected = {}
    for prompt in prompts:
        pixels = rng.integers(0, 255, (2 * resolution, 2 * resolution, 3), np.uint8)
        path = tmp_path / "in" / f"{prompt.id.replace('.', '_')}.png"
        PIL.Image.fromarray(pixels).save(path)
        corners = [(0, 0), (resolution, 0), (0, resolution), (resolution, resolution)]
        for seed, (left, top) in enumerate(corners):
            box = (left, top, left + resolution, top + resolution)
            key = os.path.basename(path).split(".")[0]
            expected[key, seed] = np.asarray(PIL.Image.open(path).crop(box)), f"about {key}"
    prompts = [Prompt(prompt.id.replace(".", "_"), f"about {prompt.id.replace('.', '_')}") for prompt in prompts]
    run = collect(tmp_path, "dpg_bench", prompts, monkeypatch, grid="2x2")
    assert len(run.records) == len(expected) == 12
    for record in run.records:
        pixels, text = expected[record.prompt.id, record.seed]
        np.testing.assert_array_equal(run.image(record), pixels)
        assert record.prompt.text == text


@pytest.mark.parametrize("folder", ["", "samples", "color", "color/samples"])
def test_t2i_compbench(folder, tmp_path, monkeypatch):
    """Numbers run on over all prompts: ten images of each, in the order of the prompts."""
    prompts = [
        Prompt(f"color-{n}", text, "color") for n, text in enumerate(("a red car.", "a bench, and a cat", "ein Hut"))
    ]
    samples = tmp_path / "in" / folder
    for count in range(30):
        image(samples / f"{prompts[count // 10].text}_{count:06}.png", (count, 0, 0))
    names = sorted(os.listdir(samples), key=lambda name: int(name.split("_")[-1].split(".")[0]))
    expected = {(f"{folder}/{name}".lstrip("/"), ()): name.split("_")[0] for name in names}
    image(tmp_path / "in" / "other" / "samples" / "something else_000000.png", (9, 9, 9))
    if not folder.startswith("color"):
        (tmp_path / "in" / "other" / "samples" / "something else_000000.png").unlink()
    run = collect(tmp_path, "t2i_compbench", prompts, monkeypatch)
    assert by_file(run) == expected
    assert run.seeds == tuple(range(10))
    order = [record.source["file"] for record in sorted(run.records, key=lambda r: (r.number, r.seed))]
    assert order == [file for file, _ in expected]


def test_grids_of_oneig(tmp_path, monkeypatch):
    """Images are cut row by row, and all black ones are left out."""
    prompts = [Prompt(f"{part}_{key}", f"{part} {key}", part) for part in ("anime", "human") for key in ("000", "001")]
    rng, (columns, rows) = np.random.default_rng(1), (2, 2)
    for part in ("anime", "human", "text"):
        for model in ("gpt-4o", "imagen4"):
            for key in ("000", "001"):
                pixels = rng.integers(1, 255, (7, 9, 3), np.uint8)
                if (part, model, key) == ("human", "imagen4", "001"):
                    pixels[3:6, 4:8] = 0
                path = tmp_path / "in" / part / model / f"{key}.webp"
                path.parent.mkdir(parents=True, exist_ok=True)
                PIL.Image.fromarray(pixels).save(path, lossless=True)
    expected = {}
    for part in ("anime", "human"):
        for model in ("gpt-4o", "imagen4"):
            for key in ("000", "001"):
                (path,) = glob.glob(f"{tmp_path}/in/{part}/{model}/{key}*")
                grid = PIL.Image.open(path)
                width, height = grid.size[0] // columns, grid.size[1] // rows
                boxes = [
                    (j * width, i * height, (j + 1) * width, (i + 1) * height)
                    for i in range(rows)
                    for j in range(columns)
                ]
                for seed, box in enumerate(boxes):
                    tile = np.asarray(grid.convert("RGB").crop(box))
                    if tile.any():
                        expected[model, seed, f"{part}_{key}"] = tile
    with raises("missing-images", "human/imagen4/001.webp", "--allow_missing"):
        collect(tmp_path, "oneig", prompts, monkeypatch, grid="2x2")
    run = collect(tmp_path, "oneig", prompts, monkeypatch, grid="2x2", allow_missing=True)
    with raises("missing-images", "human/imagen4/001.webp", "--allow_missing"):
        collect(tmp_path, "oneig", prompts, monkeypatch, grid="2x2")
    assert image_runs.read_images(run.folder).config["status"] == "finished"
    assert [(m.place, m.kind) for m in run.missing] == [(("imagen4", 3, 3), "black")]
    assert len(expected) == len(run.records) == 31
    for record in run.records:
        np.testing.assert_array_equal(run.image(record), expected[record.model, record.seed, record.prompt.id])
    assert (
        image_records.read_records(run.folder)[("imagen4", 3, 3)].reason == "human/imagen4/001.webp is all black there"
    )


def test_tiif(tmp_path, monkeypatch):
    kinds, lengths = ("2d_spatial_relation", "action+2d"), ("short", "long")
    prompts = [
        Prompt(f"{kind}-{index}-{length}", f"{kind} {index} {length}", kind)
        for kind in kinds
        for index in range(3)
        for length in lengths
    ]
    expected = {}
    for kind in kinds:
        for length in lengths:
            for index, ending in enumerate((".png", ".jpg", ".webp")):
                file = f"{kind}/some model/{length}_description/{index}{ending}"
                image(tmp_path / "in" / file, (index, 0, 0))
    for kind in kinds:
        for length in lengths:
            for index in range(3):
                (path,) = glob.glob(f"{tmp_path}/in/{kind}/some model/{length}_description/{index}.*")
                expected[os.path.relpath(path, tmp_path / "in"), ()] = f"{kind} {index} {length}"
    run = collect(tmp_path, "tiif", prompts, monkeypatch)
    assert by_file(run) == expected
    assert [model.name for model in run.models] == ["some model"]


def test_t2i_reasonbench(tmp_path, monkeypatch):
    """eval_*.py take the number at the beginning of a name in the folder of the group."""
    groups, expected = ("idiom_interpretation", "entity_reasoning"), {}
    prompts = [Prompt(f"{group}-{n:04d}", f"{group} {n}", group) for group in groups for n in (1, 2, 10)]
    for group in groups:
        for n, ending in ((1, ".png"), (2, ".jpg"), (10, ".png")):
            image(tmp_path / "in" / group / f"{n:04d}{ending}", (n, 0, 0))
        for name in sorted(os.listdir(tmp_path / "in" / group)):
            expected[f"{group}/{name}", ()] = f"{group} {int(name[:4])}"
    assert by_file(collect(tmp_path, "t2i_reasonbench", prompts, monkeypatch)) == expected


@pytest.mark.parametrize(("name", "end"), [("wise", ""), ("unigenbench", "_0"), ("unigenbench", "_3")])
def test_sets_with_one_folder(name, end, tmp_path, monkeypatch):
    """gpt_eval.py reads <prompt_id>.png, and eval_common.py <index>_<n>.png."""
    prompts = [Prompt(str(number), f"text {number}") for number in (1, 2, 10, 100)]
    for prompt in prompts:
        image(tmp_path / "in" / f"{prompt.id}{end}.png", (int(prompt.id), 0, 0))
    run = collect(tmp_path, name, prompts, monkeypatch)
    assert by_file(run) == {(f"{prompt.id}{end}.png", ()): prompt.text for prompt in prompts}
