"""What all rooms share: runs, embeddings, records, tables."""
