"""A storage in etcd that several API servers can share.

A row is the key `PREFIX/RESOURCE/KEY`, such as `/registry/deployments.apps/default/web`. Its value is the object's
bytes without a revision; the revision is the key's mod revision in etcd. Keys without a second slash after the prefix
are not rows: `PREFIX/deleted` has the final states of the objects deleted last and is written in the same transaction.
`PREFIX/progress` is written to make a watch report its progress. `PREFIX/health` is read by health checks. Outside of
the prefix, `compact_rev_key` is the key by which all API servers of an etcd agree on who compacts it; its value is the
last compacted revision. A row with a lifetime is attached to a lease, shared with rows that expire at about the same
time.
"""

from apiserver_stub.storage.etcd.client import EtcdServers
from apiserver_stub.storage.etcd.storage import EtcdRules, EtcdStorage

__all__ = ["EtcdRules", "EtcdServers", "EtcdStorage"]
