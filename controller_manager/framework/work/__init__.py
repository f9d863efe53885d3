"""The work queue, and the control loop that reconciles its keys. Neither depends on API objects."""
