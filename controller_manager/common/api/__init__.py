"""API types: objects, resources, selectors, errors and HTTP messages, without I/O."""
