"""Custom resources: CustomResourceDefinitions, the resources they serve, and the conversion of their objects."""
