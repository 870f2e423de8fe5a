"""The faults of newer data sets, for test_bad_sources: of tasks that one function reads, one has them."""

from tests.launch.source_faults import (
    BROKEN,
    DUPLICATE,
    broken_off,
    change,
    delete_first,
    missing_image,
    no_file,
    repeat_first_key,
    too_few,
    too_many,
    wrong,
)

_COLA = "COLA_multiobjects_matching_benchmark.json"


def _by_key(file, image, key, field, first):
    """Of an object of three rows."""

    def more(rows):
        rows["9"] = rows[key]

    return [
        missing_image(image, 3),
        too_few(change(file, lambda rows: delete_first(rows, 1)), 2, 3),
        too_many(change(file, more), 4, 3),
        broken_off(file),
        no_file(file),
        wrong(BROKEN, change(file, lambda rows: rows[key].pop(field)), f"'{key}' in {{root}}/{file} has no '{field}'"),
        wrong(DUPLICATE, repeat_first_key(file), f"{{root}}/{file} has the key '{first}' twice"),
    ]


def _sugarcrepe_pp():
    file = "sugarcrepe_pp/swap_obj.json"
    return [
        missing_image("val2017/000000000285.jpg", 3),
        too_few(change(file, list.pop), 2, 3),
        too_many(change(file, lambda rows: rows.append({**rows[0], "id": 9})), 4, 3),
        broken_off(file),
        wrong(
            DUPLICATE,
            change(file, lambda rows: rows.append(rows[1])),
            f"'id' in row 4 of {{root}}/{file} is 1, as in an earlier row",
        ),
    ]


def _cola():
    return [
        missing_image("images/11.jpg", 6),
        too_few(change(_COLA, list.pop), 2, 3),
        too_many(change(_COLA, lambda rows: rows.append(rows[0])), 4, 3),
        broken_off(_COLA),
        wrong(BROKEN, change(_COLA, lambda rows: rows[1].pop()), f"row 2 of {{root}}/{_COLA} has 3 entries, not 4"),
    ]


FAULTS = {
    "sugarcrepe_swap_att": _by_key("swap_att.json", "val2017/000000000285.jpg", "1", "negative_caption", "0"),
    "sugarcrepe_pp_swap_obj": _sugarcrepe_pp(),
    "valse_existence": _by_key("existence.json", "images/visual7w/1.jpg", "existence_2", "foil", "existence_0"),
    "cola": _cola(),
}

_NO_ID = "its rows have no id: a repeated row is one more row, which the count tells"
INEXPRESSIBLE = {("cola", DUPLICATE): _NO_ID}
