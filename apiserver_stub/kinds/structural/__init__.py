"""Structural schemas of custom resources: as plain trees in definitions, and as code that processes objects."""
