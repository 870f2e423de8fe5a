"""Annotation files: what is wrong with one is said in one sentence with its place, in every task."""

import pytest

from tests.expectations import names, raises
from tests.tasks.published_layouts import ANNOTATIONS, LAYOUTS, items_of
from winobench import tasks
from winobench.base.errors import InputError
from winobench.tasks import TASKS, annotations


def with_json(annotations):
    """Tasks with annotations in JSON."""
    return [name for name, file in annotations.items() if file.endswith((".json", "phrases.txt"))]


def test_every_task_with_published_data_has_a_layout():
    own = {name for name, module in tasks._modules()["TASKS"].items() if module.startswith(tasks.__name__)}
    assert {name for name in own if TASKS[name].source is not None} == set(LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_items_are_as_the_task_declares(name, tmp_path):
    check_items(name, LAYOUTS[name](tmp_path))


def check_items(name, folder):
    """The items of a task's folder, which it must declare rightly."""
    task = TASKS[name]
    items = items_of(name, folder)
    assert items == items_of(name, folder)
    assert len({item.id for item in items}) == len(items) > 0
    for item in items:
        assert all(image.path.is_file() for image in item.images)
        if task.metric == "average_precision":
            assert len(item.images) >= task.shape[0]
        else:
            assert len(item.images) == task.shape[0] or (task.is_rated and 1 < len(item.images) < task.shape[0])
        assert len(item.ratings) == (len(item.images) if task.is_rated else 0)
        # Repeated candidates are left out.
        fewest = 2 if task.name.endswith("_order_published") else task.shape[1] - 1
        assert fewest <= len(item.texts) <= task.shape[1]
        assert len(set(item.texts)) == len(item.texts)
        diagonal = ("winoground", "winoground_image", "own_texts", "all_answers", "effect_size")
        if task.metric in diagonal or task.is_rated:
            assert item.target is None
        else:
            assert 0 <= item.target < max(len(item.images), len(item.texts))
    assert task.images_compete == (task.shape[0] > 1 and task.metric not in ("own_texts", "all_answers"))
    # The sentence that --list_tasks and a run show where the data are missing.
    assert not task.source.how_to_get.endswith(".")


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_missing_annotations_are_named(name, tmp_path):
    check_missing(name, LAYOUTS[name](tmp_path) / ANNOTATIONS[name], tmp_path)


def check_missing(name, path, folder):
    path.unlink()
    with raises("no-such-file", str(folder)) as caught:
        items_of(name, folder)
    assert "\n" not in str(caught.value)


OTHER_JSON = pytest.mark.parametrize("content", ['"text"', "[[1]]", '{"a": 1}'])


@pytest.mark.parametrize("name", with_json(ANNOTATIONS))
@OTHER_JSON
def test_json_of_another_kind_is_named(name, content, tmp_path):
    check_json(name, content, LAYOUTS[name](tmp_path) / ANNOTATIONS[name], tmp_path)


def check_json(name, content, path, folder):
    path.write_text(content)
    with pytest.raises(InputError, match=names(str(path))) as caught:
        items_of(name, folder)
    expected = ("not-a-list", "not-an-object", "missing-field", "not-a-text", "wrong-number-of-entries")
    assert caught.value.code in expected


READERS = {
    "lists.json": annotations.read_json,
    "rows.jsonl": annotations.read_json_lines,
    "rows.tsv": lambda path: annotations.read_table(path, ("a", "b")),
}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("lists.json", '{"a": ["1"], "b": ["2"], "a": ["3"]}', ("repeated-key", "'a'")),
        ("lists.json", '[{"a": 1}, {"b": [{"a": 1, "a": 1}]}]', ("repeated-key", "1", "'b'", "2", "'a'")),
        # What is repeated within a value that a later one replaces has no place of its own.
        ("lists.json", '{"a": {"b": 1, "b": 2}, "a": 1}', ("repeated-key", "'a'")),
        ("lists.json", "", ("empty-file",)),
        ("lists.json", '[1,\n"a', ("incomplete-file",)),
        ("lists.json", "[1,\n2 3]", ("not-json",)),
        ("lists.json", "9" * 5000, ("number-too-large",)),
        ("lists.json", '{"é": 1}', ("cannot-read",)),  # not in UTF-8
        ("rows.jsonl", '{"a": 1}\n\n{"a" 1}\n', ("not-json", "3", "6")),
        ("rows.jsonl", '{"a": 1}\n{"a": 1, "a": 2}\n', ("repeated-key", "2", "'a'")),
        ("rows.tsv", 'a\tb\n1\t"2\n3\t4\n', ("incomplete-file",)),
        ("rows.tsv", 'a\tb\n1\t"2"3\n', ("damaged-table", "2")),
        ("rows.tsv", "a\tc\n1\t2\n", ("missing-column", "'b'")),
    ],
)
def test_it_is_told_where_a_file_is_broken(file, text, message, tmp_path):
    path = tmp_path / file
    path.write_bytes(text.encode("latin-1"))
    with raises(*message, file):
        READERS[file](path)


def test_entries_say_where_they_stand(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"rows": [{"texts": ["a", "b"], "number": 2.5, "flag": true, "empty": " "}]}')
    (row,) = annotations.read_json(path)["rows"].rows()
    where = f"entry 1 of 'rows' in {path}"
    assert row["texts"].texts(2) == ("a", "b")
    assert row["number"].number() == 2.5
    assert "texts" in row
    assert "text" not in row
    with raises("wrong-number-of-entries", "'texts'", where, "2", "3"):
        row["texts"].texts(3)
    for code, read in (
        ("not-a-number", lambda: row["number"].integer()),
        ("not-a-number", lambda: row["flag"].number()),
        ("not-a-text", lambda: row["empty"].text()),
        ("not-a-list", lambda: list(row.rows())),
        ("not-an-object", lambda: list(row["texts"].items())),
    ):
        with raises(code, where):
            read()


def test_lists_as_python_writes_them():
    entry = annotations.Entry("['it\\'s', \"two\"]", "line")
    assert annotations.python_list(entry).texts() == ("it's", "two")
    for text in ("[1, 2", "{'a': 1}", "__import__('os')"):
        with raises("not-a-list"):
            annotations.python_list(annotations.Entry(text, "line"))
