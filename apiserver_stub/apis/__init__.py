"""What the server serves besides objects: discovery, OpenAPI, aggregated APIs, custom resources and kubelet
subresources.
"""
