"""Certificate signing requests under faults, by seed.

At any time, for all rows of the API server:
1. no certificate outlives its authority or the maximum duration since it was signed;
2. no unapproved or denied request is signed;
3. an issued certificate never changes;
4. a request that breaks a rule of its signer has no certificate;
5. only permitted requests of nodes, and those that a user approved, are approved;
6. no request is deleted early: a pending or approved request lives a day, a denied, failed or issued one an hour, or
   until its certificate expires.
After recovery:
7. each approved request of a signer with files has a certificate, or has failed if it breaks a rule;
8. each permitted request of a node is approved;
9. requests that were finished or pending a day ago are deleted soon after a manager starts.
"""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509
from msgspec.structs import replace

from apiserver_stub.watch_cache.row import Change
from controller_manager.common.api.certificates import (
    API_CLIENT,
    APPROVED,
    DENIED,
    FAILED,
    NODE_SERVING,
    REQUESTS,
    CertificateSigningRequest,
    RequestCondition,
)
from controller_manager.common.api.errors import ApiError
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.rbac import CLUSTER_ROLE_BINDINGS, RoleBinding, RoleRef, Subject
from controller_manager.common.api.rbac import GROUP as RBAC
from controller_manager.common.api.resource import Key
from controller_manager.common.api.timestamps import parse_time
from controller_manager.common.api.wire import Certificate
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.random import random_source
from controller_manager.framework import TransportError
from controller_manager.testing import Cluster, Replica
from controller_manager.testing.certificates import (
    SERVER_USAGES,
    authority,
    hosts,
    request_pem,
    signing_request,
    write_authority,
)
from controllers import certificate_approving, certificate_cleaning, certificate_signing

T = TypeVar("T")

SPECS = (*certificate_approving.SPECS, *certificate_cleaning.SPECS, *certificate_signing.SPECS)
MAXIMUM = timedelta(hours=3)
OPEN, DONE = timedelta(days=1), timedelta(hours=1)
STEPS = 9
NODE = Certificate("system:node:n1", ("system:nodes",))

# Certificate requests, and whether their signer may sign them.
KINDS: dict[str, tuple[CertificateSigningRequest, bool]] = {
    "node": (signing_request(""), True),
    "node-weak": (signing_request("", usages=("client auth",)), False),
    "node-names": (signing_request("", request_pem(names=hosts("n1"))), False),
    "serving": (signing_request("", request_pem(names=hosts("n1")), signer=NODE_SERVING, usages=SERVER_USAGES), True),
    "serving-nameless": (signing_request("", signer=NODE_SERVING, usages=SERVER_USAGES), False),
    "client": (signing_request("", request_pem("jane", ["dev"]), signer=API_CLIENT), True),
    "client-serves": (signing_request("", signer=API_CLIENT, usages=SERVER_USAGES), False),
    "foreign": (signing_request("", signer="example.org/mine"), False),
}


class CertificateChecker:
    """Checks each row that the API server stores against the invariants."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        # The expiry of each authority by its name.
        self.ends: dict[str, datetime] = {}
        self.certificates: dict[str, bytes] = {}
        self.decided_by_users: set[str] = set()

    def note(self, changes: Sequence[Change]) -> None:
        """Check the rows that were just written."""
        for change in changes:
            if change.row.resource == REQUESTS.name:
                request = CertificateSigningRequest.decode(change.row.data)
                if change.deleted:
                    if not is_over(request):
                        self.violations.append(f"deleted too early: {request.metadata.name}")
                    continue
                self.violations += [f"{problem}: {request.metadata.name}" for problem in self._problems(request)]

    def _problems(self, request: CertificateSigningRequest) -> Iterator[str]:
        certificate, name = request.status.certificate, request.metadata.name
        if request.condition(APPROVED) and name not in self.decided_by_users and not name.startswith("node."):
            yield "approved without permission"
        if self.certificates.setdefault(name, certificate or b"") not in (b"", certificate):
            yield "a certificate changed"
        if not certificate:
            return
        if not request.condition(APPROVED) or request.condition(DENIED) or request.condition(FAILED):
            yield "signed without approval"
        if not may_have(request):
            yield "signed against the rules"
        if not self.certificates[name]:
            self.certificates[name] = certificate
            found = x509.load_pem_x509_certificate(certificate)
            end = found.not_valid_after_utc
            if end > self.ends[found.issuer.rfc4514_string()]:
                yield "beyond its authority"
            if end - utc_now() > MAXIMUM:
                yield "beyond the maximum"


def is_over(request: CertificateSigningRequest) -> bool:
    """Return whether a request may be deleted."""
    status, now = request.status, utc_now()

    def since(moment: str | None) -> timedelta:
        return now - parse_time(moment or "")

    if not status.conditions:
        return since(request.metadata.creation_timestamp) >= OPEN
    if status.certificate and x509.load_pem_x509_certificate(status.certificate).not_valid_after_utc <= now:
        return True
    ages = {one.type: since(one.last_update_time) for one in status.conditions}
    if any(ages.get(kind, timedelta()) >= DONE for kind in (DENIED, FAILED)):
        return True
    return ages.get(APPROVED, timedelta()) >= (DONE if status.certificate else OPEN)


def may_have(request: CertificateSigningRequest) -> bool:
    return KINDS[request.metadata.name.partition(".")[0]][1]


class World:
    """A cluster with two active managers, users and a node, and random faults."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.node = cluster.connect(NODE)
        self.checker = CertificateChecker()
        self.names: list[str] = []
        self.replicas: list[Replica] = []

    async def begin(self) -> None:
        renewal = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
        role = RoleRef(api_group=RBAC, kind="ClusterRole", name=renewal)
        nodes = Subject(kind="Group", api_group=RBAC, name="system:nodes")
        binding = RoleBinding(metadata=ObjectMeta(name="renewal"), role_ref=role, subjects=(nodes,))
        await self.cluster.client.create(CLUSTER_ROLE_BINDINGS, binding)
        self.cluster.api.store.subscribe(self.checker.note)
        self.files = self.renew()
        self.replicas = [await self.manage(), await self.manage()]

    async def manage(self) -> Replica:
        flags = (*self.files, "--leader-elect=false", f"--cluster-signing-duration={MAXIMUM.total_seconds():g}s")
        return await self.cluster.manage(*flags, specs=SPECS, faults=0.2)

    def renew(self) -> tuple[str, str]:
        """Replace the authority by one that expires soon or late."""
        end = (utc_now() + timedelta(seconds=draw(120, 40_000))).replace(microsecond=0)
        number = len(self.checker.ends)
        self.checker.ends[f"CN=ca-{number}"] = end
        return write_authority(self.folder, authority(number=number % 3, end=end, name=f"ca-{number}"))

    async def ask(self) -> None:
        kind = pick(list(KINDS))
        name = f"{kind}.{len(self.names)}"
        self.names.append(name)
        wanted = KINDS[kind][0]
        seconds = pick([None, None, 600, 4000, 400_000])
        spec = replace(wanted.spec, expiration_seconds=seconds)
        asked = replace(wanted, metadata=replace(wanted.metadata, name=name), spec=spec)
        await self.node.create(REQUESTS, asked)

    async def decide(self) -> None:
        name = pick(self.names or ["none"])
        self.checker.decided_by_users.add(name)
        request = await self.cluster.client.get(REQUESTS, Key("", name))
        verdict = RequestCondition(type=pick([APPROVED, APPROVED, APPROVED, DENIED]), status="True", reason="Person")
        conditions = (*request.status.conditions, verdict)
        judged = replace(request, status=replace(request.status, conditions=conditions))
        await self.cluster.client.update(REQUESTS, judged, subresource="approval")

    async def break_files(self) -> None:
        """Leave a half-written signing file."""
        (self.folder / pick(["ca.crt", "ca.key"])).write_bytes(b"-----BEGIN")
        await self.cluster.sleep(draw(0, 30))
        self.renew()

    async def lose(self) -> None:
        index = int(draw(0, 2))
        await self.replicas[index].kill()
        self.replicas[index] = await self.manage()

    async def outage(self) -> None:
        await self.cluster.kill_api()
        await self.cluster.sleep(draw(0, 20))
        await self.cluster.start_api()
        self.cluster.api.store.subscribe(self.checker.note)

    async def heal(self) -> None:
        for replica in self.replicas:
            replica.network.heal()
            replica.network.rate = 0
        self.renew()
        await self.cluster.advance(400)


def draw(low: float, high: float) -> float:
    return random_source().uniform(low, high)


def pick(choices: Sequence[T]) -> T:
    return choices[int(draw(0, len(choices))) % len(choices)]


@pytest.mark.virtual(seeds=200)
async def test_certificates_meet_invariants_despite_faults(tmp_path: Path) -> None:
    async with Cluster() as cluster:
        world = World(cluster, tmp_path)
        await world.begin()
        people = [world.ask, world.ask, world.ask, world.decide, world.decide, world.decide]
        failures = [world.break_files, world.lose, world.outage]
        for step in range(STEPS):
            with contextlib.suppress(ApiError, TransportError):
                await pick([*people, *failures] if step % 3 == 0 else people)()
            await cluster.sleep(draw(0, 20))
        await world.heal()
        assert world.checker.violations == []
        for request in (await cluster.client.list(REQUESTS)).items:
            assert is_done(request), request
        for hours in (0.9, 0.2, 2.0):
            await cluster.sleep(hours * 3600)
        assert world.checker.violations == []
        for replica in world.replicas:
            await replica.stop()
        await cluster.sleep(25 * 3600)
        await world.manage()
        await cluster.advance(300)
        assert (await cluster.client.list(REQUESTS)).items == []
        assert world.checker.violations == []


def is_done(request: CertificateSigningRequest) -> bool:
    """Return whether a request needs no further work."""
    if request.metadata.name.startswith("node.") and not request.condition(DENIED):
        return bool(request.status.certificate)
    if not request.condition(APPROVED) or request.metadata.name.startswith("foreign."):
        return not request.status.certificate and request.condition(FAILED) is None
    if may_have(request):
        return bool(request.status.certificate)
    return request.condition(FAILED) is not None
