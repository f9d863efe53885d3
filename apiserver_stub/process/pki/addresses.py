"""The addresses and names by which clients reach the server."""

import socket
from ipaddress import ip_address

from controller_manager.common.serving.listening import ALL_INTERFACES

_SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


def server_hosts(bind: str, advertised: str, cluster_ip: str) -> list[str]:
    """Return every name and address by which clients reach the server."""
    host = socket.gethostname()
    names = ["localhost", "127.0.0.1", "::1", *_SERVICE_NAMES, cluster_ip, advertised]
    names += [host] if host.isascii() else []
    names += [] if bind in ALL_INTERFACES else [bind]
    return list(dict.fromkeys(names))


def server_url(bind: str, port: int) -> str:
    """Return the URL for clients on this machine."""
    host = "127.0.0.1" if bind in ALL_INTERFACES else f"[{bind}]" if ":" in bind else bind
    return f"https://{host}:{port}"


def reachable_address(bind: str) -> str:
    """Return the address at which other machines reach this one: `bind` if it is specific, else the address of the
    default route.
    """
    if bind not in ALL_INTERFACES and not ip_address(bind).is_loopback:
        return bind
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; a documentation address (RFC 5737)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
