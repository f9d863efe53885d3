"""Watches: every change is encoded once and handed to any number of streams, each of which is only a position."""
