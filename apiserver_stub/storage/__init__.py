"""The storage of objects, in one order of revisions: the protocol of storages, and the one that is built in."""
