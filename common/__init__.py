"""The few helpers that every other package may use."""
