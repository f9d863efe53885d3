"""A request for a certificate says who made it, and is judged and signed by those who may for its signer."""

from binascii import a2b_base64
from typing import NamedTuple

from cryptography.x509.oid import NameOID

from apiserver_stub.admission.chain import AdmissionPlugin, Attributes, Rule
from apiserver_stub.admission.parts import AdmissionParts
from apiserver_stub.api_request import Tree
from apiserver_stub.kinds.certificate_request import REQUESTS, dated, read
from apiserver_stub.kinds.trees import get_in, put_in
from controller_manager.api.certificates import API_CLIENT
from controller_manager.api.platform import ADMIN_GROUP, GROUP_DOMAIN
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now
from controller_manager.serving import authorization
from controller_manager.serving.authentication import User
from controller_manager.serving.authorization import Authorizer, Decision


class CertificateRequests:
    """Rules of requests for certificates."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def name_sender(self, attributes: Attributes) -> None:
        """Write down who asks, whatever a new request itself says."""
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
        if not await self._is_allowed(attributes.user, verb, signer):
            raise attributes.refused(f'user not permitted to {verb} requests with signerName "{signer}"')

    async def date_verdict(self, attributes: Attributes) -> None:
        """Give conditions the times they lack, which are nobody's fields."""
        conditions = get_in(attributes.object, ("status", "conditions"))
        if conditions:
            known = get_in(attributes.old_object, ("status", "conditions")) or []
            put_in(attributes.tree, ("status", "conditions"), dated(conditions, known, format_time(utc_now())))

    async def _is_allowed(self, user: User, verb: str, signer: str) -> bool:
        domain = signer.partition("/")[0]
        return await self._allows(user, verb, signer) or await self._allows(user, verb, f"{domain}/*")

    async def _allows(self, user: User, verb: str, signer: str) -> bool:
        asked = authorization.Attributes(user, verb, "", f"certificates.{GROUP_DOMAIN}", "v1", "signers", name=signer)
        return (await self._authorizer.authorize(asked)).decision is Decision.ALLOW


def certificate_requests(parts: AdmissionParts) -> AdmissionPlugin:
    """Return what belongs to the kind: senders and times."""
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
    """Let nobody ask for the certificate of one who may do everything. Raises `Forbidden`.

    A validating plugin sees requests that keep all rules, and so can be read.
    """
    spec = attributes.tree.get("spec") or {}
    if spec.get("signerName") == API_CLIENT and ADMIN_GROUP in subject_of(spec).organizations:
        raise attributes.refused(f"use of {API_CLIENT} signer with {ADMIN_GROUP} group is not allowed")


class Subject(NamedTuple):
    """The user and the groups that a certificate would be of."""

    common_name: str
    organizations: frozenset[str]


def subject_of(spec: Tree) -> Subject:
    """Return the subject of a request (PEM in base64); of several common names the last."""
    found = read(a2b_base64(spec.get("request") or "")).subject.get_attributes_for_oid
    names, organizations = found(NameOID.COMMON_NAME), found(NameOID.ORGANIZATION_NAME)
    return Subject(str(names[-1].value) if names else "", frozenset(str(one.value) for one in organizations))


def _signs(new: Tree, old: Tree | None) -> bool:
    return any(get_in(new, path) != get_in(old, path) for path in (("status", "certificate"), ("status", "conditions")))
