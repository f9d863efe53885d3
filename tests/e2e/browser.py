"""A real manager whose pages are read by a real browser."""

import base64
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from playwright.sync_api import Browser, Page, sync_playwright

WIDTHS = {"telephone": 390, "laptop": 1280}


class Manager:
    """A manager, and the administrator's certificate for it."""

    def __init__(self, folder: Path, kubeconfig: Path, port: int) -> None:
        self.url = f"https://127.0.0.1:{port}"
        config = yaml.safe_load(kubeconfig.read_text())
        self.certificate, self.key = folder / "admin.crt", folder / "admin.key"
        user = config["users"][0]["user"]
        self.certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
        self.key.write_bytes(base64.b64decode(user["client-key-data"]))
        asked = (f"--{name}kubeconfig={kubeconfig}" for name in ("", "authentication-", "authorization-"))
        flags = (*asked, "--bind-address=127.0.0.1", f"--secure-port={port}")
        command = [
            sys.executable,
            "-m",
            "controller_manager",
            *flags,
            f"--client-ca-file={kubeconfig.with_name('client-ca.crt')}",
        ]
        self._log = (folder / "manager.log").open("w")
        self._child = subprocess.Popen(command, stderr=self._log)
        self._wait_until_ready()

    def stop(self) -> None:
        self._child.terminate()
        assert self._child.wait(20) == 0
        self._log.close()

    def _wait_until_ready(self) -> None:
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


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser."""
    program = shutil.which("chromium")
    assert program, "these tests need chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def open_page(browser: Browser, manager: Manager, path: str, width: int = WIDTHS["laptop"]) -> Iterator[Page]:
    """The page as an administrator; messages in the browser's console fail the test."""
    shows = {"origin": manager.url, "certPath": manager.certificate, "keyPath": manager.key}
    size = {"width": width, "height": 900}
    with browser.new_context(ignore_https_errors=True, client_certificates=[shows], viewport=size) as context:
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(f"{message.location['url']}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        answer = page.goto(f"{manager.url}{path}")
        assert answer is not None
        assert answer.status == 200, answer.text()
        yield page
        assert [complaint for complaint in complaints if "favicon.ico" not in complaint] == []
