"""Authentication by JSON Web Tokens of OpenID providers, and its configuration file (KEP-3331)."""
