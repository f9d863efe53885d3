"""Leader election with leases: only one replica acts, or each replica acts under the locks assigned to it."""
