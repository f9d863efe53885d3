"""Custom resources: their definitions, what is served of them, and how their objects are converted."""
