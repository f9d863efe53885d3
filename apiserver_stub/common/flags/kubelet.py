"""Flags of connections to kubelets."""

from typing import ClassVar, Self

from pydantic import model_validator

from controller_manager.common.options.flag import Options, flag
from controller_manager.common.options.types import Duration, StringList


class KubeletOptions(Options):
    """Connections to kubelets, for logs, commands, forwarded ports and proxies."""

    title: ClassVar[str] = "Kubelets"

    kubelet_client_certificate: str = flag(
        "", "File with the client certificate for kubelets; reloaded when it changes."
    )
    kubelet_client_key: str = flag("", "File with the key of --kubelet-client-certificate.")
    kubelet_certificate_authority: str = flag(
        "",
        "File with the certificate authorities of kubelets; reloaded when it changes. Without it certificates are"
        " not verified.",
    )
    kubelet_preferred_address_types: StringList = flag(
        ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"),
        "Types of node addresses to use for connections to kubelets, in order of preference.",
    )
    kubelet_timeout: Duration = flag("5s", "Timeout for connecting to a kubelet.", minimum=0.001)
    kubelet_port: int = flag(
        10250, "Deprecated: port of kubelets whose nodes do not report one.", minimum=1, maximum=65535
    )
    kubelet_read_only_port: int = flag(
        10255, "Deprecated.", minimum=0, maximum=65535, inert="no kubelet is asked by it"
    )

    @model_validator(mode="after")
    def _come_together(self) -> Self:
        if bool(self.kubelet_client_certificate) != bool(self.kubelet_client_key):
            raise ValueError("--kubelet-client-certificate and --kubelet-client-key must be given together")
        return self
