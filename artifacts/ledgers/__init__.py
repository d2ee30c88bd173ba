"""Append-only records: what left, what was spent, what was received, decided and derived."""
