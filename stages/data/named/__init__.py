"""The sources that have a name, one module for each provider."""
