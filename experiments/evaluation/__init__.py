"""The library of the `evaluate_*` scripts: embedding, methods of search, protocols, records."""
