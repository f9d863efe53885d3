"""Names of cipher suites and what they come to."""

import pytest

from controller_manager.serving import suites, tls

AES, RC4 = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_RC4_128_SHA"


@pytest.mark.parametrize(
    ("names", "choice"),
    [
        ((AES,), suites.Choice("ECDHE-RSA-AES128-GCM-SHA256", (), ())),
        ((AES, "TLS_AES_128_GCM_SHA256", AES), suites.Choice("ECDHE-RSA-AES128-GCM-SHA256", (), ())),
        (("TLS_AES_128_GCM_SHA256",), suites.Choice("", (), ())),
        ((RC4,), suites.Choice("", (RC4,), (RC4,))),
        (
            ("TLS_RSA_WITH_AES_128_CBC_SHA", AES),
            suites.Choice("AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256", ("TLS_RSA_WITH_AES_128_CBC_SHA",), ()),
        ),
        (
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
            suites.Choice("ECDHE-RSA-CHACHA20-POLY1305", (), ()),
        ),
    ],
)
def test_choosing(names, choice):
    available = frozenset({*suites.SECURE.values(), *suites.INSECURE.values()} - {"RC4-SHA"})
    assert suites.choose(names, available) == choice


def test_openssl_has_what_it_is_asked_for():
    assert set(suites.SECURE.values()) <= tls.available_ciphers()
    chosen = suites.choose(suites.KNOWN, tls.available_ciphers())
    assert all("RC4" in name or "3DES" in name for name in chosen.missing)
    tls.context_of(tls.issue(tls.make_ca("ca"), "x"), policy=tls.Policy(ciphers=chosen.ciphers))
