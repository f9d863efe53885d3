"""/ui of a real manager, seen by a real browser."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import WIDTHS, Manager, chromium, open_page

pytestmark = [pytest.mark.e2e, pytest.mark.needs("chromium", "kubectl")]

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "harbour"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "110", "cpu": "4"}},
}


@pytest.fixture(scope="module")
def kubectl(control_plane: Any) -> Callable[..., str]:
    def run(*arguments: str, body: Any = None) -> str:
        command = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", *arguments]
        given = json.dumps(body) if body is not None else None
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout

    return run


@pytest.fixture(scope="module")
def manager(
    control_plane: Any,
    kubectl: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
    free_port: Callable[[], int],
) -> Iterator[Manager]:
    """A manager of a cluster with a node, and a deployment without a kubelet."""
    made = Manager(tmp_path_factory.mktemp("manager"), control_plane.kubeconfig, free_port())
    kubectl("create", "namespace", "port")
    kubectl("create", "--filename=-", body=NODE)
    kubectl("create", "deployment", "web", "--image=example.org/web", "--replicas=3", "--namespace=port")
    yield made
    kubectl("delete", "namespace", "port")
    kubectl("delete", "node", "harbour")
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(params=WIDTHS)
def any_page(request: pytest.FixtureRequest, browser: Browser, manager: Manager) -> Iterator[Page]:
    """The page on a screen of each width, fully loaded."""
    with open_page(browser, manager, "/ui", WIDTHS[request.param]) as page:
        expect(page.locator("#events table")).to_be_visible()
        yield page


def test_page_shows_cluster_objects_and_controller_actions(any_page: Page) -> None:
    expect(any_page.locator("#nodes tbody tr", has_text="harbour")).to_contain_text("Ready")
    expect(any_page.locator("#workloads tbody tr", has_text="port/web")).to_contain_text("0 of 3")
    expect(any_page.locator("#pods tbody tr", has_text="port/web-")).to_have_count(3)
    expect(any_page.locator("#events tbody tr", has_text="ScalingReplicaSet")).not_to_have_count(0)
    acted = any_page.locator("#controllers tbody tr", has_text="deployment-controller")
    expect(acted).to_contain_text("port/web")
    expect(acted).to_contain_text("wrote")


def test_page_fits_the_window_in_light_and_dark(any_page: Page, tmp_path: Path) -> None:
    overflow = any_page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
    pictures = set()
    for scheme in ("light", "dark"):
        any_page.emulate_media(color_scheme=scheme)
        pictures.add(any_page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True))
    assert len(pictures) == 2


def test_page_updates_live(browser: Browser, manager: Manager, kubectl: Callable[..., str]) -> None:
    with open_page(browser, manager, "/ui?q=late") as page:
        expect(page.locator("#workloads")).to_contain_text("None of that description.")
        kubectl("create", "deployment", "late", "--image=example.org/web", "--namespace=port")
        expect(page.locator("#workloads tbody tr")).to_contain_text("port/late", timeout=10_000)
        page.get_by_role("searchbox").fill("nobody has this name")
        expect(page.locator("#workloads")).to_contain_text("None of that description.")


def test_viewer_token_opens_page_and_is_not_in_the_url(
    browser: Browser, manager: Manager, kubectl: Callable[..., str]
) -> None:
    kubectl("create", "serviceaccount", "viewer", "--namespace=port")
    token = kubectl("create", "token", "viewer", "--namespace=port").strip()
    with browser.new_context(ignore_https_errors=True) as context:
        page = context.new_page()
        answer = page.goto(f"{manager.url}/ui")
        assert answer is not None
        assert answer.status == 403
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#refusal")).to_contain_text("401")
        page.goto(f"{manager.url}/ui#token={token}")
        page.reload()
        expect(page.locator("#pods tbody tr", has_text="port/web-")).to_have_count(3)
        assert token not in page.url
