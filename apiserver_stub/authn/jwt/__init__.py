"""Callers known by JSON Web Tokens of OpenID providers, and the file that says which (KEP-3331)."""
