"""What a whole run cost, sent and measured, read from its folder."""
