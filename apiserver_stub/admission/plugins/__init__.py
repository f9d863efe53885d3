"""The built-in admission plugins, a file or folder each."""
