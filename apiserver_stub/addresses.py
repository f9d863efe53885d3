"""The addresses and names by which clients reach the server."""

import socket
from ipaddress import ip_address

_SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


def server_hosts(bind: str, advertised: str, cluster_ip: str) -> list[str]:
    """Every name and address by which clients reach the server."""
    host = socket.gethostname()
    names = ["localhost", "127.0.0.1", "::1", *_SERVICE_NAMES, cluster_ip, advertised]
    names += [host] if host.isascii() else []
    names += [] if ip_address(bind).is_unspecified else [bind]
    return list(dict.fromkeys(names))


def server_url(bind: str, port: int) -> str:
    """The URL for clients on this machine."""
    address = ip_address(bind)
    host = "127.0.0.1" if address.is_unspecified else f"[{bind}]" if address.version == 6 else bind
    return f"https://{host}:{port}"


def reachable_address(bind: str) -> str:
    """The address others reach this machine at: `bind` if it is one, otherwise that of the default route."""
    address = ip_address(bind)
    if not address.is_unspecified and not address.is_loopback:
        return bind
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; an address of documentation (RFC 5737)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
