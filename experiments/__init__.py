"""absl scripts, one per experiment."""
