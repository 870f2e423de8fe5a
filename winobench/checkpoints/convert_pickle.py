r"""Converts PyTorch weight files (``.bin``) into safetensors, without PyTorch and without running code in them.

python -m winobench.checkpoints.convert_pickle FOLDER           # writes safetensors files next to the .bin files
python -m winobench.checkpoints.convert_pickle FILE.bin         # the same for one file, also of .pt, .pth or .ckpt
python -m winobench.checkpoints.convert_pickle OWNER/NAME FOLDER  # a hub repository, converted into a new folder
"""

from __future__ import annotations

import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence

from absl import app, flags

from winobench.base.errors import InputError
from winobench.base.files import write_json
from winobench.checkpoints import pickles, sources, weights

# Parts of a pipeline that nothing here reads.
_OTHER_PARTS = ("safety_checker", "feature_extractor", "image_encoder")
_INDICES = ("diffusion_pytorch_model*.bin.index*.json", "pytorch_model*.bin.index*.json")
_WEIGHTS = (
    *("diffusion_pytorch_model*.bin", "pytorch_model*.bin", "pytorch_lora_weights*.bin"),
    "open_clip_pytorch_model*.bin",
)
# Other forms of the same weights, which nothing here reads.
_OTHER_WEIGHTS = ("*.non_ema.bin", "*.ema.bin")


def _subfolders(source: sources.Source) -> list[str]:
    """The top of a repository, for a single network there, and the folders of a pipeline's parts."""
    path = source.find("model_index.json")
    index = {} if path is None else sources.read_json(path)
    parts = [name for name, value in index.items() if isinstance(value, list) and name not in _OTHER_PARTS]
    return ["", *(f"{name}/" for name in parts)]


def convert_folder(folder: pathlib.Path) -> list[pathlib.Path]:
    """Converts all weight files under a folder, and the indices of those that are shards."""
    files = sorted({path for pattern in (*_WEIGHTS, *_INDICES) for path in folder.rglob(pattern)})
    if not files:
        message = f"{folder} has no weight files that are pickles ({', '.join(_WEIGHTS)}): nothing to convert"
        raise InputError(message, code="nothing-to-convert")
    return [_convert(path, path.parent) for path in files]


def convert_repository(repo_id: str, folder: pathlib.Path, revision: str | None = None) -> list[pathlib.Path]:
    """Downloads a hub repository's pickled pipeline, or network, and converts it into a new folder."""
    import huggingface_hub

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already and is not empty: name a new folder", code="already-exists")
    # Raises a sentence about the repository's fault, if it has any.
    source = sources.HubRepository(repo_id, revision)
    if all(source.find(name) is None for name in ("model_index.json", "open_clip_config.json")):
        source.require("config.json", "nor a model_index.json, so it is not a model in the diffusers layout")
    wanted = {
        "allow_patterns": [part + name for part in _subfolders(source) for name in ("*.json", "*.txt", *_WEIGHTS)],
        "ignore_patterns": list(_OTHER_WEIGHTS),
    }
    snapshot = pathlib.Path(huggingface_hub.snapshot_download(repo_id, revision=source.revision, **wanted))
    # The cache may hold more of the repository than was requested.
    cached = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
    names = sorted(huggingface_hub.utils.filter_repo_objects(cached, **wanted))
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        written = []
        for path in (snapshot / name for name in names):
            target = partial / path.parent.relative_to(snapshot)
            target.mkdir(parents=True, exist_ok=True)
            if any(path.match(pattern) for pattern in (*_WEIGHTS, *_INDICES)):
                written.append(folder / _convert(path, target).relative_to(partial))
            else:
                shutil.copyfile(path, target / path.name)
        partial.chmod(0o755)
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise
    return written


def _convert(path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Converts a weight file, or the index of its shards, into a folder."""
    target = folder / safetensors_name(path.name)
    if path.suffix != ".json":
        tensors = pickles.read(path)
        weights.write_weights(target, {name: tensor.read() for name, tensor in tensors.items()})
        return target
    index = sources.read_json(path)
    index["weight_map"] = {key: safetensors_name(str(shard)) for key, shard in index.get("weight_map", {}).items()}
    write_json(target, index)
    return target


def safetensors_name(name: str) -> str:
    """``pytorch_model-00001-of-00002.bin`` -> ``model-00001-of-00002.safetensors``, and so on."""
    for stem, pickle_stem in weights.PICKLE_STEMS.items():
        if name.startswith(pickle_stem):
            name = stem + name.removeprefix(pickle_stem)
    return re.sub(r"\.(bin|pt|pth|ckpt)(?=\.index|$)", ".safetensors", name)


def _main(arguments: Sequence[str]) -> None:
    try:
        if len(arguments) not in (2, 3):
            raise InputError("name a folder, a file, or a hub id and a new folder", code="bad-command")
        path = pathlib.Path(arguments[1])
        if path.exists() == (len(arguments) == 3):
            raise InputError(
                f"{arguments[1]} is on this machine and is converted in place: name nothing else"
                if path.exists()
                else f"{arguments[1]} is not a file or folder: if it is a hub id, also name the new folder",
                code="bad-command",
            )
        if path.is_dir():
            written = convert_folder(path)
        elif path.exists():
            written = [_convert(path, path.parent)]
        else:
            revision = flags.FLAGS.revision if "revision" in flags.FLAGS else None
            written = convert_repository(arguments[1], pathlib.Path(arguments[2]), revision)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    for path in written:
        print(path)


if __name__ == "__main__":
    # Not at the top: the programs that import this module have other flags.
    flags.DEFINE_string("revision", None, "Branch, tag or commit of the hub repository.")
    app.run(_main)
