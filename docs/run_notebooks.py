"""Runs the tutorials of docs/tutorials and stores their outputs in them.

python docs/run_notebooks.py                     # all of them
python docs/run_notebooks.py own_task            # one
python docs/run_notebooks.py --check own_task    # runs it and stores nothing
"""

from __future__ import annotations

import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Sequence

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent / "tutorials"
# The one cell that a notebook on Colab needs and that would install another version here.
_INSTALL = "%pip install"
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run(path: pathlib.Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run in an empty folder. Raises CellExecutionError where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    installs = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.startswith(_INSTALL)]
    sources = [cell.source for cell in installs]
    for cell in installs:
        cell.source = ""
    root = str(FOLDER.parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    os.environ["PATH"] = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    os.environ |= {"JAX_PLATFORMS": "cpu", "COLUMNS": "80", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    for cell, source in zip(installs, sources, strict=True):
        cell.source, cell.outputs, cell.execution_count = source, [], None
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran: another value at every run
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Pieces of one stream as one piece, without the codes of colours, which may lie across two pieces."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        is_stream = output.output_type == "stream"
        earlier = next((each for each in found if is_stream and each.get("name") == output.name), None)
        if earlier is None:
            found.append(output)
        else:
            earlier.text += output.text
    for output in found:
        if output.output_type == "stream":
            output.text = _COLOURS.sub("", output.text)
    return found


def main(words: Sequence[str]) -> None:
    names = [word for word in words if not word.startswith("-")]
    paths = [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb"))
    for path in paths:
        notebook = run(path)
        if "--check" not in words:
            nbformat.write(notebook, path)


if __name__ == "__main__":
    main(sys.argv[1:])
