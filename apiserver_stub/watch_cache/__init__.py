"""The visible state of a storage, and its watches: each change is encoded once and handed to any number of streams."""
