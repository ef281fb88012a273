"""What `reproduce` calls: lists of steps, and what runs them."""
