"""What the `evaluate_*` scripts call: embedding, methods of search, protocols, records."""
