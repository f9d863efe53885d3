"""What the server offers beside objects: discovery, OpenAPI, aggregated APIs, custom resources, and kubelets."""
