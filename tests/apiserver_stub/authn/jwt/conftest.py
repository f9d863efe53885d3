"""JWT authenticators, configured by a file as in the server, with issuers in memory."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver_stub.authn.jwt import authenticator
from apiserver_stub.authn.jwt.authentication_file import JWTAuthentication
from apiserver_stub.authn.jwt.authenticators import Terms
from apiserver_stub.authn.jwt.key_set import ALGORITHMS
from apiserver_stub.authn.tokens import TokenRefused
from apiserver_stub.common.flags import AuthenticationOptions
from apiserver_stub.common.offload import Offload
from controller_manager.common.base.runtime import Runtime
from controller_manager.common.base.tasks import Tasks
from controller_manager.common.serving.authentication import User
from tests.apiserver_stub.authn.jwt.issuer import URL, Issuer

Tree = dict[str, Any]


def rules(**changes: Any) -> Tree:
    """One authenticator; a double underscore stands for a nested field."""
    tree: Tree = {
        "issuer": {"url": URL, "audiences": ["cluster"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    }
    for path, value in changes.items():
        *parents, name = path.split("__")
        at = tree
        for parent in parents:
            at = at.setdefault(parent, {})
        at[name] = value
    return tree


def document(*authenticators: Tree, **more: Any) -> str:
    version = "apiserver.config.k8s.io/v1"
    return json.dumps(
        {"apiVersion": version, "kind": "AuthenticationConfiguration", "jwt": list(authenticators), **more}
    )


class RunningAuthenticators:
    """The running authenticators of a file."""

    def __init__(self, file: Path, runtime: Runtime, algorithms: Sequence[str] = tuple(ALGORITHMS)) -> None:
        self.file = file
        self.runtime = runtime
        options = AuthenticationOptions(authentication_config=str(file))
        terms = Terms(algorithms, ("api",), ("https://kubernetes.default.svc",), {})
        self.offload = Offload()
        self.authentication = JWTAuthentication(options, terms, runtime, self.offload)

    async def user(self, token: str, audiences: Sequence[str] = ("api",)) -> User | None:
        """The user of a token; None if it is unknown or rejected."""
        try:
            found = await self.authentication.authenticators.find(token, audiences)
        except TokenRefused as refused:
            self.why = str(refused)
            return None
        self.why = "" if found else "unknown"
        return found.user if found else None

    def sample(self, name: str, **labels: str) -> float | None:
        """The sum of the series with these labels."""
        found = [
            sample.value
            for family in self.runtime.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None


RunAuthenticators = Callable[..., AbstractAsyncContextManager[RunningAuthenticators]]


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Issuer:
    """The issuer from which all documents are fetched."""
    found = Issuer()
    monkeypatch.setattr(authenticator, "Fetcher", lambda _authorities, _dialer: found)
    return found


@pytest.fixture
def run_authenticators(tmp_path: Path, issuer: Issuer) -> RunAuthenticators:
    """Run the authenticators of a document."""

    @asynccontextmanager
    async def run(
        text: str = "", algorithms: Sequence[str] = tuple(ALGORITHMS)
    ) -> AsyncIterator[RunningAuthenticators]:
        file = tmp_path / "authentication.json"
        file.write_text(text or document(rules()))
        authn = RunningAuthenticators(file, Runtime("test"), algorithms)
        async with Tasks() as tasks:
            tasks.start(authn.authentication.run(), name="authentication")
            for connection in authn.authentication.authenticators.connections.values():
                await connection.provider.discovered(5)
            yield authn
        authn.offload.close()

    return run
