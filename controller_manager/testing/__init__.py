"""The testing kit: virtual time, seeded chance and a whole cluster in one process, as a pytest plugin."""
