"""What `reproduce`, `evaluate_glyphs` and `cifar100` call: lists of steps, and what runs them."""
