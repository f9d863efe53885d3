"""/debug/controllers of a real manager, seen by a real browser."""

import base64
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Page, sync_playwright

pytestmark = [pytest.mark.e2e, pytest.mark.needs("chromium")]

PATH = "/debug/controllers"
WIDTHS = {"telephone": 390, "laptop": 1280}


class Manager:
    """A manager, and the administrator's certificate to look at it with."""

    def __init__(self, folder: Path, kubeconfig: Path, port: int) -> None:
        self.url = f"https://127.0.0.1:{port}"
        config = yaml.safe_load(kubeconfig.read_text())
        self.certificate, self.key = folder / "admin.crt", folder / "admin.key"
        user = config["users"][0]["user"]
        self.certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
        self.key.write_bytes(base64.b64decode(user["client-key-data"]))
        flags = (f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}")
        command = [
            sys.executable,
            "-m",
            "controller_manager",
            *flags,
            f"--client-ca-file={kubeconfig.with_name('client-ca.crt')}",
        ]
        self._log = (folder / "manager.log").open("w")
        self._child = subprocess.Popen(command, stderr=self._log)
        self._until_ready()

    def stop(self) -> None:
        self._child.terminate()
        assert self._child.wait(20) == 0
        self._log.close()

    def _until_ready(self) -> None:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        for _ in range(1200):
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", context=tls) as answer:
                    assert answer.status == 200
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(Path(self._log.name).read_text())


@pytest.fixture(scope="module")
def manager(
    control_plane: Any, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Manager]:
    made = Manager(tmp_path_factory.mktemp("manager"), control_plane.kubeconfig, free_port())
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "these tests need chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def shown(browser: Browser, manager: Manager) -> Iterator[Page]:
    """The page as an administrator sees it on a laptop."""
    with opened(browser, manager, WIDTHS["laptop"]) as page:
        yield page


@pytest.fixture(params=WIDTHS)
def anywhere(request: pytest.FixtureRequest, browser: Browser, manager: Manager) -> Iterator[Page]:
    """The page on a screen of each width."""
    with opened(browser, manager, WIDTHS[request.param]) as page:
        yield page


@contextmanager
def opened(browser: Browser, manager: Manager, width: int) -> Iterator[Page]:
    """The page as an administrator sees it; whatever the browser complains of fails the test."""
    shows = {"origin": manager.url, "certPath": manager.certificate, "keyPath": manager.key}
    size = {"width": width, "height": 900}
    with browser.new_context(ignore_https_errors=True, client_certificates=[shows], viewport=size) as context:
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(f"{message.location['url']}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        answer = page.goto(f"{manager.url}{PATH}?refresh=off")
        assert answer is not None
        assert answer.status == 200, answer.text()
        yield page
        assert [complaint for complaint in complaints if "favicon.ico" not in complaint] == []


def test_a_person_reads_who_leads_and_what_is_done(shown: Page) -> None:
    assert shown.locator("h1").inner_text() == "cluster-controller-manager leads"
    assert "All is well." in shown.inner_text("body")
    names = shown.locator("table").nth(0).locator("tbody tr td:first-child b").all_inner_texts()
    assert {"endpoints-controller", "namespace-controller"} <= set(names)
    assert "running" in shown.locator("table").nth(0).inner_text()
    assert "namespaces" in shown.locator("table").nth(1).inner_text()


def test_nothing_is_off_the_screen(anywhere: Page) -> None:
    width = anywhere.evaluate("document.documentElement.clientWidth")
    right = anywhere.evaluate(
        "Math.max(...[...document.querySelectorAll('td')].map(it => it.getBoundingClientRect().right))"
    )
    assert right <= width


def test_what_is_typed_filters_the_rows_at_once_and_stays_in_the_address(shown: Page) -> None:
    rows = shown.locator("tr[data-filter]:visible")
    assert rows.count() > 10
    shown.get_by_role("searchbox").fill("ENDPOINTSLICE-CONTROLLER")
    assert rows.locator("b").all_inner_texts() == ["endpointslice-controller"]
    assert "q=ENDPOINTSLICE-CONTROLLER" in shown.url
    shown.reload()
    assert rows.locator("b").all_inner_texts() == ["endpointslice-controller"]
    shown.get_by_role("searchbox").fill("")
    assert rows.count() > 10
    assert "q=" not in shown.url


def test_the_filter_works_without_scripts(browser: Browser, manager: Manager) -> None:
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


def test_who_brings_no_credentials_reads_how_to_come_in(browser: Browser, manager: Manager) -> None:
    with browser.new_context(ignore_https_errors=True) as context:
        page = context.new_page()
        answer = page.goto(f"{manager.url}{PATH}")
        assert answer is not None
        assert answer.status == 403
        assert "create token" in page.inner_text("body")


def test_the_index_leads_to_every_page(shown: Page, manager: Manager) -> None:
    shown.get_by_role("link", name="other pages").click()
    paths = shown.locator("td a").all_inner_texts()
    assert {"/debug/controllers", "/metrics", "/healthz", "/configz"} <= set(paths)
    for path in paths:
        answer = shown.request.get(f"{manager.url}{path}")
        assert answer.ok, path


def test_it_fits_the_window_and_is_not_blank(anywhere: Page, tmp_path: Path) -> None:
    overflow = anywhere.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
    pictures = set()
    for scheme in ("light", "dark"):
        anywhere.emulate_media(color_scheme=scheme)
        picture = anywhere.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)
        assert len(picture) > 20_000  # an empty page of that size has about 5 KB
        pictures.add(picture)
    assert len(pictures) == 2


def test_a_link_leads_to_the_same_as_json(shown: Page) -> None:
    shown.get_by_role("link", name="JSON").click()
    assert '"phase":"running"' in shown.inner_text("body")
