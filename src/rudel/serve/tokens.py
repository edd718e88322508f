"""The token that clients have to show."""

from pathlib import Path

from rudel.errors import ServeError


def read_token(file: Path | None, environment: str | None) -> str | None:
    """The token of a file, or of the environment; None where neither is given.

    Raises:
        ServeError: the file cannot be read, or the token cannot be one.
    """
    token, place = environment, "$RUDEL_TOKEN"
    if file is not None:
        try:
            token, place = file.read_text(encoding="utf-8"), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise ServeError(f"The token cannot be read from {file}: {error}.") from error
    if token is None:
        return None
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ServeError(f"The token in {place} must be letters, digits and signs without spaces: put one there.")
    return token
