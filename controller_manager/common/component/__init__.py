"""The component floor of every process, whatever it serves: flags for serving, logs, features, metrics and profiles,
the pages that show them, signals, and the way from a command line to an exit status.
"""
