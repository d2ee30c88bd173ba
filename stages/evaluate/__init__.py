"""`evaluate`: one file for each measurement."""
