"""Encryption at rest for chosen resources, in the format of kube-apiserver in etcd (KEP-3299 for KMS v2)."""
