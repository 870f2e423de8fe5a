"""Makes the reports and the viewer's site that docs/gallery.md links to, with the commands of that page.

python docs/make_gallery.py    # takes about a minute on two CPU cores, without network
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parent
FOLDER = DOCS / "_generated" / "extra"


def read_page() -> tuple[str, list[str]]:
    """The block of commands that writes a site, and the files that the page links to."""
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    (commands,) = (block for block in re.findall(r"^```bash\n(.*?)^```$", page, re.M | re.S) if "--bundle=" in block)
    return commands, re.findall(r'<a href="([^"]+)">', page)


def main() -> None:
    commands, links = read_page()
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(DOCS.parent), "JAX_PLATFORMS": "cpu", "COLUMNS": "80"}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["bash", "-euxc", commands], cwd=folder, env=environment, check=True)
        missing = [link for link in links if not (pathlib.Path(folder) / link).is_file()]
        if missing:
            sys.exit(f"docs/gallery.md links to files that its commands do not make: {', '.join(missing)}")
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(pathlib.Path(folder) / "gallery", FOLDER / "gallery")


if __name__ == "__main__":
    main()
