"""Flags of authentication: how callers are recognized."""

from controller_manager.options import Options, flag


class AuthenticationOptions(Options):
    """Authentication of callers."""

    title = "Authentication"

    client_ca_file: str = flag(
        "",
        "File of certificate authorities whose client certificates are accepted beside the server's own; read again "
        "when it changes.",
    )
    token_auth_file: str = flag("", 'File of bearer tokens; lines of token,user,uid and optionally "group1,group2".')
