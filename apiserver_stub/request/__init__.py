"""Requests: request info, the records passed along the handler chain, audit, telemetry and traces."""
