"""What `reproduce`, `compare` and `cifar100` call: lists of steps, and what runs them."""
