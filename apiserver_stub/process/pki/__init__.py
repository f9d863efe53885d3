"""The certificates of the server: its authorities, what it issues and believes, and the names it is reached by."""

MARKS = frozenset({"apiserver.db", "ca.key", "sa.key", "cluster-up.lock"})
"""Files by which a folder is known to be a server's own."""
