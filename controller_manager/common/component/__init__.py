"""Parts of every process: serving flags, logs, feature gates, metrics and profiles, the pages that show them, signals,
and the start of a process from its command line.
"""
