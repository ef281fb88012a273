"""Methods of search, as an evaluation compares them."""
