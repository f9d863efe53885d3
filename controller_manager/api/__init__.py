"""Floor 1: the vocabulary of the API: objects, resources, selectors, errors, wire messages; no input or output."""
