"""The library of `report` and `figure`: figures, claims and tables, all from records only."""
