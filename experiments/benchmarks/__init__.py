"""What the `benchmark_*` scripts call."""
