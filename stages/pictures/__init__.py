"""Pictures for people who would rather look than read. PNG bytes out, the same for the same numbers."""
