"""The command line `kernevo`: one command per file, each imported only when it is called."""
