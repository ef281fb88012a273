"""What is fuzzed, one module per target.

A module has `seeds()`, valid inputs; `attempt(parts, folder)`, which gives an input to the reader
and checks what comes out; perhaps `ALLOWED`, the exceptions by which the reader may refuse an input
(ValueError and OSError otherwise); and perhaps `TOKENS`, pieces that mean something to the reader.
"""

# Those that need TensorFlow come last, so that one process can run all.
NAMES = (
    *("index_files", "queries", "pickles", "embedding_files", "flags"),
    *("shard_folders", "part_folders", "payloads"),
    *("packs", "recordio", "tfrecords", "dense_embeddings", "archives", "images", "megaface"),
    *("sparsifiers", "requests"),
)
