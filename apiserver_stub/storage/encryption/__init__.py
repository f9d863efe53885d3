"""Encryption at rest: the objects of chosen resources are kept encrypted, in the form that kube-apiserver keeps them in
etcd (KEP-3299 for KMS v2).
"""
