"""The library of `train`: configs, checks, the loop, and the folder of a run."""
