"""Publishes the CAs of the API server as a ClusterTrustBundle of its signer (KEP-3257)."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from controller_manager.common.api.certificates import GROUP, TRUST_BUNDLES, ClusterTrustBundle, ClusterTrustBundleSpec
from controller_manager.common.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from controller_manager.common.api.model import ObjectMeta
from controller_manager.common.api.platform import PLATFORM_DOMAIN
from controller_manager.common.base.clock import monotonic, sleep_for_housekeeping
from controller_manager.common.base.metrics import Counters, Family, Histograms
from controller_manager.framework import Add, Context, ControllerSpec, Informer, Key, PolicyRule, Requeue, Resource

from .root_ca_publisher import check
from .shared.service_accounts import CHECK_PERIOD, RootCAs, ServiceAccountOptions

GATE = "ClusterTrustBundle"
SIGNER = f"{PLATFORM_DOMAIN}/kube-apiserver-serving"
ASK_EVERY = 60.0
"""Seconds until discovery is repeated if the server does not serve trust bundles."""
_VERSIONS = (TRUST_BUNDLES, replace(TRUST_BUNDLES, version="v1alpha1"))
_KEY = Key("", SIGNER)
_SYNCS = Family(
    "clustertrustbundle_publisher_sync_total",
    "Looks at the trust bundles of the signer, by the HTTP status of the outcome.",
    "counter",
    ("code",),
)
_DURATION = Family(
    "clustertrustbundle_publisher_sync_duration_seconds",
    "How long a look at the trust bundles of the signer took, by the HTTP status of the outcome.",
    "histogram",
    ("code",),
    tuple(0.001 * 2**step for step in range(15)),
)


# Observed: the CAs, and the trust bundles of the signer in the best served version.
# Decided:                                       Done:
#   no CAs are known                             nothing
#   bundle for their hash missing or different   create or update it
#   other bundles of the signer                  delete them, once the right one exists


class Decision(NamedTuple):
    """The bundle to write, if any, and the names of those to delete."""

    write: ClusterTrustBundle | None
    delete: tuple[str, ...]


class TrustBundlePublisher:
    """Reconciles the trust bundles of the signer."""

    def __init__(self, context: Context, options: ServiceAccountOptions) -> None:
        self._context = context
        self._client = context.client
        self._authorities = RootCAs(options.root_ca_file, lambda: context.client.authorities, context.log)
        self._bundles: Informer[ClusterTrustBundle] | None = None
        self._add: Add
        self._resource = TRUST_BUNDLES
        self._syncs = Counters(_SYNCS, context.runtime.registry)
        self._duration = Histograms(_DURATION, context.runtime.registry)

    async def run(self, add: Add) -> None:
        """Enqueue the key now, and when the CAs change."""
        self._add = add
        add(_KEY, "the start")
        while True:
            await sleep_for_housekeeping(CHECK_PERIOD)
            if self._authorities.changed():
                add(_KEY, "the authorities changed")

    async def reconcile(self, _key: Key) -> Requeue | None:
        """Publish the CAs."""
        if self._bundles is None and not await self._follow():
            return Requeue(ASK_EVERY)
        began, code = monotonic(), "500"
        try:
            await self._publish()
            code = "200"
        except ApiError as error:
            code = str(error.code)
            raise
        finally:
            self._syncs.add(code)
            self._duration.observe(monotonic() - began, code)
        return None

    async def _follow(self) -> bool:
        """Watch the bundles of the signer in the best served version. Return whether there is one."""
        resource = await self._served()
        if resource is None:
            return False
        bundles = self._context.informers.get(resource, fields=f"spec.signerName={SIGNER}")
        await bundles.synced()
        bundles.subscribe(lambda _: self._add(_KEY, "a trust bundle changed"))
        self._resource, self._bundles = resource, bundles
        return True

    async def _publish(self) -> None:
        if self._bundles is None:
            return
        decision = decide(self._authorities.text, self._bundles.list())
        if (bundle := decision.write) is not None:
            write = self._client.update if bundle.metadata.uid else self._client.create
            try:
                await write(self._resource, bundle)
            except AlreadyExists as error:
                raise Conflict(str(error)) from None  # another client was faster; retry
        for name in decision.delete:
            with suppress(NotFound):
                await self._client.delete(self._resource, Key("", name))

    async def _served(self) -> Resource[ClusterTrustBundle] | None:
        for resource in _VERSIONS:
            with suppress(NotFound):
                await self._client.list(resource, limit=1)
                return resource
        return None


SPECS = (
    ControllerSpec(
        name="kube-apiserver-serving-clustertrustbundle-publisher-controller",
        queue="ca_cert_publisher_cluster_trust_bundles",
        service_account="kube-apiserver-serving-clustertrustbundle-publisher",
        gates=(GATE,),
        reconciler=TrustBundlePublisher,
        options=ServiceAccountOptions,
        check=check,
        watches=(),
        rbac=(
            PolicyRule(
                groups=(GROUP,),
                resources=("clustertrustbundles",),
                verbs=("list", "watch", "create", "update", "delete"),
            ),
            PolicyRule(groups=(GROUP,), resources=("signers",), verbs=("attest",), names=(SIGNER,)),
        ),
    ),
)


def name_of(authorities: str) -> str:
    """Return the bundle name of these CAs: the signer and a hash."""
    return f"{SIGNER.replace('/', ':')}:{hashlib.sha256(authorities.encode()).hexdigest()[:24]}"


def decide(authorities: str, bundles: Iterable[ClusterTrustBundle]) -> Decision:
    """Return the changes to the bundles of the signer."""
    if not authorities:
        return Decision(None, ())
    name, found = name_of(authorities), {bundle.metadata.name: bundle for bundle in bundles}
    current = found.get(name) or ClusterTrustBundle(metadata=ObjectMeta(name=name))
    right = current.spec.trust_bundle == authorities
    spec = ClusterTrustBundleSpec(signer_name=SIGNER, trust_bundle=authorities)
    write = None if right else msgspec.structs.replace(current, spec=spec)
    return Decision(write, tuple(_others(found, name)))


def _others(names: Iterable[str], name: str) -> Iterator[str]:
    return (other for other in sorted(names) if other != name)
