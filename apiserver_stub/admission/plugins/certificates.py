"""Checks of CertificateSigningRequests: they record their author, and only users with permission for the signer may
approve and sign them. The same holds for PodCertificateRequests, and for writers of ClusterTrustBundles.
"""

from binascii import a2b_base64
from typing import NamedTuple

from cryptography.x509.oid import NameOID

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.admission.plugins.owner_references import changes_only_owners
from apiserver_stub.common.flags.features import POD_CERTIFICATES, TRUST_BUNDLES, ServerFeatureOptions
from apiserver_stub.kinds.strategies.certificate_requests import REQUESTS, dated, read
from apiserver_stub.kinds.values.trees import get_in, put_in
from controller_manager.common.api.certificates import API_CLIENT
from controller_manager.common.api.errors import Cause, invalid
from controller_manager.common.api.platform import ADMIN_GROUP, GROUP_DOMAIN
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.api.tree import Tree
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.log.formats import quote
from controller_manager.common.serving import authorization
from controller_manager.common.serving.authentication import User
from controller_manager.common.serving.authorization import Authorizer, Decision

POD_REQUESTS = f"podcertificaterequests.certificates.{GROUP_DOMAIN}"
_BUNDLES = f"clustertrustbundles.certificates.{GROUP_DOMAIN}"
_SIGNER = ("spec", "signerName")


class Signers:
    """Checks permissions for a signer, by its name or for its whole domain."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def allow(self, user: User, verb: str, signer: str) -> bool:
        """Return whether a user may `approve`, `sign` or `attest` for a signer."""
        domain = signer.partition("/")[0]
        return await self._allows(user, verb, signer) or await self._allows(user, verb, f"{domain}/*")

    async def _allows(self, user: User, verb: str, signer: str) -> bool:
        asked = authorization.AuthorizerAttributes(
            user, verb, "", f"certificates.{GROUP_DOMAIN}", "v1", "signers", name=signer
        )
        return (await self._authorizer.authorize(asked)).decision is Decision.ALLOW


class CertificateRequests:
    """Rules of requests for certificates."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._signers = Signers(authorizer)

    async def name_sender(self, attributes: Attributes) -> None:
        """Set the user fields of a new request to those of the caller."""
        user, spec = attributes.user, dict(attributes.tree.get("spec") or {})
        for name, value in (
            ("username", user.name),
            ("uid", user.uid),
            ("groups", list(user.groups)),
            ("extra", {key: list(values) for key, values in user.extra.items()}),
        ):
            put_in(spec, (name,), value or None)
        attributes.tree["spec"] = spec

    async def check_verdict(self, attributes: Attributes) -> None:
        """Hold approvers and signers to their signers. Raises `Forbidden`."""
        old, approves = attributes.old_object, attributes.subresource == "approval"
        if not approves and not _signs(attributes.tree, old):
            return
        signer = get_in(old, ("spec", "signerName")) or ""
        verb = "approve" if approves else "sign"
        if not await self._signers.allow(attributes.user, verb, signer):
            raise attributes.refused(f'user not permitted to {verb} requests with signerName "{signer}"')

    async def date_verdict(self, attributes: Attributes) -> None:
        """Set missing timestamps of conditions; no field manager owns them."""
        conditions = get_in(attributes.object, ("status", "conditions"))
        if conditions:
            known = get_in(attributes.old_object, ("status", "conditions")) or []
            put_in(attributes.tree, ("status", "conditions"), dated(conditions, known, format_time(utc_now())))


def pod_certificate_requests(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the check of PodCertificateRequests: only their signers may write the status.

    It is part of the kind, so a violation returns 422.
    """
    signers = Signers(parts.authorizer)

    async def check(attributes: Attributes) -> None:
        old, signer = attributes.old_object, get_in(attributes.old_object, _SIGNER) or ""
        if attributes.tree.get("status") == (old or {}).get("status"):
            return
        if not await signers.allow(attributes.user, "sign", signer):
            why = f'Forbidden: User {quote(attributes.user.name)} is not permitted to "sign" for signer {quote(signer)}'
            cause = Cause(reason="FieldValueForbidden", message=why, field="spec.signerName")
            raise invalid(attributes.kind.group, attributes.kind.kind, attributes.name, [cause])

    rules = (Rule(check, ("update",), (POD_REQUESTS,), ("status",)),)
    return AdmissionPlugin(
        "", validating=rules if parts.options[ServerFeatureOptions].enabled(POD_CERTIFICATES) else ()
    )


def cluster_trust_bundle_attest(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin ClusterTrustBundleAttest."""
    signers = Signers(parts.authorizer)

    async def check(attributes: Attributes) -> None:
        new, old = attributes.tree, attributes.old_object
        signer = get_in(new, _SIGNER) or ""
        if not signer or (old is not None and changes_only_owners(new, old)):
            return
        if not await signers.allow(attributes.user, "attest", signer):
            raise attributes.refused(f"user not permitted to attest for signerName {quote(signer)}")

    rules = (Rule(check, ("create", "update"), (_BUNDLES,)),)
    enabled = parts.options[ServerFeatureOptions].enabled(TRUST_BUNDLES)
    return AdmissionPlugin("ClusterTrustBundleAttest", validating=rules if enabled else ())


def certificate_requests(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin of the kind: it sets users and times."""
    requests = CertificateRequests(parts.authorizer)
    return AdmissionPlugin(
        "",
        mutating=(Rule(requests.name_sender, ("create",), (REQUESTS,)),),
        allocation=(Rule(requests.date_verdict, ("update",), (REQUESTS,), ("approval", "status")),),
    )


def certificate_approval(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin CertificateApproval."""
    check = CertificateRequests(parts.authorizer).check_verdict
    return AdmissionPlugin("CertificateApproval", validating=(Rule(check, ("update",), (REQUESTS,), ("approval",)),))


def certificate_signing(parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin CertificateSigning."""
    check = CertificateRequests(parts.authorizer).check_verdict
    return AdmissionPlugin("CertificateSigning", validating=(Rule(check, ("update",), (REQUESTS,), ("status",)),))


def certificate_subject_restriction(_parts: AdmissionParts) -> AdmissionPlugin:
    """Return the plugin CertificateSubjectRestriction."""
    rule = Rule(check_subject, ("create",), (REQUESTS,))
    return AdmissionPlugin("CertificateSubjectRestriction", validating=(rule,))


async def check_subject(attributes: Attributes) -> None:
    """Reject a certificate request for the group `system:masters`. Raises `Forbidden`.

    A validating plugin sees only valid requests, so the request can be decoded.
    """
    spec = attributes.tree.get("spec") or {}
    if spec.get("signerName") == API_CLIENT and ADMIN_GROUP in subject_of(spec).organizations:
        raise attributes.refused(f"use of {API_CLIENT} signer with {ADMIN_GROUP} group is not allowed")


class Subject(NamedTuple):
    """The user and groups in the subject of a certificate."""

    common_name: str
    organizations: frozenset[str]


def subject_of(spec: Tree) -> Subject:
    """Return the subject of a request (PEM in base64); of several common names the last."""
    found = read(a2b_base64(spec.get("request") or "")).subject.get_attributes_for_oid
    names, organizations = found(NameOID.COMMON_NAME), found(NameOID.ORGANIZATION_NAME)
    return Subject(str(names[-1].value) if names else "", frozenset(str(one.value) for one in organizations))


def _signs(new: Tree, old: Tree | None) -> bool:
    return any(get_in(new, path) != get_in(old, path) for path in (("status", "certificate"), ("status", "conditions")))
