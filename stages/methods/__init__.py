"""The maths, one paper a file: tensors in, tensors out; no path, no print, no file."""
