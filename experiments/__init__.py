"""absl scripts, one per experiment: `python -m sparse_embed.experiments.<name> --flags`."""
