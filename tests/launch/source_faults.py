"""Ways in which published files are bad, and what the errors name."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable

from tests.tasks import published_layouts

MISSING, FEWER, MORE, BROKEN, DUPLICATE = KINDS = ("missing image", "fewer", "more", "broken file", "duplicate id")


@dataclasses.dataclass(frozen=True)
class Fault:
    """A way in which a source is bad."""

    kind: str  # one of `KINDS`
    make: Callable[[pathlib.Path], object]  # damages the sound source in this folder
    # What the error names, with ``{root}`` and ``{listed}``, the file that lists the images that cannot be used.
    named: tuple[str, ...]
    problems: tuple[str, ...] = ()  # the lines of that file


def remove(*names):
    def make(folder):
        for name in names:
            shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()

    return make


def cut(name, share=0.5):
    """Leaves the first part of a file, as a download does that was broken off."""

    def make(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return make


def change(name, function):
    """Rewrites a JSON file: ``function(content)`` changes its content in place."""

    def make(folder):
        content = json.loads((folder / name).read_text())
        function(content)
        published_layouts.write_json(folder / name, content)

    return make


def repeat_first_key(name, *place):
    """Writes the first key of the object that is at ``place`` in a JSON file twice, as JSON's grammar allows."""

    def make(folder):
        content = json.loads((folder / name).read_text())
        value = content
        for step in place:
            value = value[step]
        key = next(iter(value))
        value["REPEATED"] = value[key]
        text = json.dumps(content)
        assert text.count('"REPEATED"') == 1
        (folder / name).write_text(text.replace('"REPEATED"', json.dumps(key)))

    return make


def change_lines(name, function):
    """Rewrites a text file: ``function(lines)`` gives the new lines."""

    def make(folder):
        (folder / name).write_text("".join(function((folder / name).read_text().splitlines(keepends=True))))

    return make


def copy(name, to):
    return lambda folder: shutil.copyfile(folder / name, folder / to)


def delete(content, key):
    del content[key]


def delete_first(content, count):
    for key in list(content)[:count]:
        del content[key]


def first_again(rows):
    rows.append(rows[0])


def at(file):
    return f"{{root}}/{file}"


def row(number, file):
    return f"row {number}", at(file)


# Faults that several tasks share.


def missing_image(path, num_images, make=None, reason="missing"):
    named = (f"1 of {num_images} images", "{root}", f"{path} ({reason})", "{listed}", "--allow_partial")
    return Fault(MISSING, make or remove(path), named, (f"{path}: {reason}",))


def too_few(make, count, published):
    return Fault(FEWER, make, ("{root}", f"{count} example{'s' * (count != 1)}", f"{published}", "--allow_partial"))


def too_many(make, count, published):
    return Fault(MORE, make, ("{root}", f"{count} examples", f"{published}"))


def broken_off(file, share=0.5, line="{root}"):
    return Fault(BROKEN, cut(file, share), (line, at(file)))


def no_file(file, make=None):
    return Fault(BROKEN, make or remove(file), (at(file),))


def wrong(kind, make, *named):
    return Fault(kind, make, named)


def usual(file, image, num_images, count, fewer, more, by=1):
    """A missing image, and an annotation file with fewer or more examples than published, or that breaks off."""
    few, many = (too_few(change(file, fewer), count - by, count), too_many(change(file, more), count + by, count))
    return [missing_image(image, num_images), few, many, broken_off(file)]
