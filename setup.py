"""What pyproject.toml cannot say: packages from other folders, and the README without links into the repository."""

import pathlib
import re

import setuptools

# Installed inside winobench, so that no other package called launch or configs collides with them.
FOLDERS = {"winobench.launch": "launch", "winobench.configs": "configs"}
PACKAGES = setuptools.find_packages(include=["winobench", "winobench.*", "launch", "launch.*", "configs"])
README = (pathlib.Path(__file__).parent / "README.md").read_text(encoding="utf-8")

setuptools.setup(
    package_dir=FOLDERS,
    packages=[name if name.startswith("winobench") else f"winobench.{name}" for name in PACKAGES],
    # On the page of an index, they lead nowhere.
    long_description=re.sub(r"(!?)\[([^\]]*)\]\((?!\w+:)[^)]*\)", lambda link: "" if link[1] else link[2], README),
    long_description_content_type="text/markdown",
)
