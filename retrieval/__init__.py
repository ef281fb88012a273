"""Exact search over sparse embeddings."""
