"""A request for a certificate says who made it, and is judged and signed by those who may for its signer."""

from binascii import a2b_base64
from collections.abc import Callable

from apiserver_stub.admission.chain import AdmissionRequest
from apiserver_stub.call import Tree, User
from apiserver_stub.kinds.certificate_request import REQUESTS, dated
from apiserver_stub.kinds.trees import get_in, put_in
from controller_manager.api.certificates import API_CLIENT
from controller_manager.api.errors import forbidden
from controller_manager.api.platform import ADMIN_GROUP
from controller_manager.api.timestamps import format_time
from controller_manager.base.clock import utc_now

# Whether a user may do something (approve, sign) for the signer of that name.
Allows = Callable[[User, str, str], bool]


class CertificateRequests:
    """Steps of admission: `sender` among the first, `verdict` among the last."""

    def __init__(self, allows: Allows) -> None:
        self._allows = allows

    def sender(self, request: AdmissionRequest) -> None:
        """Write down who asks, whatever the request itself says."""
        if request.kind.storage != REQUESTS or request.operation != "create":
            return
        user, spec = request.user, dict(request.tree.get("spec") or {})
        for name, value in (
            ("username", user.name),
            ("uid", user.uid),
            ("groups", list(user.groups)),
            ("extra", {key: list(values) for key, values in user.extra.items()}),
        ):
            put_in(spec, (name,), value or None)
        request.tree["spec"] = spec

    def verdict(self, request: AdmissionRequest) -> None:
        """Hold approvers and signers to their signers, and date what they say. Raises `Forbidden`."""
        old, part = request.old, request.subresource
        if request.kind.storage != REQUESTS or old is None or part not in ("approval", "status"):
            return
        signer = get_in(old, ("spec", "signerName")) or ""
        verb = "approve" if part == "approval" else "sign"
        decides = part == "approval" or _signs(request.tree, old)
        if decides and not self._may(request.user, verb, signer):
            kind, why = request.kind, f"user not permitted to {verb} requests with signerName {signer!r}"
            raise forbidden(kind.group, kind.plural, request.name, why)
        conditions = get_in(request.tree, ("status", "conditions"))
        if conditions:
            known = get_in(old, ("status", "conditions")) or []
            put_in(request.tree, ("status", "conditions"), dated(conditions, known, format_time(utc_now())))

    def _may(self, user: User, verb: str, signer: str) -> bool:
        domain = signer.partition("/")[0]
        return self._allows(user, verb, signer) or self._allows(user, verb, f"{domain}/*")


def refuse_admins(request: AdmissionRequest) -> None:
    """Let nobody ask for a client certificate of those who may do everything. Raises `Forbidden`."""
    spec = request.tree.get("spec") or {}
    if request.kind.storage != REQUESTS or request.operation != "create" or spec.get("signerName") != API_CLIENT:
        return
    if ADMIN_GROUP in _organizations(spec.get("request") or ""):
        kind, why = request.kind, f"the signer {API_CLIENT} certifies no members of {ADMIN_GROUP}"
        raise forbidden(kind.group, kind.plural, request.name, why)


def _organizations(text: str) -> list[str | bytes]:
    """The organizations a request (PEM in base64) is for; none if it cannot be read, since nobody signs it then."""
    from cryptography import x509  # few servers see such a request
    from cryptography.x509.oid import NameOID

    try:
        subject = x509.load_pem_x509_csr(a2b_base64(text)).subject
    except (ValueError, x509.InvalidVersion):
        return []
    return [one.value for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def _signs(new: Tree, old: Tree) -> bool:
    return any(get_in(new, path) != get_in(old, path) for path in (("status", "certificate"), ("status", "conditions")))
