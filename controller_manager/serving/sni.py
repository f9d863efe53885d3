"""The choice among several certificates by the name or address that a client asked for (RFC 6066); pure."""

import ipaddress
import re
from collections.abc import Mapping, Sequence

from cryptography import x509
from cryptography.x509.oid import NameOID

_DOMAIN = re.compile(r"\*|(\*\.)?([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)*[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DOMAIN_LENGTH = 253


def name_table(wanted: Sequence[Sequence[str]], shown: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return the certificate, by number, of each name.

    `wanted` are the patterns given for each certificate and `shown` its own names, which count where it was given
    none. A pattern beats a name of a certificate, and an earlier certificate a later one.
    """
    table: dict[str, int] = {}
    for patterns in (wanted, [() if given else names for given, names in zip(wanted, shown, strict=True)]):
        for number, names in enumerate(patterns):
            for name in names:
                table.setdefault(_canonical(name), number)
    return table


def by_name(table: Mapping[str, int], server_name: str) -> int | None:
    """Return the certificate for a server name: a name itself beats a wildcard, the longer one first."""
    name = _canonical(server_name)
    if name in table:
        return table[name]
    labels = name.split(".")
    for place in range(len(labels)):
        labels[place] = "*"
        if (found := table.get(".".join(labels))) is not None:
            return found
    return None


def by_address(table: Mapping[str, int], address: str) -> int | None:
    """Return the certificate for the address a client that named no server has connected to."""
    return table.get(_canonical(address))


def names_of(certificate: bytes) -> list[str]:
    """Return the domains of the first certificate of a chain (PEM). Its addresses do not count: no
    client may send one as a server name. Raises ValueError.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate)
        alternative = _alternative_names(found)
    except (x509.DuplicateExtension, x509.InvalidVersion) as error:
        raise ValueError(f"not a valid certificate: {error}") from error
    common = [str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)][-1:]
    names = [name for name in common if not _is_address(name) and _is_domain(name)]
    return names + alternative


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def _canonical(name: str) -> str:
    """Lower case without a last dot; an address in its one form, IPv4 within IPv6 as IPv4."""
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name.lower().removesuffix(".")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_domain(name: str) -> bool:
    return len(name) <= _DOMAIN_LENGTH and _DOMAIN.fullmatch(name) is not None
