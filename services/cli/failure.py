"""What a command says when it cannot do what was asked. Any module of the command may raise it."""


class CommandError(Exception):
    """The command ends with exit code 1 and this sentence on standard error."""
