"""Models as files, the messages for them, and the next model."""
