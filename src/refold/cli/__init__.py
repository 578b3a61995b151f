"""The command line: one file per command. Commands import what they need when they run, so that help is quick."""
