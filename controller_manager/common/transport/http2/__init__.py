"""The client's side of HTTP/2 (RFC 9113): requests whose bodies go both ways, as windows allow.

No header refers to an earlier one: the server is told to keep no table of them (RFC 7541, section 4.2), so that blocks
of headers that are equal mean the same, and most are known already. `hpack` reads and writes the others.
"""

from controller_manager.common.transport.http2.connection import Http2Connection
from controller_manager.common.transport.http2.frames import ErrorCode, header_block
from controller_manager.common.transport.http2.stream import Http2Error, Http2Stream, Receiver

__all__ = ["ErrorCode", "Http2Connection", "Http2Error", "Http2Stream", "Receiver", "header_block"]
