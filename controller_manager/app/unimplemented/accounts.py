"""Flags of the controllers that give out tokens, until there are such controllers."""

from controller_manager.app.unimplemented._needs import needs
from controller_manager.options import Duration, Int32, Options

_token = needs("serviceaccount-token-controller")
_cleaner = needs("legacy-serviceaccount-token-cleaner-controller")


class TokenOptions(Options):
    """Tokens of service accounts that are kept in secrets."""

    title = "Service account controllers"

    concurrent_serviceaccount_token_syncs: Int32 = _token(5, "token secrets worked on at the same time", minimum=1)
    service_account_private_key_file: str = _token(
        "", "file of the private key, RSA or ECDSA, that signs tokens kept in secrets", metavar="file"
    )
    legacy_service_account_token_clean_up_period: Duration = _cleaner(
        "8760h", "how long a token kept in a secret must be unused before it may be deleted", minimum=1
    )


GROUPS = (TokenOptions,)
