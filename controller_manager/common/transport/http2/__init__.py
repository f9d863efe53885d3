"""An HTTP/2 client (RFC 9113) with bodies in both directions and flow control.

Header blocks do not refer to earlier ones: the server is asked to use no dynamic table (RFC 7541, section 4.2).
Equal blocks therefore mean equal headers, and most are found in a cache. `hpack` handles the others.
"""

from controller_manager.common.transport.http2.connection import Http2Connection
from controller_manager.common.transport.http2.frames import ErrorCode, header_block
from controller_manager.common.transport.http2.stream import Http2Error, Http2Stream, Receiver

__all__ = ["ErrorCode", "Http2Connection", "Http2Error", "Http2Stream", "Receiver", "header_block"]
