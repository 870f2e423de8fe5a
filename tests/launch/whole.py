"""Tasks prepared from small published sets, and evaluated with several models from the command line."""

import functools

from launch import prepare
from tests import launching
from tests.tasks import newer_layouts

launch = functools.partial(launching.launch, COLUMNS="80")


def prepare_newer(names, tmp_path_factory):
    """The folder of newer tasks, prepared from what the tests write."""
    folder = tmp_path_factory.mktemp("data")
    for name in names:
        source = newer_layouts.WRITERS[name](tmp_path_factory.mktemp(name))
        assert not prepare.prepare_tasks(name, str(source), str(folder), workers=1, allow_partial=True)
    return folder


def evaluate(models, data_dir, folder, *words, config="gdbench:debug"):
    """The folder of each model's run, and what the one command printed on both streams."""
    words = [f"--config={config}", f"--config.model={','.join(map(str, models))}", *words]
    status, out, err = launch("launch.eval", *words, f"--config.data_dir={data_dir}", f"--workdir={folder}")
    assert status == 0, err
    return [folder / model.name for model in models] if len(models) > 1 else [folder], out, err


def report(folders, out):
    status, _, err = launch("launch.report", *folders, f"--out={out}")
    assert status == 0, err
