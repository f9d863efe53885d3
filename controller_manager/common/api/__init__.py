"""The vocabulary of the API: objects, resources, selectors, errors, wire messages; no input or output."""
