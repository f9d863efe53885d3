"""The certificates of the server: its authorities, what it issues and believes, and the names it is reached by."""
