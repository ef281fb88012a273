"""Keras encoders that give unit-norm embeddings."""
