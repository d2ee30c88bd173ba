"""One file a subcommand: its options, the stage that it calls, what it prints."""
