"""The library of what uses and exports a trained encoder: its formats, one interface to all."""
