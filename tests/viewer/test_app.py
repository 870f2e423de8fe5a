"""The application's files fit together: names, the policy's hash, and the licences of its libraries."""

import base64
import hashlib
import re

from winobench.viewer.server import APP


def test_preloaded_modules_are_those_that_pages_import():
    source = (APP / "preload.js").read_text()
    names = re.findall(r"'([\w/.-]+\.m?js)'", source)
    assert [name for name in names if not (APP / name).is_file()] == []
    parquet = re.search(r"PARQUET = \[(.*?)\]", source, re.DOTALL)[1]
    vendored = {path.stem for path in (APP / "vendor" / "hyparquet" / "src").iterdir()}
    assert set(re.findall(r"'(\w+)'", parquet)) == vendored


def test_the_policy_allows_the_import_map_and_no_other_inline_script():
    page = (APP / "index.html").read_text()
    (inline,) = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
    assert re.findall(r"script-src ([^;]*)", page) == [f"'self' 'sha256-{digest}'"]


def test_every_library_has_a_licence_and_a_version():
    table = (APP / "vendor" / "README.md").read_text()
    folders = [path for path in (APP / "vendor").iterdir() if path.is_dir()]
    assert {path.name for path in folders} == {"preact", "htm", "hyparquet", "hyparquet-writer", "fzstd", "d3", "plot"}
    for folder in folders:
        assert (folder / "LICENSE").stat().st_size > 500
        assert re.search(rf"\| (?:@observablehq/)?{folder.name} \| \d+\.\d+\.\d+ \|", table), folder.name
