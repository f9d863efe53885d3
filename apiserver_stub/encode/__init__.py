"""Encoding and decoding: request bodies, content negotiation, JSON, YAML, CBOR, protobuf and tables. No rules of
kinds.
"""
