"""Ways to damage a file of published data: functions of its path."""

import functools
import json
import operator
import shutil

import pyarrow.parquet as pq
import scipy.io

from tests.tasks.published_layouts import write_json, write_table


def rows(function):
    """Changes the content of a JSON file, or the rows of a table, in place."""

    def damage(path):
        if path.suffix == ".parquet":
            content = pq.read_table(path).to_pylist()
            function(content)
            write_table(path, content)
        else:
            content = json.loads(path.read_text())
            function(content)
            write_json(path, content)

    return damage


def put(*place):
    """Puts the last of the arguments in the place that the others lead to."""
    *steps, key, value = place
    return rows(lambda content: _at(content, steps).__setitem__(key, value))


def drop(*place):
    *steps, key = place
    return rows(lambda content: _at(content, steps).__delitem__(key))


def _at(content, steps):
    return functools.reduce(operator.getitem, steps, content)


def again(number):
    return rows(lambda content: content.append(content[number]))


def twice(*place):
    """Writes the first key of an object twice, as JSON's grammar allows."""

    def damage(path):
        content = json.loads(path.read_text())
        value = _at(content, place)
        key = next(iter(value))
        value["REPEATED"] = value[key]
        path.write_text(json.dumps(content).replace('"REPEATED"', json.dumps(key)))

    return damage


def sub(old, new):
    def damage(path):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return damage


def lines(function):
    return lambda path: path.write_text("".join(function(path.read_text().splitlines(keepends=True))))


def more(*new):
    return lines(lambda old: [*old, *(f"{line}\n" for line in new)])


def write(text):
    return lambda path: path.write_text(text)


def gone(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def cut(share):
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def renamed(name):
    return lambda path: path.rename(path.with_name(name))


def copied(name):
    return lambda path: shutil.copyfile(path.parent / name, path)


def empty(*names):
    """Removes these files of a folder, by default all."""
    return lambda path: [each.unlink() for each in path.iterdir() if not names or each.name in names]


def on(name, damage):
    """Damages a file, named from the folder on, other than the one that the message names."""
    return lambda path: damage(next(parent for parent in path.parents if (parent / name).exists()) / name)


def mat(**arrays):
    return lambda path: scipy.io.savemat(path, arrays)
