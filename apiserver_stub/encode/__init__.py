"""From media types to trees and back: request bodies, negotiated answers, JSON, YAML and tables; no kind's rules."""
