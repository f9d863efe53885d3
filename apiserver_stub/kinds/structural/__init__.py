"""Structural schemas of custom resources: as definitions carry them, plain trees, and at work on objects."""
