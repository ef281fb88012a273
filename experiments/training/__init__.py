"""What `train` calls: configs, checks, the loop, and the folder that a run leaves."""
