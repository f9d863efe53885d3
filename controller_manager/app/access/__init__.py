"""Delegated authentication and authorization: the API server says who callers are and what they may see."""
