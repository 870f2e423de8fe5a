"""Makes the screenshots of the viewer in README.md and docs/howto/view_runs.md. Needs Chromium and Playwright.

winobench eval --config=gdbench --model=clevr-tiny,clevr-flow
python docs/draw_viewer.py runs    # writes docs/images/viewer_*.png
"""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.viewer import browser  # noqa: E402

# File -> size and page of the first run, compared with the second.
PAGES = {
    "viewer_question": ("desktop", "#/questions/{0}/clevr?right=wrong&sort=margin"),
    "viewer_compare": ("desktop", "#/compare/{0}/{1}"),
}


def main(folder: str) -> None:
    with browser.serving(folder) as (address, _), browser.browser() as chromium:
        for name, (size, route) in PAGES.items():
            with browser.Visit(chromium, address, size) as visit:
                runs = [run["slug"] for run in visit.document("runs.json")["runs"]]
                visit.open(route.format(*runs))
                if name == "viewer_question":
                    href = visit.page.locator("main a[href^='#/question/']").first.get_attribute("href")
                    visit.open(f"{href.partition('?')[0]}?with={runs[1]}")
                visit.page.screenshot(path=ROOT / "docs" / "images" / f"{name}.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
