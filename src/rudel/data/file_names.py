"""Names of files in documents and tables, which are UTF-8, as the names themselves need not be."""


def printable(name: str) -> str:
    r"""A name in which bytes that are not UTF-8 are written as escapes.

    >>> printable("fl\udcf6te.wav")
    'fl\\udcf6te.wav'
    """
    return name.encode("utf-8", "backslashreplace").decode()
