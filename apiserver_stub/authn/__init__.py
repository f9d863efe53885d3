"""Authentication: a chain of callables, each of which knows one kind of credentials."""
