"""Requests to other servers: the clients of webhooks, match conditions, service addresses, and egress."""
