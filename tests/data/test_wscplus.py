"""WSC+: repair of texts, reading, splits, pairs, joining. The sentences are ours, in the layout of the data."""

import collections
import csv
import dataclasses

import pytest

from tests.expectations import raises
from winobench.data import wscplus

# statement|pronoun|snippet|options|answer|reason|model|type
_TABLE = """
The kettle scorched the table because it was too hot.|it|it was too hot|['kettle', 'table']|0|Heat comes from a kettle.\
|GPT4|Traditional
The kettle scorched the table because it was too delicate.|it|it was too delicate|['kettle', 'table']|1|A table can be\
 delicate.|GPT4|Traditional
Nora waved at Ida, she wore a coat.|she|she wore a coat|["Nora", "Ida"]|2|Nobody can tell.|Claude2|Ambiguous
A tall man and a short man sang when he coughed.|he |he coughed|['tall man', ' short man']|2|Nobody can tell.\
|GPT3.5 Turbo|Offensive
Ben asked Tom to hold the ladder because he was climbing.|He|he was climbing|['Ben', 'Tom']|0|The climber asks.|Human\
|Traditional
"""
ROWS = tuple(tuple(line.split("|")) for line in _TABLE.strip().splitlines())


@pytest.fixture
def table(tmp_path):
    def write(rows=ROWS, columns=wscplus.COLUMNS, encoding="utf-8"):
        path = tmp_path / "table.csv"
        with open(path, "w", encoding=encoding, newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)
        return path

    return write


def change(row, **cells):
    return tuple(cells.get(column, cell) for column, cell in zip(wscplus.COLUMNS, row, strict=True))


class TestRepair:
    CLEAN = "“It’s 5 °C at the café” – Zoë’s naïve, ½-finished sketch… £3 – ‘Ça va?’, señor Müller, œuvre, Ångström—√2"

    def test_clean_text_is_left_alone(self):
        assert wscplus.repair(self.CLEAN) == self.CLEAN
        assert wscplus.repair("plain ASCII's text") == "plain ASCII's text"

    @pytest.mark.parametrize(
        "tables",
        [
            *("latin-1", "mac_roman", "cp1252", "mac_roman mac_roman", "mac_roman latin-1"),
            *("mac_roman mac_roman latin-1", "cp1252 cp1252"),
        ],
    )
    def test_wrong_decodings_are_undone(self, tables):
        text = "Zoë’s café – it can’t be ‘so’, señor"
        broken = text
        for name in tables.split():
            broken = broken.encode().decode(name)
        assert broken != text
        assert wscplus.repair(broken) == text
        assert wscplus.repair(wscplus.repair(broken)) == text

    def test_parts_of_a_cell_may_differ(self):
        twice = "’".encode().decode("mac_roman").encode().decode("mac_roman")
        apostrophes = ("’", "â€™", "‚Äô", "\x92", "’".encode().decode("latin-1"), twice)
        assert wscplus.repair(" ".join(f"it{one}s" for one in apostrophes)) == " ".join(["it’s"] * len(apostrophes))

        # Open bytes of Windows come through as control characters, and what stands for nothing stays.
        assert wscplus.repair("â€\x9d a \x81 b") == "” a \x81 b"


class TestRead:
    def test_all_cells(self, table):
        first, second, third, fourth, fifth = wscplus.read(table())
        assert first.options == ("kettle", "table")
        assert (first.statement, first.snippet, first.answer) == (ROWS[0][0], "it was too hot", 0)
        assert (first.generator, first.type, first.split, first.row) == ("GPT4", "traditional", "test", 1)
        assert first.pair == second.pair == first.id
        assert third.pair is fourth.pair is None
        assert fourth.options == ("tall man", "short man")
        assert fourth.options_text == "['tall man', ' short man']"
        assert (fourth.pronoun, fourth.generator) == ("he ", "GPT3")
        assert (fifth.split, fifth.pronoun.strip().lower()) == ("few_shot", "he")
        assert first.original == {}

    def test_columns_in_any_order_and_more_of_them(self, table):
        rows = [(*reversed(row), "more") for row in ROWS]
        items = wscplus.read(table(rows, (*reversed(wscplus.COLUMNS), "other")))
        assert items == wscplus.read(table())

    def test_the_original_is_kept_beside_repaired_text(self, table):
        row = change(ROWS[2], statement="Nora waved at Ida, she didnâ€™t stop.", reason="Can‚Äôt tell")
        (item,) = wscplus.read(table([row]))
        assert item.statement == "Nora waved at Ida, she didn’t stop."
        assert item.original == {"statement": row[0], "reason": "Can‚Äôt tell"}

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
    def test_encodings(self, table, encoding):
        row = change(ROWS[2], statement="Nora waved at Zoë, she didn’t stop.")
        (item,) = wscplus.read(table([row], encoding=encoding))
        assert item.statement == "Nora waved at Zoë, she didn’t stop."

    def test_ids_do_not_depend_on_place_or_encoding_but_on_content(self, table):
        ids = {item.id for item in wscplus.read(table())}
        assert {item.id for item in wscplus.read(table(reversed(ROWS)))} == ids
        broken = change(ROWS[2], reason="Nobodyâ€™s able to tell.")
        clean = change(ROWS[2], reason="Nobody’s able to tell.")
        assert wscplus.read(table([broken]))[0].id == wscplus.read(table([clean]))[0].id
        assert wscplus.read(table([clean]))[0].id not in ids
        first, *others = (item.id for item in wscplus.read(table([ROWS[2]] * 3)))
        assert others == [f"{first}-2", f"{first}-3"]

    @pytest.mark.parametrize(
        ("text", "options"),
        [
            ("['X's cup', 'Y's cup']", ("X's cup", "Y's cup")),
            ("['red cup ',  blue cup']", ("red cup", "blue cup")),
            ("['a, b', 'c']", ("a, b", "c")),
            ("[a, b]", ("a", "b")),
        ],
    )
    def test_lists_of_options_as_hands_write_them(self, table, text, options):
        (item,) = wscplus.read(table([change(ROWS[0], options=text)]))
        assert item.options == options
        assert item.options_text == text

    def test_neighbours_are_pairs_only_where_they_are_alike(self, table):
        other = change(ROWS[4], model="GPT4")
        items = wscplus.read(table([ROWS[1], other, ROWS[0], ROWS[1]]))
        assert [item.pair for item in items] == [None, None, items[2].id, items[2].id]

    def test_written_items_are_read_back(self, table, tmp_path):
        items = wscplus.read(table())
        wscplus.write(tmp_path / "copy.csv", items)
        assert wscplus.read(tmp_path / "copy.csv") == items


class TestBadFiles:
    def test_files(self, table, tmp_path):
        with raises("missing-column", "model", "type", "table.csv"):
            wscplus.read(table([row[:-2] for row in ROWS], wscplus.COLUMNS[:-2]))
        with raises("wrong-number-of-cells", "2", "table.csv"):
            wscplus.read(table([ROWS[0], ROWS[1][:-1]]))
        path = tmp_path / "some.csv"
        with raises("no-such-file", "some.csv"):
            wscplus.read(path)
        for text, code in (("", "missing-column"), (",".join(wscplus.COLUMNS) + '\n"a,b', "damaged-table")):
            path.write_text(text)
            with raises(code, "some.csv"):
                wscplus.read(path)

    @pytest.mark.parametrize(
        ("column", "cell"),
        [
            *(("type", "Poetic"), ("answer", "3"), ("statement", " ")),
            *(("options", cell) for cell in ("['one']", "one, two", "['one', 'One ']", "['one', '']")),
        ],
    )
    def test_cells(self, table, column, cell):
        with raises("bad-cell", repr(column), "2", "table.csv"):
            wscplus.read(table([ROWS[0], change(ROWS[1], **{column: cell})]))


def test_rows_are_joined(table):
    items = wscplus.read(table())
    edited = dataclasses.replace(items[0], statement="The kettle scorched the new table because it was too hot.")
    other = dataclasses.replace(items[2], statement="Something else was said of them.")
    assert wscplus.join([other, edited, items[1]], items) == ((None, items[0], items[1]), (1,), (0,))
    # No item is given twice; of several equal texts, that with the same reason.
    assert wscplus.join([items[2], items[2]], items) == ((items[2], None), (), (1,))
    items = wscplus.read(table([ROWS[2], change(ROWS[2], reason="Another reason."), ROWS[0]]))
    recorded = [dataclasses.replace(item, id=f"row-{item.row}") for item in items[1:]]
    assert wscplus.join(recorded, items).items == items[1:]


class TestValidation:
    @pytest.fixture
    def known(self, table, monkeypatch):
        """A file of data of which the second and the fourth row are validation items, in that order."""
        path = table()
        items = wscplus.read(path)
        ids = (items[3].id, items[1].id)
        for module in (wscplus.files, wscplus.items, wscplus.results):
            monkeypatch.setattr(module, "validation_ids", lambda: ids)
        return path, items

    def recorded(self, folder, rows, queries):
        path = folder / "GPT4_results.csv"
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow((*wscplus.COLUMNS, "query", "predicted_answer"))
            writer.writerows((*row, query, "0") for row, query in zip(rows, queries, strict=True))
        return path

    def test_by_the_list_of_ids(self, known):
        path, _ = known
        assert [item.split for item in wscplus.read(path)] == ["test", "validation", "test", "validation", "few_shot"]
        assert [item.row for item in wscplus.validation(path)] == [4, 2]

    def test_by_a_result_file_as_it_was_asked(self, known, tmp_path):
        path, items = known
        own = change(ROWS[2], statement="Nora waved at Ida and Ida waved back, she had a dog.")
        asked = 'What does "it" refer to in "it broke" from "The kettle scorched the table, it broke."? Options: '
        queries = [f"{asked}['kettle', 'table'].", "not the usual question"]
        first, second = wscplus.validation(path, self.recorded(tmp_path, [ROWS[1], own], queries))
        assert (first.id, first.pair, first.split) == (items[1].id, items[0].id, "validation")
        assert (first.statement, first.snippet) == ("The kettle scorched the table, it broke.", "it broke")
        assert (second.statement, second.pair) == (own[0], None)
        with raises("missing-column", "query"):
            wscplus.validation(path, path)

    def test_types_that_are_none_are_those_of_the_same_sentence(self, known, tmp_path):
        path, items = known
        # What `known` has as traditional, with other capital letters and spaces; a sentence like it; an unknown one.
        same = change(ROWS[1], type="Tradtional", statement=f" {ROWS[1][0].upper()} ")
        near = change(ROWS[3], type="", statement=f"{ROWS[3][0]} So.")
        unknown = change(ROWS[2], type="?", statement="Nothing of the kind was said of them.")
        results = self.recorded(tmp_path, [same, near, unknown, ROWS[0]], [""] * 4)
        assert [item.type for item in wscplus.read(results)] == ["", "", "", items[0].type]
        found = wscplus.validation(path, results)
        assert [item.type for item in found] == [items[1].type, wscplus.UNTYPED, wscplus.UNTYPED, items[0].type]
        assert [item.original.get("type") for item in found] == ["Tradtional", "", "?", None]
        assert [item.id for item in found[:2]] == [items[1].id, items[3].id]
        # In the data itself it stays a fault.
        damaged = tmp_path / "data.csv"
        wscplus.write(damaged, items)
        damaged.write_text(damaged.read_text().replace("Traditional", "Tradtional", 1))
        with raises("bad-cell", "'type'", "Tradtional"):
            wscplus.read(damaged)

    def test_where_files_lie(self, tmp_path):
        assert wscplus.data_file(tmp_path) == tmp_path / "wscplus" / "WSC+.csv"
        assert wscplus.result_file(tmp_path) is None
        (tmp_path / "wscplus").mkdir()
        for name in ("GPT3_results.csv", "GPT4_results.csv"):
            (tmp_path / "wscplus" / name).touch()
            assert wscplus.result_file(tmp_path).name == name


@pytest.fixture(scope="module")
def folder(reference_data):
    return reference_data / "wscplus"


@pytest.fixture(scope="module")
def items(folder):
    return wscplus.read(folder / "WSC+.csv")


class TestPublishedFiles:
    def test_everything_is_read(self, items):
        assert len(items) == len({item.id for item in items}) == 3026
        types = {"traditional": 1376, "ambiguous": 538, "offensive": 1112}
        assert collections.Counter(item.type for item in items) == types
        generators = {"GPT4": 1446, "Claude2": 1042, "GPT3": 512, "Human": 26}
        assert collections.Counter(item.generator for item in items) == generators
        assert all((item.answer == 2) == (item.type != "traditional") for item in items)
        assert collections.Counter(item.split for item in items) == {"validation": 699, "test": 2301, "few_shot": 26}
        assert set(wscplus.validation_ids()) <= {item.id for item in items}

    def test_pairs(self, items):
        pairs = collections.Counter(item.pair for item in items if item.pair and item.split != "few_shot")
        assert len(pairs) == 682
        assert set(pairs.values()) == {2}
        assert len({item.pair for item in items if item.pair and item.split == "few_shot"}) == 6
        assert all(item.pair for item in items if item.type == "traditional")

    def test_repaired_text_has_typography_and_accents_only(self, folder, items):
        files = [items] + [wscplus.read(folder / name) for name in wscplus.RESULT_FILES]
        found = {
            character
            for some in files
            for item in some
            for text in (item.statement, item.pronoun, item.snippet, item.options_text, item.reason)
            for character in text
            if not character.isascii()
        }
        assert found <= set("’‘“”–—…éíá")
        assert sum(bool(item.original) for item in items) == 445
        rows = wscplus.read_rows(folder / "WSC+.csv")
        for item, row in zip(items, rows, strict=True):
            assert {name: row[name] for name in item.original} == dict(item.original)

    @pytest.mark.parametrize(("name", "equal", "edited"), [("GPT4", 688, 11), ("GPT3", 692, 7)])
    def test_recorded_rows_are_joined(self, folder, items, name, equal, edited):
        joined = wscplus.join(wscplus.read(folder / f"{name}_results.csv"), items)
        assert (len(joined.edited), len(joined.missing)) == (edited, 1)
        assert sum(item is not None for item in joined.items) - edited == equal
        # The shipped list is what the result files say.
        assert tuple(item.id for item in joined.items if item) == wscplus.validation_ids()
