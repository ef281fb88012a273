"""What `sparsify` and `compare_sparsifiers` call."""
