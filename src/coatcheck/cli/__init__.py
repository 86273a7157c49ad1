"""The command line. Commands are thin: they call other packages and print what those return."""
