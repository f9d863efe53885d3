"""The companion API server: light to start, faithful in semantics, durable by default."""
