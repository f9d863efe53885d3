"""Signs approved certificate requests with the CA of each signer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from msgspec.structs import replace
from pydantic import model_validator

from controller_manager.common.api.certificates import (
    API_CLIENT,
    APPROVED,
    DENIED,
    FAILED,
    GROUP,
    LEGACY_UNKNOWN,
    NODE_CLIENT,
    NODE_SERVING,
    REQUESTS,
    CertificateSigningRequest,
    RequestCondition,
)
from controller_manager.common.api.timestamps import format_time
from controller_manager.common.base.clock import utc_now
from controller_manager.common.base.log import Logger, get_logger
from controller_manager.framework import (
    ConfigError,
    Context,
    ControllerSpec,
    Duration,
    For,
    Key,
    Options,
    PolicyRule,
    Requeue,
    flag,
)

from ..shared.certificate_requests import CHECKS, UnusableRequest, asked_for, read_request
from .validity import validity

if TYPE_CHECKING:  # --help does without the library that signs
    from .authority import RenewableAuthority

_WORKERS = 5
# Seconds until a retry with an expired CA, which may be renewed meanwhile.
_RENEWED = 60.0

_GENERAL = "cluster-signing"
# The prefix of the flags of each signer.
_FLAGS = {
    API_CLIENT: "cluster-signing-apiserver-client",
    NODE_CLIENT: "cluster-signing-node-agent-client",
    NODE_SERVING: "cluster-signing-node-agent-serving",
    LEGACY_UNKNOWN: "cluster-signing-legacy-unknown",
}


def _certificate(signed: str, alias: str = "") -> Any:
    aliases = (f"{alias}-cert-file",) if alias else ()
    return flag(
        "", f"file of the authority that signs {signed}; read again when it changes", aliases=aliases, metavar="file"
    )


def _key(signed: str, alias: str = "") -> Any:
    aliases = (f"{alias}-key-file",) if alias else ()
    return flag(
        "", f"file of the private key (RSA, ECDSA, Ed25519) that signs {signed}", aliases=aliases, metavar="file"
    )


_EVERYTHING = "all certificates, in place of one for each signer"
_API_CLIENTS = "client certificates for the API server"
_NODE_CLIENTS = "client certificates of nodes"
_NODE_SERVERS = "serving certificates of nodes"
_LEGACY = "certificates whose signer is unknown"


class SigningOptions(Options):
    """Flags of the signing CAs. A signer without a CA signs nothing."""

    title: ClassVar[str] = "Certificate signing controller"

    cluster_signing_cert_file: str = _certificate(_EVERYTHING)
    cluster_signing_key_file: str = _key(_EVERYTHING)
    cluster_signing_apiserver_client_cert_file: str = _certificate(
        _API_CLIENTS, "cluster-signing-kube-apiserver-client"
    )
    cluster_signing_apiserver_client_key_file: str = _key(_API_CLIENTS, "cluster-signing-kube-apiserver-client")
    cluster_signing_node_agent_client_cert_file: str = _certificate(_NODE_CLIENTS, "cluster-signing-kubelet-client")
    cluster_signing_node_agent_client_key_file: str = _key(_NODE_CLIENTS, "cluster-signing-kubelet-client")
    cluster_signing_node_agent_serving_cert_file: str = _certificate(_NODE_SERVERS, "cluster-signing-kubelet-serving")
    cluster_signing_node_agent_serving_key_file: str = _key(_NODE_SERVERS, "cluster-signing-kubelet-serving")
    cluster_signing_legacy_unknown_cert_file: str = _certificate(_LEGACY)
    cluster_signing_legacy_unknown_key_file: str = _key(_LEGACY)
    cluster_signing_duration: Duration = flag(
        "8760h", "how long a certificate lasts at most; a request may ask for less", minimum=1
    )

    def files(self, prefix: str) -> tuple[str, str]:
        """Return the certificate and key files of a flag prefix; empty if not set."""
        field = prefix.replace("-", "_")
        return getattr(self, f"{field}_cert_file"), getattr(self, f"{field}_key_file")

    @model_validator(mode="after")
    def _one_authority_or_several(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Certificate and key flags must be set together. The general CA excludes those of single signers."""
        for prefix in (_GENERAL, *_FLAGS.values()):
            if len(set(map(bool, self.files(prefix)))) > 1:
                yield f"--{prefix}-cert-file and --{prefix}-key-file must be given together"
        if any(self.files(_GENERAL)):
            single = [prefix for prefix in _FLAGS.values() if any(self.files(prefix))]
            yield from (f"{self._first(prefix)} cannot be given with {self._first(_GENERAL)}" for prefix in single)

    def _first(self, prefix: str) -> str:
        """Return the flag of the pair that was set."""
        return f"--{prefix}-cert-file" if self.files(prefix)[0] else f"--{prefix}-key-file"


# Observed: the request, its conditions, the two files of its signer.
# Decided, in this order:                                     Done:
#   other signer, not approved, denied, failed, or issued     nothing
#   signer without files                                      nothing; logged once at startup
#   unreadable, bad signature, weak key, or rejected by a     condition Failed with the reason
#     rule of the signer
#   CA expired                                                retry in a minute; logged once
#   otherwise                                                 write the certificate


class CertificateSigner:
    """Reconciles certificate requests."""

    def __init__(self, context: Context, options: SigningOptions) -> None:
        self._client = context.client
        self._requests = context.informers.get(REQUESTS)
        self._maximum = timedelta(seconds=options.cluster_signing_duration)
        self._authorities = authorities(options, context.log)
        if idle := [name for name in _FLAGS if name not in self._authorities]:
            context.log.info("signers without files sign nothing", signers=idle)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Sign request `key`, or mark it as failed."""
        request = self._requests.get(key)
        if request is None or not is_waiting(request):
            return None
        authority = self._authorities.get(request.spec.signer_name)
        if authority is None:
            return None
        try:
            certificate = self._sign(request, authority)
        except UnusableRequest as error:
            await self._fail(request, str(error))
            return None
        if certificate is None:
            authority.report("it is expired")
            return Requeue(_RENEWED)
        await self._write(replace(request, status=replace(request.status, certificate=certificate)))
        return None

    def _sign(self, request: CertificateSigningRequest, source: RenewableAuthority) -> bytes | None:
        """Return the certificate, or None if the CA has expired. Raises UnusableRequest.

        Signing takes one or two milliseconds with the largest usual keys, less than the overhead of a thread.
        """
        spec, authority = request.spec, source.current()
        asked = read_request(spec.request)
        if problem := CHECKS[spec.signer_name](asked_for(asked), spec.usages):
            raise UnusableRequest(problem)
        period = validity(utc_now(), spec.expiration_seconds, self._maximum, authority.end)
        return authority.issue(asked, spec.usages, period) if period is not None else None

    async def _fail(self, request: CertificateSigningRequest, reason: str) -> None:
        now = format_time(utc_now())
        failed = RequestCondition(
            type=FAILED,
            status="True",
            reason="SignerValidationFailure",
            message=reason,
            last_update_time=now,
            last_transition_time=now,
        )
        conditions = (*request.status.conditions, failed)
        await self._write(replace(request, status=replace(request.status, conditions=conditions)))

    async def _write(self, request: CertificateSigningRequest) -> None:
        await self._client.update(REQUESTS, request, subresource="status")


def is_waiting(request: CertificateSigningRequest) -> bool:
    """Return whether a request is approved and not processed yet."""
    over = any(request.condition(kind) for kind in (DENIED, FAILED))
    return request.condition(APPROVED) is not None and not over and not request.status.certificate


def check_files(options: SigningOptions) -> None:
    """Raise ConfigError with the flags whose files are invalid."""
    authorities(options, get_logger("certificates"))


def authorities(options: SigningOptions, log: Logger) -> dict[str, RenewableAuthority]:
    """Return the CA of each signer with files. Raises ConfigError with the flags whose files are invalid."""
    from controller_manager.common.serving.certificates import FilePair

    from .authority import RenewableAuthority

    made: dict[str, RenewableAuthority] = {}
    for prefix in (_GENERAL, *_FLAGS.values()):
        certificate, key = options.files(prefix)
        if not certificate:
            continue
        source = FilePair(Path(certificate), Path(key), f"--{prefix}-cert-file and --{prefix}-key-file")
        try:
            made[prefix] = RenewableAuthority(source, log)
        except OSError as error:
            raise ConfigError(f"{source.name}: {error.filename}: {error.strerror}") from error
        except ValueError as error:
            raise ConfigError(f"{source.name}: {error}") from error
    owners = {name: _GENERAL if _GENERAL in made else prefix for name, prefix in _FLAGS.items()}
    return {name: made[prefix] for name, prefix in owners.items() if prefix in made}


SPECS = (
    ControllerSpec(
        name="certificatesigningrequest-signing-controller",
        queue="certificate",
        aliases=("csrsigning",),
        service_account="certificate-controller",
        reconciler=CertificateSigner,
        options=SigningOptions,
        check=check_files,
        workers=lambda _: _WORKERS,
        watches=(For(REQUESTS),),
        rbac=(
            PolicyRule(groups=(GROUP,), resources=("certificatesigningrequests",), verbs=("get", "list", "watch")),
            PolicyRule(groups=(GROUP,), resources=("certificatesigningrequests/status",), verbs=("update",)),
            PolicyRule(groups=(GROUP,), resources=("signers",), verbs=("sign",), names=tuple(_FLAGS)),
        ),
    ),
)
