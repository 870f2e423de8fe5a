"""Every page in a browser: from the server and from static hosts, on desktop and phone, in light and dark."""

import contextlib
import itertools
import shutil

import pytest

from tests.viewer import browser

pytestmark = pytest.mark.slow

FAULTY = """<!doctype html><html><head><title>x</title></head><body><main aria-busy="false"><h1>A</h1>
<p style="color: #bbb; background: #fff">pale</p><div style="width: 3000px">wide</div>
<button style="outline: none">no focus</button><img src="absent.png" alt="">
<script>console.error("bad"); setTimeout(() => { throw new Error("thrown"); }); alert(1);</script>
</main></body></html>"""


@pytest.fixture(scope="module")
def address(viewed, chromium):
    with browser.serving(*viewed) as (address, _):
        yield address


@pytest.fixture(scope="module")
def site(viewed, chromium):
    with browser.bundled(viewed) as folder:
        yield folder


@pytest.fixture(scope="module")
def pages(address, chromium):
    with browser.Visit(chromium, address) as visit:
        return browser.routes(visit)


def test_the_checks_find_faults(chromium, tmp_path):
    (tmp_path / "index.html").write_text(FAULTY)
    with browser.hosting(tmp_path, ranges=True) as address, browser.Visit(chromium, address) as visit:
        found = "\n".join(browser.check_page(visit, "#/") + browser.check_keyboard(visit, "#/"))
    said = ("status 404", "console error: bad", "page error: thrown", "dialog: 1", "scrolls sideways", "color-contrast")
    assert [text for text in (*said, "focus cannot be seen: button") if text not in found] == []


@pytest.mark.parametrize(("size", "scheme"), [*itertools.product(browser.SIZES, browser.SCHEMES)])
def test_pages_of_the_server(address, chromium, screenshots, size, scheme):
    assert browser.walk(chromium, address, "server", size, scheme, screenshots) == {}


@pytest.mark.parametrize("host", ["bundle", "plain"])
@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_pages_of_a_static_site(site, chromium, screenshots, host, size, scheme):
    with browser.hosting(site, ranges=host == "bundle") as address:
        assert browser.walk(chromium, address, host, size, scheme, screenshots, axe=False) == {}


def test_the_site_has_the_server_s_pages(pages, site, chromium):
    with browser.hosting(site, ranges=True) as address, browser.Visit(chromium, address) as visit:
        assert browser.routes(visit) == pages


def test_every_control_is_reached_by_keys(address, pages, chromium):
    with browser.Visit(chromium, address) as visit:
        found = {route: browser.check_keyboard(visit, route) for route in pages}
    assert {route: problems for route, problems in found.items() if problems} == {}


def test_lists_have_keys_and_the_back_button_returns(address, pages, chromium):
    lists = [route for route in pages if route == "#/" or route.startswith(("#/questions/", "#/flips/"))]
    with browser.Visit(chromium, address) as visit:
        found = {route: browser.check_list(visit, route) for route in lists}
    assert {route: problems for route, problems in found.items() if problems} == {}


def test_reloaded_pages_are_the_same(address, pages, chromium):
    with browser.Visit(chromium, address) as visit:
        assert [problem for route in pages for problem in browser.check_reload(visit, route)] == []


@pytest.mark.parametrize(
    "route", ["#/nonsense", "#/run/absent", "#/run/weak/nonsense", "#/question/weak/clevr/999999999", "#/run/%E0%A4%A"]
)
def test_an_address_that_leads_nowhere_is_said(address, chromium, route):
    with browser.Visit(chromium, address) as visit:
        visit.open(route)
        (sentence,) = visit.page.locator("main [role=alert]:visible").all_inner_texts()
        assert sentence.strip().endswith(".")
        visit.page.locator('a[href="#/"]:visible').first.click()
        visit.page.wait_for_function("() => document.querySelector('main [role=alert]') === null")
        visit.wait()
        assert [one for one in visit.problems if "404" not in one] == []


def test_strangers_are_kept_out(address, chromium):
    base = address.partition("?")[0]
    context = chromium.new_context()
    with contextlib.closing(context):
        assert context.request.get(f"{base}data/runs.json").status == 403
        assert context.request.get(f"{address[:-1]}x").status == 403
        assert context.request.get(address, headers={"Host": "example.org"}).status == 403


def test_the_contents_of_a_report_lead_to_its_sections(address, chromium):
    with browser.Visit(chromium, address) as visit:
        visit.open("#/run/weak/report")
        sections = visit.page.locator("main section")
        links = visit.page.locator("main nav[aria-label=Contents] a")
        assert sections.evaluate_all("all => all.map(({ id }) => `#/run/weak/report?section=${id}`)") == (
            links.evaluate_all("all => all.map(({ hash }) => hash)")
        )
        for _ in range(2):  # the second click changes no address
            visit.page.evaluate("scrollTo(0, 0)")
            links.filter(has_text="Bias").click()
            visit.page.wait_for_function("scrollY > 100")
        assert abs(visit.page.locator("main section#bias").bounding_box()["y"]) < 100
        visit.open("#/run/weak/report?section=samples")
        assert abs(visit.page.locator("main section#samples").bounding_box()["y"]) < 100


def test_a_report_that_a_bundle_lacks_is_a_sentence(site, chromium, tmp_path):
    folder = shutil.copytree(site, tmp_path / "site")
    with browser.hosting(folder, ranges=True) as address, browser.Visit(chromium, address) as visit:
        for slug, content, sentence in (
            ("weak", '<p role="alert">It took too long.</p>', "It took too long."),
            ("strong", "", "strong.html is not a report."),
        ):
            (folder / "data" / "report" / f"{slug}.html").write_text(content)
            visit.open(f"#/run/{slug}/report")
            assert visit.page.locator("main [role=alert]").inner_text().endswith(sentence)
        assert visit.problems == []
