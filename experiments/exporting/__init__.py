"""Ways out of `SparseIndex`: its rows, ids and payload in a database that others operate."""
