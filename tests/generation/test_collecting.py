"""Folders of images that other programs made: which file is whose, copies, kills, changes and bad input."""

import csv
import json
import os
import shutil
import unicodedata

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.expectations import raises
from winobench.data import images as image_data
from winobench.generation import collected_runs
from winobench.generation.collecting import collect_images
from winobench.prompts.prompt_files import Prompt
from winobench.runs.image_records import ABSENT
from winobench.runs.image_runs import read_images

PROMPTS = [Prompt("a", "A red cube.", "color"), Prompt("b_1", "Zwei Würfel", "form"), Prompt("07", "No / slash: a?")]
GENEVAL = [Prompt(f"{number:05d}", f"a photo of {number} cats", "counting") for number in range(3)]


def write(folder, *names):
    """Image files, each of another colour."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        ending = path.suffix.lower().replace(".jpg", ".jpeg")[1:]
        PIL.Image.new("RGB", (4, 2), (number, 0, 99)).save(path, ending)
    return folder


def collect(folder, prompts=PROMPTS, workdir=None, **keywords):
    return collect_images(folder, prompts, workdir or folder.parent / "run", progress=False, **keywords)


def files_of(run):
    """(model, seed, prompt's id) -> file."""
    return {(record.model, record.seed, record.prompt.id): record.source["file"] for record in run.records}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (None, ["{id}.avif"]),
        (None, ["{id}_0.jpg", "{id}_1.PNG"]),
        (None, ["{id}/00.webp", "{id}/1.png"]),
        (None, ["{number:05d}/samples/00000.png", "{number}/samples/00001.png"]),
        ("./sd/*-{id}-{id}.png", ["sd/x-{id}-{id}.png"]),
        ("{category}/{seed}-{number}", ["color/0-0.png", "color/5-0.png", "form/0-1.jpeg", "form/5-1.png"]),
    ],
)
def test_layouts(pattern, names, tmp_path):
    prompts = PROMPTS[:2] if pattern and "category" in pattern else PROMPTS
    files = [name.format(id=prompt.id, number=n) for n, prompt in enumerate(prompts) for name in names]
    files = [*dict.fromkeys(files)]
    write(tmp_path / "in", *files, "hidden/.x.png").joinpath("notes.txt").write_text("no image")
    (tmp_path / "in" / "hidden" / ".x.png").rename(tmp_path / "in" / ".a.png")
    run = collect(tmp_path / "in", prompts, pattern=pattern, name="some model")
    found = sorted(files_of(run).items(), key=lambda pair: (pair[0][2] != "a", pair[0][2] != "b_1", pair[0][1]))
    assert [file for _, file in found] == files
    assert [(model.name, model.label, model.fingerprint) for model in run.models] == [
        ("some model", "some-model", None)
    ]
    assert run.seeds == ((0, 5) if pattern and "seed" in pattern else (0, 1)[: len(files) // len(prompts)])
    for record in run.records:
        expected = np.asarray(image_data.open_image(tmp_path / "in" / record.source["file"]))
        np.testing.assert_array_equal(run.image(record), expected)


def test_prompts_in_names(tmp_path):
    """In another unicode form, with other signs, or cut off. Numbers that run on are the order within each prompt."""
    prompts = [*PROMPTS, Prompt("long", "A very long text about a cube " * 9)]
    long = prompts[3].text[:100].strip()
    names = ["A red cube._000000.png", "A red cube._000001.png", f"{unicodedata.normalize('NFD', 'Zwei Würfel')}_2.png"]
    names += ["Zwei  Würfel_000003.png", "No _ slash_ a__4.png", "no slash a_5.png", f"{long}_6.png", f"{long}_7.png"]
    run = collect(write(tmp_path / "in", *names), prompts)
    assert [*files_of(run).values()] == [*names[::2], *names[1::2]]
    assert run.seeds == (0, 1)

    # A beginning of two prompts names neither of them.
    with raises("unknown-prompt", "2 of 8", long[:60]):
        collect(tmp_path / "in", [*prompts, Prompt("longer", prompts[3].text + "and a sphere")], tmp_path / "other")


def test_prompts_of_one_text_share_its_files_in_their_order(tmp_path):
    prompts = [Prompt("0", "A cube"), Prompt("1", "A sphere"), Prompt("2", "A cube")]
    names = ["A cube_0.png", "A cube_1.png", "A cube_10.png", "A cube_9.png", "A sphere_3.png", "A sphere_4.png"]
    run = collect(write(tmp_path / "in", *names), prompts)
    assert [*files_of(run).values()] == [names[0], names[4], names[3], names[1], names[5], names[2]]
    # Also where the names have other signs. Two texts that differ in signs share none.
    prompts = [Prompt(str(number), f"A cube{sign}") for number, sign in enumerate("??")]
    folder = write(tmp_path / "signs", "A cube__0.png", "A cube__1.png")
    assert [*files_of(collect(folder, prompts, tmp_path / "two")).values()] == ["A cube__0.png", "A cube__1.png"]
    with raises("unknown-prompt", "2 of 2"):
        collect(folder, [prompts[0], Prompt("1", "A cube!")], tmp_path / "three")


def test_files_become_rgb_png_files(tmp_path):
    """PNG files in RGB keep their bytes. Others lose alpha, turn as EXIF says, and are cut out of a grid."""
    folder = tmp_path / "in"
    folder.mkdir()
    plain = PIL.Image.fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    plain.save(folder / "a.png")
    alpha = PIL.Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    alpha.putpixel((1, 0), (10, 20, 30, 255))
    alpha.save(folder / "b_1.webp", lossless=True)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    plain.save(folder / "07.png", exif=exif)
    run = collect(folder)
    by_id = {record.prompt.id: record for record in run.records}
    assert run.path(by_id["a"]).read_bytes() == (folder / "a.png").read_bytes()
    assert by_id["a"].source == {"file": "a.png", "sha256": by_id["a"].sha256}
    assert run.image(by_id["b_1"]).tolist() == [[[255, 255, 255], [10, 20, 30]]]
    np.testing.assert_array_equal(run.image(by_id["07"]), np.rot90(np.asarray(plain), -1))

    run = collect(folder, workdir=tmp_path / "grids", grid="2x1")
    assert run.seeds == (0, 1)
    for seed in (0, 1):
        record = run.record("in", seed, 0)
        assert record.source["crop"] == [2 * seed, 0, 2 * seed + 2, 2]
        np.testing.assert_array_equal(run.image(record), np.asarray(plain)[:, 2 * seed : 2 * seed + 2])
    with raises("wrong-shape", "b_1.webp", "2 x 1", "1x2"):
        collect(folder, workdir=tmp_path / "narrow", grid="1x2")


ROWS = [
    {"Path": f"{model}/{prompt.id}-{seed}.png", "prompt": prompt.text, "model": model, "seed": seed}
    for model in ("GPT Image", "sd/3.5")
    for prompt in PROMPTS
    for seed in (3, 8)
]


def write_table(path, rows):
    if path.suffix == ".csv":
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("prompts", [PROMPTS, None])
def test_tables_of_mixed_models(ending, prompts, tmp_path):
    folder = write(tmp_path / "in", *(row["Path"] for row in ROWS))
    run = collect(folder, prompts, table=write_table(tmp_path / f"table{ending}", ROWS))
    assert [(model.label, model.name) for model in run.models] == [("GPT-Image", "GPT Image"), ("3.5", "sd/3.5")]
    labels = {model.name: model.label for model in run.models}
    expected = {(labels[row["model"]], row["seed"], row["prompt"]): row["Path"] for row in ROWS}
    found = {(record.model, record.seed, record.prompt.text): record.source["file"] for record in run.records}
    assert found == expected
    assert [prompt.text for prompt in run.prompts] == [prompt.text for prompt in PROMPTS]


def test_a_table_without_seeds_and_an_object_of_prompts(tmp_path):
    folder = write(tmp_path / "in", "z.png", "y.png", "x.png", "w.png")
    rows = [
        {"file": file, "id": id} for file, id in (("z.png", "a"), ("y.png", "b_1"), ("x.png", "a"), ("w.png", "b_1"))
    ]
    run = collect(folder, PROMPTS[:2], table=write_table(tmp_path / "ids.jsonl", rows))
    assert [*files_of(run).values()] == ["z.png", "y.png", "x.png", "w.png"]
    (tmp_path / "paths.json").write_text(json.dumps({"A red cube.": "z.png", "Zwei Würfel": "y.png"}))
    run = collect(folder, PROMPTS[:2], tmp_path / "object", table=tmp_path / "paths.json")
    assert [*files_of(run).values()] == ["z.png", "y.png"]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"Path": None}, "missing-field", ["line 2", "path"]),
        ({"Path": "absent.png"}, "no-such-file", ["line 2", "absent.png"]),
        ({"Path": "../secret.png"}, "outside-the-folder", ["secret.png"]),
        ({"Path": "GPT Image/a-3.png"}, "repeated-id", ["line 2", "line 1"]),
        ({"prompt": "A sphere"}, "unknown-prompt", ["1 of 12", "A sphere", "line 2"]),
        ({"prompt": None}, "missing-field", ["line 2", "prompt"]),
        ({"seed": 3}, "repeated-id", ["line 1", "line 2", "prompt a"]),
        ({"seed": -1}, "wrong-type", ["line 2", "seed", "-1"]),
        ({"seed": None}, "missing-field", ["line 2", "seed"]),
        ({"seed": [1]}, "wrong-type", ["line 2", "seed"]),
        ({"model": None}, "missing-field", ["line 2", "model"]),
        ({"id": "b_1"}, "unknown-prompt", ["1 of 12", "line 2", "A red cube.", "b_1"]),
        ({"id": "a", "category": "form"}, "unknown-prompt", ["1 of 12", "line 2", "form"]),
        ({"prompt": None, "id": "a", "number": 1}, "unknown-prompt", ["1 of 12", "line 2", "number 1"]),
        ({"model": "a third"}, "missing-images", ["6 of the 18", "prompt a"]),
    ],
)
def test_bad_rows(change, code, words, tmp_path):
    folder = write(tmp_path / "in", *(row["Path"] for row in ROWS))
    write(tmp_path, "secret.png")
    rows = [ROWS[0], ROWS[1] | change, *ROWS[2:]]
    with raises(code, *words):
        collect(folder, table=write_table(tmp_path / "table.jsonl", rows))


def test_prompts_in_metadata(tmp_path):
    """ComfyUI's graph, and the web interface's text, in PNG texts and in EXIF."""
    folder = tmp_path / "in"
    folder.mkdir()
    graph = {
        "3": {"class_type": "KSampler", "inputs": {"positive": ["9", 0], "negative": ["7", 0], "seed": 5}},
        "9": {"class_type": "FluxGuidance", "inputs": {"conditioning": ["6", 0], "guidance": 3.5}},
        "6": {"class_type": "CLIPTextEncode", "inputs": {"text": ["1", 0], "clip": ["4", 1]}},
        "1": {"class_type": "String", "inputs": {"value": "A red cube."}},
        "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "ugly", "clip": ["4", 1]}},
    }
    said = "Zwei Würfel\nNegative prompt: ugly\nSteps: 20, Sampler: Euler a"
    image = PIL.Image.new("RGB", (2, 2))
    for name, key, text in (("1", "prompt", json.dumps(graph)), ("2", "parameters", said)):
        texts = image_data_texts(key, text)
        image.save(folder / f"{name}.png", pnginfo=texts)
    exif = PIL.Image.Exif()
    exif.get_ifd(0x8769)[0x9286] = b"UNICODE\0" + said.encode("utf-16-be")
    image.save(folder / "3.jpg", exif=exif)
    exif = PIL.Image.Exif()
    exif[0x0110] = "prompt:" + json.dumps(graph)
    image.save(folder / "4.webp", exif=exif)
    run = collect(folder, "metadata")
    assert [(prompt.id, prompt.text) for prompt in run.prompts] == [("0", "A red cube."), ("1", "Zwei Würfel")]
    assert [*files_of(run).values()] == ["1.png", "2.png", "4.webp", "3.jpg"]
    assert [*files_of(collect(folder, PROMPTS[:2], tmp_path / "own", pattern="metadata")).values()] == [
        *("1.png", "2.png", "4.webp", "3.jpg")
    ]
    rewritten = [Prompt("a", "A cube.", shown="A red cube."), Prompt("b", "Würfel", shown="Zwei Würfel")]
    run = collect(folder, rewritten, tmp_path / "rewritten", pattern="metadata")
    assert [*files_of(run)] == [("in", 0, "a"), ("in", 0, "b"), ("in", 1, "a"), ("in", 1, "b")]
    with raises("unknown-prompt", "A red cube."):  # of two
        collect(folder, [*rewritten, Prompt("c", "Cube", shown="A red cube.")], pattern="metadata")
    both = {"class_type": "ConditioningCombine", "inputs": {"conditioning_1": ["6", 0], "conditioning_2": ["7", 0]}}
    combined = json.dumps({**graph, "9": both})
    for text in ("{}", "no json", json.dumps({"3": {"inputs": {"positive": ["3", 0]}}}), combined):
        image.save(folder / "5.png", pnginfo=image_data_texts("prompt", text))
        with raises("unknown-prompt", "5.png", "ComfyUI"):
            collect(folder, "metadata")
    image.save(folder / "5.png")
    with raises("unknown-prompt", "5.png", "has no prompt"):
        collect(folder, "metadata")


def image_data_texts(key, text):
    texts = PIL.PngImagePlugin.PngInfo()
    texts.add_text(key, text)
    return texts


def geneval(folder, rows=True):
    for number, prompt in enumerate(GENEVAL):
        write(folder, *(f"{number:05d}/samples/{seed:05d}.png" for seed in range(2)))
        if rows:
            (folder / f"{number:05d}" / "metadata.jsonl").write_text(json.dumps({"prompt": prompt.text}))
    return folder


def test_geneval_metadata_must_have_the_prompts(tmp_path):
    folder = geneval(tmp_path / "in")
    assert len(collect(folder, GENEVAL).records) == 6
    with raises("contradicting-rows", "00001", "a photo of 1 cats", "a photo of 2 cats"):
        collect(folder, [GENEVAL[0], GENEVAL[2], GENEVAL[1]], tmp_path / "other")
    (folder / "00001" / "metadata.jsonl").write_text("{")
    with raises("not-json", "00001"):
        collect(folder, GENEVAL, tmp_path / "other")


def test_folders_that_may_begin_with_0_or_1_are_refused(tmp_path):
    """Without their prompts. Those of the folders 1 and 2 may be the first two, or the last two with one missing."""
    folder = geneval(tmp_path / "in", rows=False)
    shutil.rmtree(folder / "00000")
    with raises("unclear-numbers", "number 1", "metadata.jsonl", "--pattern"):
        collect(folder, GENEVAL, allow_missing=True)
    assert not (tmp_path / "run").exists()
    named = collect(folder, GENEVAL, allow_missing=True, pattern="{number}/samples/{seed}")
    assert [image.place for image in named.missing] == [("in", 0, 0), ("in", 1, 0)]
    (folder / "00002" / "metadata.jsonl").write_text(json.dumps({"prompt": GENEVAL[2].text}))
    stated = collect(folder, GENEVAL, tmp_path / "stated", allow_missing=True)
    assert stated.missing == named.missing
    (folder / "00002" / "metadata.jsonl").write_text(json.dumps({"prompt": GENEVAL[1].text}))
    with raises("contradicting-rows", "00002"):
        collect(folder, GENEVAL, tmp_path / "shifted", allow_missing=True)


def test_missing_images(tmp_path):
    folder = geneval(tmp_path / "in")
    (folder / "00002" / "samples" / "00001.png").unlink()
    with raises("missing-images", "1 of the 6 images", "number 1 of prompt 00002", "--allow_missing"):
        collect(folder, GENEVAL)
    assert not (tmp_path / "run").exists()
    run = collect(folder, GENEVAL, allow_missing=True)
    assert [(image.place, image.kind) for image in run.missing] == [(("in", 1, 2), ABSENT)]
    assert len(run.records) == 5
    assert run.config["config"]["allow_missing"] is True
    # Of two prompts with one image each, both lack one: a folder's numbers do not run on from the one before.
    for number, seed in ((0, 1), (1, 0), (2, 0)):
        (folder / f"{number:05d}" / "samples" / f"{seed:05d}.png").unlink()
    for pattern in (None, "{number}/samples/{seed}.png"):
        with raises("missing-images", "2 of the 4 images"):
            collect(folder, GENEVAL[:2], tmp_path / "fewer", pattern=pattern)


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        ([], "no-images", [".png"]),
        (["x/y/z/v/w.png"], "no-images", ["x/y/z/v/w.png", "{id}"]),
        (["c.png", "d.png"], "unknown-prompt", ["2 of 2", "c.png", "{id}"]),
        (["a.png", "b_1.png", "07.png", "c.png"], "unknown-prompt", ["1 of 4", "c.png"]),
        (["a.png", "b_1.png", "07.png", "a.jpg"], "repeated-id", ["a.png", "a.jpg"]),
        (["a.png", "b_1.png", "7.png", "07.webp"], "repeated-id", ["7.png", "07.webp"]),
        (["a.png", "b_1.png"], "missing-images", ["1 of the 3", "07"]),
    ],
)
def test_bad_folders(names, code, words, tmp_path):
    (tmp_path / "in").mkdir()
    with raises(code, *words):
        collect(write(tmp_path / "in", *names))


def test_links_lead_not_out_of_the_folder(tmp_path):
    folder = write(tmp_path / "in", "a.png", "b_1.png")
    write(tmp_path, "07.png")
    (folder / "07.png").symlink_to("a.png")
    assert len(collect(folder).records) == 3
    (folder / "07.png").unlink()
    (folder / "07.png").symlink_to(tmp_path / "07.png")
    with raises("outside-the-folder", "07.png"):
        collect(folder)
    (folder / "07.png").unlink()
    (folder / "more").symlink_to(tmp_path)
    with raises("outside-the-folder", "more"):
        collect(folder)


@pytest.mark.parametrize(
    ("fault", "code"),
    [("text", "not-an-image"), ("cut off", "undecodable-image"), ("empty", "empty-file"), ("huge", "too-many-pixels")],
)
def test_unreadable_images(fault, code, tmp_path, monkeypatch):
    path = write(tmp_path / "in", "a.png", "b_1.png", "07.png") / "b_1.png"
    match fault:
        case "text":
            path.write_text("no image")
        case "empty":
            path.write_bytes(b"")
        case "cut off":
            PIL.Image.effect_noise((64, 64), 90).convert("RGB").save(path)
            path.write_bytes(path.read_bytes()[:2000])
        case "huge":
            monkeypatch.setattr(image_data, "MAX_PIXELS", 7)
    with raises(code, "4 x 2 pixels" if fault == "huge" else "b_1.png"):
        collect(tmp_path / "in")


def test_a_kill_a_second_call_and_a_change(tmp_path, monkeypatch):
    folder = geneval(tmp_path / "in")
    monkeypatch.setattr(collected_runs, "_AT_ONCE", 2)
    copied = []

    def dies(image, grid, hashes):
        copied.append(image.file)
        if len(copied) == 5:
            raise KeyboardInterrupt
        return converted(image, grid, hashes)

    converted = collected_runs._converted
    monkeypatch.setattr(collected_runs, "_converted", dies)
    monkeypatch.setattr(collected_runs.provenance, "software", lambda: {})
    with pytest.raises(KeyboardInterrupt):
        collect(folder, GENEVAL)
    assert len(read_images(tmp_path / "run", complete=False).records) == 4
    copied[:] = ["more"] * 9
    run = collect(folder, GENEVAL)
    assert len(copied) == 9 + 2
    assert files_of(run) == files_of(collect(folder, GENEVAL, tmp_path / "whole"))

    # A second call reads no file. A lost copy comes back.
    copied.clear()
    monkeypatch.setattr(collected_runs, "_hashes", lambda *arguments: pytest.fail("a file is read"))
    assert collect(folder, GENEVAL).records == run.records
    monkeypatch.undo()
    run.path(run.records[0]).unlink()
    assert collect(folder, GENEVAL).records == run.records

    write(folder, "00002/samples/00001.png", "00001/samples/00001.png")
    with raises("another-run", "models.in.files", "--overwrite"):
        collect(folder, GENEVAL)
    again = collect(folder, GENEVAL, overwrite=True)
    assert again.records != run.records
    os.utime(folder / "00002" / "samples" / "00001.png", (1, 1))
    assert collect(folder, GENEVAL).records == again.records


def test_a_run_within_the_folder_is_not_collected(tmp_path, monkeypatch):
    """Its copies keep texts, and would count twice."""
    monkeypatch.chdir(tmp_path)
    PIL.Image.new("RGB", (2, 2)).save("a.png", pnginfo=image_data_texts("parameters", "A cube\nSteps: 20"))
    for name in ("one", "two"):
        assert len(collect_images(".", "metadata", name=name, progress=False).records) == 1
    assert len([*tmp_path.glob("runs/*/config.json")]) == 2


def test_two_folders_of_one_name_are_two_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = []
    for parent in ("x", "y"):
        folder = write(tmp_path / parent / "in", "a.png")
        PIL.Image.new("RGB", (3, 3), {"x": "red", "y": "blue"}[parent]).save(folder / "a.png")
        runs.append(collect_images(folder, PROMPTS[:1], progress=False))
    assert runs[0].folder != runs[1].folder
    assert runs[0].config["identity"]["models"] != runs[1].config["identity"]["models"]


@pytest.mark.parametrize(
    ("keywords", "code", "words"),
    [
        ({"pattern": "{seed}.png"}, "bad-pattern", ["{id}"]),
        ({"pattern": "{name}.png"}, "unknown-name", ["{name}", "{id}"]),
        ({"pattern": "{id}-{seed}.png"}, "no-images", ["{id}-{seed}.png", "07.png"]),
        ({"grid": "2"}, "bad-grid", ["2x2"]),
        ({"grid": "0x2"}, "bad-grid", ["2x2"]),
        ({"table": "t.txt"}, "bad-file-name", ["t.txt", ".csv"]),
        ({"table": "t.csv", "pattern": "{id}"}, "no-effect", ["table", "pattern"]),
        ({"prompts": None}, "nothing-named", ["--prompts"]),
        ({"prompts": []}, "nothing-named", ["no prompts"]),
        ({"prompts": ["a"]}, "wrong-type", ["Prompt"]),
        ({"allow_missing": 1}, "bad-value", ["allow_missing"]),
        ({"name": "模" * 86}, "bad-name", ["too long", "--name"]),
    ],
)
def test_bad_arguments(keywords, code, words, tmp_path):
    folder = write(tmp_path / "in", "a.png", "b_1.png", "07.png")
    (tmp_path / "t.txt").touch()
    with raises(code, *words):
        collect(folder, **keywords)


def test_a_name_for_several_models(tmp_path):
    folder = write(tmp_path / "in", "x/a.png", "y/a.png")
    with raises("no-effect", "2 models", "--name"):
        collect(folder, PROMPTS[:1], pattern="{model}/{id}", name="z")
    run = collect(folder, PROMPTS[:1], pattern="{model}/{id}")
    assert [model.label for model in run.models] == ["x", "y"]
