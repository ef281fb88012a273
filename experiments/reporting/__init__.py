"""The library of `report`: figures, claims and tables, all from records only."""
