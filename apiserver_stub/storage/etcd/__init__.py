"""A storage in etcd, which several API servers share.

Rows are keys `PREFIX/RESOURCE/KEY`, as in `/registry/deployments.apps/default/web`, whose values are the bytes of the
objects as they were handed in, without a revision: that is etcd's own, the mod revision of the key. What has no second
slash behind the prefix is no row: `PREFIX/deleted` has the final states of what was deleted last, and is written in the
same transaction; `PREFIX/progress` is written so that a watch has something to tell; `PREFIX/health` is what health
checks ask for. Outside of the prefix is `compact_rev_key`, by which all API servers of an etcd agree on who compacts
it; its value is the revision up to which it was compacted last. A row with a lifetime is attached to a lease, with
others that expire about then.
"""

from apiserver_stub.storage.etcd.client import EtcdServers
from apiserver_stub.storage.etcd.storage import EtcdRules, EtcdStorage

__all__ = ["EtcdRules", "EtcdServers", "EtcdStorage"]
