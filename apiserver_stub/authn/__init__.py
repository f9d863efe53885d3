"""Authentication: a chain of authenticators, one per kind of credential."""
