"""Structural schemas of custom resources (OpenAPI v3), as definitions carry them: plain trees."""
