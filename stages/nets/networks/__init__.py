"""The networks that come with fedsynth, one declaration each; their modules are beside this package, by name."""
