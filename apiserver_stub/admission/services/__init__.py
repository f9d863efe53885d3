"""Cluster IPs and node ports of services."""
