"""absl flag definitions, one module per concern."""
