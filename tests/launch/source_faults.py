"""Ways in which published files are bad, and what the user is told of them."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable

from tests.tasks import published_layouts

MISSING, FEWER, MORE, BROKEN, DUPLICATE = KINDS = ("missing image", "fewer", "more", "broken file", "duplicate id")


@dataclasses.dataclass(frozen=True)
class Fault:
    """A way in which a source is bad.

    Attributes:
      kind: one of ``KINDS``.
      make: ``make(folder)`` damages the sound source in this folder.
      sentence: what the user is told before how to get the files; with ``{task}``, ``{root}`` and ``{listed}``, the
        file that lists the images that cannot be used.
      problems: the lines of that file.
    """

    kind: str
    make: Callable[[pathlib.Path], object]
    sentence: str
    problems: tuple[str, ...] = ()


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


# Sentences that several tasks share.

RESTORE = ": restore the file as it was published"


def missing_image(path, num_images, make=None, reason="missing"):
    sentence = (
        f"1 of {num_images} images of task '{{task}}' in {{root}} cannot be used, {path} ({reason}), listed in"
        f" {{listed}}: add or replace it, or give --allow_partial to leave out the examples that need it"
    )
    return Fault(MISSING, make or remove(path), sentence, (f"{path}: {reason}",))


def too_few(make, count, published):
    sentence = (
        f"{{root}} has {count} example{'s' * (count != 1)} of task '{{task}}', but {published} were published: get the"
        " annotation files again, or give --allow_partial to prepare what is there"
    )
    return Fault(FEWER, make, sentence)


def too_many(make, count, published):
    sentence = (
        f"{{root}} has {count} examples of task '{{task}}', but {published} were published: get the annotation"
        " files again"
    )
    return Fault(MORE, make, sentence)


def broken_off(file, share=0.5, line=""):
    sentence = f"{line}{{root}}/{file} breaks off in the middle, as after an unfinished download: get the file again"
    return Fault(BROKEN, cut(file, share), sentence)


def no_file(file, make=None):
    sentence = f"the task needs the file {{root}}/{file}, which does not exist: get it as it was published"
    return Fault(BROKEN, make or remove(file), sentence)


def wrong(kind, make, what):
    return Fault(kind, make, what + RESTORE)
