"""Requests to servers: connections, TLS and duplex streams, for API clients and for servers that call other servers."""
