"""The certificates of the server: its authorities, issued certificates, trusted authorities, and server names."""

MARKS = frozenset({"apiserver.db", "ca.key", "sa.key", "cluster-up.lock"})
"""Files that identify a folder as one of the server."""
