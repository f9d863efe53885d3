"""Private parts of the standard library that we use exist and behave as expected."""

import asyncio
import ssl

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from controller_manager.common.base.files import memory_file
from controller_manager.common.base.standard_library import awaited, verified_chain
from controller_manager.common.serving import tls


async def test_awaited_returns_the_future_of_a_task():
    future = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await future

    task = asyncio.create_task(wait())
    assert awaited(task) is None
    await asyncio.sleep(0)
    assert awaited(task) is future
    future.set_result(None)
    assert awaited(task) is future
    await task
    assert awaited(task) is None


def handshake(*, shows: bool) -> ssl.SSLObject:
    """Return the server side of a connection whose client sends a certificate or none."""
    ca = tls.make_ca("authority")
    server = tls.context_of(tls.issue(ca, "server", hosts=["localhost"]), ca.certificate)
    client = ssl.create_default_context(cadata=ca.certificate.decode())
    client.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if shows:
        pair = tls.issue(ca, "client", client=True)
        with memory_file(pair.certificate + pair.key) as file:
            client.load_cert_chain(file)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(there, back, server_side=True),
        client.wrap_bio(back, there, server_hostname="localhost"),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0]


def test_verified_chain_contains_certificate_and_authority():
    chain = verified_chain(handshake(shows=True))
    leaf, root = map(x509.load_der_x509_certificate, chain)
    assert [name.rfc4514_string() for name in (leaf.subject, leaf.issuer, root.subject)] == [
        *("CN=client", "CN=authority", "CN=authority"),
    ]
    assert chain[0] == leaf.public_bytes(Encoding.DER)


def test_verified_chain_is_empty_without_certificate():
    assert verified_chain(handshake(shows=False)) == []
