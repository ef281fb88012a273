"""What `sparsify` and `benchmarks/sparsifiers.py` call."""
