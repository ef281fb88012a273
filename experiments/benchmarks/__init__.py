"""The library of the `benchmark_*` scripts."""
