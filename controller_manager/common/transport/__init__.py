"""Requests to servers: connections, TLS, duplex streams; for clients of the API and for servers that call others."""
