"""What `report` and `figure` call: figures, claims and tables, all from records alone."""
