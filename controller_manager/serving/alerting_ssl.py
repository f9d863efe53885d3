"""The server's side of TLS, which tells a client why it is refused before the connection ends."""

import ssl

from controller_manager.base.log import get_logger

_PATIENCE = 3  # times a refused client may send more, each one read of bounded size, before its connection ends
# What OpenSSL calls refusals of clients that do speak TLS, and so read alerts; others are shown out at once.
_TOLD = frozenset({"CERTIFICATE_VERIFY_FAILED", "NO_SHARED_CIPHER", "UNSUPPORTED_PROTOCOL"})


class AlertingSSLObject(ssl.SSLObject):
    """Gets its alert out, RFC 8446, section 6.2.

    Event loops drop what is to be sent once a handshake has failed, so that clients know nothing but that a connection
    ended. Here it first seems to want to read more, upon which a loop sends what there is; the client reads the alert
    and leaves. One that does not is left by the loop, after some more bytes or when the time for a handshake is up.
    """

    _refusal: ssl.SSLError | None = None
    _patience = _PATIENCE

    def do_handshake(self) -> None:
        """See `ssl.SSLObject`."""
        if self._refusal is None:
            self._step()
            return
        self._patience -= 1
        if self._patience < 0:
            raise self._refusal
        raise ssl.SSLWantReadError

    def _step(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason not in _TOLD:
                raise
            self._refusal = error
            get_logger("serving").debug("a client is refused", problem=str(error))
            raise ssl.SSLWantReadError from error
