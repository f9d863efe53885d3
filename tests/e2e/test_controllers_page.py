"""/debug/controllers of a real manager, seen by a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.browser import WIDTHS, Manager, chromium, open_page

pytestmark = [pytest.mark.e2e, pytest.mark.needs("chromium")]

PATH = "/debug/controllers"
STILL = f"{PATH}?refresh=off"


@pytest.fixture(scope="module")
def manager(
    control_plane: Any, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("manager"), control_plane.kubeconfig, free_port())
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def laptop_page(browser: Browser, manager: Manager) -> Iterator[Page]:
    """The page as an administrator sees it on a laptop."""
    with open_page(browser, manager, STILL) as page:
        yield page


@pytest.fixture(params=WIDTHS)
def any_page(request: pytest.FixtureRequest, browser: Browser, manager: Manager) -> Iterator[Page]:
    """The page on a screen of each width."""
    with open_page(browser, manager, STILL, WIDTHS[request.param]) as page:
        yield page


def test_page_shows_leader_and_controllers(laptop_page: Page) -> None:
    assert laptop_page.locator("h1").inner_text() == "cluster-controller-manager leads"
    assert "All is well." in laptop_page.inner_text("body")
    names = laptop_page.locator("table").nth(0).locator("tbody tr td:first-child b").all_inner_texts()
    assert {"endpoints-controller", "namespace-controller"} <= set(names)
    assert "running" in laptop_page.locator("table").nth(0).inner_text()
    assert "namespaces" in laptop_page.locator("table").nth(1).inner_text()


def test_tables_fit_the_screen(any_page: Page) -> None:
    width = any_page.evaluate("document.documentElement.clientWidth")
    right = any_page.evaluate(
        "Math.max(...[...document.querySelectorAll('td')].map(it => it.getBoundingClientRect().right))"
    )
    assert right <= width


def test_filter_applies_while_typing_and_stays_in_the_url(laptop_page: Page) -> None:
    rows = laptop_page.locator("tr[data-filter]:visible")
    assert rows.count() > 10
    laptop_page.get_by_role("searchbox").fill("ENDPOINTSLICE-CONTROLLER")
    assert rows.locator("b").all_inner_texts() == ["endpointslice-controller"]
    assert "q=ENDPOINTSLICE-CONTROLLER" in laptop_page.url
    laptop_page.reload()
    assert rows.locator("b").all_inner_texts() == ["endpointslice-controller"]
    laptop_page.get_by_role("searchbox").fill("")
    assert rows.count() > 10
    assert "q=" not in laptop_page.url


def test_filter_works_without_scripts(browser: Browser, manager: Manager) -> None:
    shows = {"origin": manager.url, "certPath": manager.certificate, "keyPath": manager.key}
    with browser.new_context(
        ignore_https_errors=True, client_certificates=[shows], java_script_enabled=False
    ) as context:
        page = context.new_page()
        page.goto(f"{manager.url}{PATH}?refresh=off")
        page.get_by_role("searchbox").fill("ttl-controller")
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url("**refresh=off&q=ttl-controller")
        assert page.locator("tr[data-filter]:visible b").all_inner_texts() == ["ttl-controller"]


def test_page_without_credentials_explains_how_to_log_in(browser: Browser, manager: Manager) -> None:
    with browser.new_context(ignore_https_errors=True) as context:
        page = context.new_page()
        answer = page.goto(f"{manager.url}{PATH}")
        assert answer is not None
        assert answer.status == 403
        assert "create token" in page.inner_text("body")


def test_index_links_to_every_page(laptop_page: Page, manager: Manager) -> None:
    laptop_page.get_by_role("link", name="other pages").click()
    paths = laptop_page.locator("td a").all_inner_texts()
    assert {"/debug/controllers", "/metrics", "/healthz", "/configz"} <= set(paths)
    for path in paths:
        answer = laptop_page.request.get(f"{manager.url}{path}")
        assert answer.ok, path


def test_page_fits_the_window_and_is_not_blank(any_page: Page, tmp_path: Path) -> None:
    overflow = any_page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
    pictures = set()
    for scheme in ("light", "dark"):
        any_page.emulate_media(color_scheme=scheme)
        picture = any_page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)
        assert len(picture) > 20_000  # an empty page of that size has about 5 KB
        pictures.add(picture)
    assert len(pictures) == 2


def test_json_link_shows_the_same_data(laptop_page: Page) -> None:
    laptop_page.get_by_role("link", name="JSON").click()
    assert '"phase":"running"' in laptop_page.inner_text("body")
