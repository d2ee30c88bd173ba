"""Files by URL: object stores and other machines."""
