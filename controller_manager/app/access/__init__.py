"""Delegated authentication and authorization: the API server identifies callers and decides on their access."""
