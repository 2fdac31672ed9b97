"""The one error this distribution raises for bad input or a refused conversion."""

from edgeengine.errors import UserError


class ConversionError(UserError):
    """A data set, an argument or a converted model was refused.

    The message is one line: what is wrong, where, and what to do about it.
    """

    def __init__(self, what: str, *, where: str, fix: str) -> None:
        parts = (" ".join(str(part).split()) for part in (where, what, fix))
        super().__init__("{}: {}; {}".format(*parts))
