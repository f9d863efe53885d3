"""The last look at a line: what has the form of a secret is not written, whoever said it."""

import re

MASKED = "<masked>"
_SIGNS = ("earer ", "asic ", "eyJ", "://", "PRIVATE KEY")
_SECRETS = re.compile(
    r"""
    (?P<scheme>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}                        # an Authorization header
    | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*                                    # a signed token, RFC 7519
    | (?P<url>://)[^\s/"'\\]+(?=@)                                         # a name and password in an address
    | (?P<key>-----BEGIN[ A-Z]*PRIVATE\ KEY-----).*?(?=-----END|\Z)        # a key, RFC 7468
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """The text with `<masked>` in place of tokens, passwords in addresses and private keys."""
    if not any(sign in text for sign in _SIGNS):
        return text
    return _SECRETS.sub(lambda found: f"{found['scheme'] or found['url'] or found['key'] or ''}{MASKED}", text)
