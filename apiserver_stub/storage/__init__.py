"""Where objects are kept, in one order of revisions: the protocol of storages, and the one that is built in."""
