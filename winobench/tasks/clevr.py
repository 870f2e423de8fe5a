"""GDBench's CLEVR task: which of two captions is true of an image? Seven sub-tasks (Krojer et al. 2023, section 4).

Without a data folder, the images are rendered by us. With ``data_dir``, the published files are read:
``<data_dir>/clevr/images/*.png`` and ``<data_dir>/clevr/captions/<sub-task>.json`` {image: [[true, false], ...]}.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterator

from winobench.errors import InputError
from winobench.tasks import clevr_common
from winobench.tasks.base import Example, Task


def load(data_dir: str | None, limit: int | None) -> Iterator[Example]:
    """Two items a scene and sub-task; all examples of a scene share its image.

    Args:
      data_dir: a folder with a ``clevr`` folder in the published layout, or None (or a folder without one) for
        rendered scenes.
      limit: number of scenes, None for all.

    Raises:
      InputError: the published files are incomplete or malformed.
    """
    folder = _published_folder(data_dir)
    return _rendered(limit) if folder is None else _published(folder, limit)


def _rendered(limit: int | None) -> Iterator[Example]:
    from winobench.data import clevr_captions

    images = clevr_common.evaluation_images(limit)
    for index, things in enumerate(clevr_common.evaluation_things(limit)):
        items = clevr_captions.items(things, clevr_common.distractor_color(index, things))
        for name, pairs in items.items():
            for number, texts in enumerate(pairs):
                yield Example(f"scene-{index:06d}/{name}/{number}", (images[index],), texts, 0, (name,))


def _published_folder(data_dir: str | None) -> pathlib.Path | None:
    folder = pathlib.Path(data_dir) / "clevr" if data_dir is not None else None
    return folder if folder is not None and folder.is_dir() else None


def _published(folder: pathlib.Path, limit: int | None) -> Iterator[Example]:
    from winobench.data import clevr_captions

    captions = {name: _read_captions(folder / "captions" / f"{name}.json") for name in clevr_captions.SUBTASKS}
    names = list(dict.fromkeys(image for items in captions.values() for image in items))[:limit]
    missing = [name for name in names if not (folder / "images" / name).is_file()]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(names)} images are missing from {folder / 'images'} ({', '.join(missing[:3])}"
            f"{', ...' if len(missing) > 3 else ''}): copy the published CLEVR images there"
        )
    for name in names:
        for sub_task, items in captions.items():
            for number, texts in enumerate(items.get(name, [])):
                yield Example(f"{name}/{sub_task}/{number}", (folder / "images" / name,), tuple(texts), 0, (sub_task,))


def _read_captions(path: pathlib.Path) -> dict[str, list[list[str]]]:
    try:
        items = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"there is no caption file {path}: the published CLEVR task has seven") from None
    except ValueError as error:
        raise InputError(f"the caption file {path} is not JSON ({error}): copy it anew") from None
    well_formed = isinstance(items, dict) and all(
        isinstance(pairs, list)
        and all(isinstance(p, list) and len(p) == 2 and all(isinstance(t, str) for t in p) for p in pairs)
        for pairs in items.values()
    )
    if not well_formed:
        raise InputError(f"the caption file {path} must map image names to lists of [true, false] captions")
    return items


def _data_fingerprint(data_dir: str | None, limit: int | None) -> str:
    folder = _published_folder(data_dir)
    if folder is None:
        return clevr_common.fingerprint(limit)
    digest = hashlib.sha256(repr(limit).encode())
    for path in sorted((folder / "captions").glob("*.json")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


TASKS = (
    Task(
        name="clevr",
        version=1,
        description="Which caption is true of two objects: colour, shape, size, and what belongs to what and where.",
        metric="accuracy",
        shape=(1, 2),
        chance={"accuracy": 0.5},
        load=load,
        ready=lambda data_dir: None,
        images_compete=False,
        data_fingerprint=_data_fingerprint,
        count=lambda data_dir: 14 * clevr_common.NUM_SCENES,
    ),
)
