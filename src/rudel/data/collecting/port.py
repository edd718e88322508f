"""A board's serial port, by pySerial."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rudel.errors import DataError

if TYPE_CHECKING:
    from serial import Serial

_BAUD = 115_200  # of boards without USB of their own; the others ignore it
_WAIT = 0.1  # seconds that a read may take
_WRITE_WAIT = 5.0  # seconds until the board has to take what is sent
_AT_ONCE = 65_536


class SerialPort:
    """An open port.

    Args:
        name: such as /dev/ttyACM0 or COM3.
        serial: of pySerial.
    """

    def __init__(self, name: str, serial: "Serial") -> None:
        self.name, self._serial = name, serial

    def read(self) -> bytes:
        """Reads the bytes that have come; empty if none come for a tenth of a second.

        Raises:
            DataError: the board is gone.
        """
        try:
            first = self._serial.read(1)
            return first + self._serial.read(min(self._serial.in_waiting, _AT_ONCE)) if first else b""
        except (OSError, TypeError) as error:  # TypeError: pySerial, of a port that is closed meanwhile
            raise self._gone() from error

    def write(self, data: bytes) -> None:
        """Sends bytes.

        Raises:
            DataError: the board is gone, or takes nothing.
        """
        from serial import SerialTimeoutException

        try:
            self._serial.write(data)
        except SerialTimeoutException as error:
            raise DataError(
                f"The board at {self.name} does not take what is sent to it: reset it, and repeat the command."
            ) from error
        except (OSError, TypeError) as error:
            raise self._gone() from error

    def _gone(self) -> DataError:
        return DataError(f"The board at {self.name} was disconnected: plug it in again, and repeat the command.")


@contextlib.contextmanager
def opened(name: str | None) -> Iterator[SerialPort]:
    """Opens a port.

    Args:
        name: of the port; None for the only one that a board is at.

    Raises:
        DataError: it cannot be opened, or it is not clear which one is meant.
    """
    try:
        import serial
        from serial.tools.list_ports import comports
    except ImportError as error:
        raise DataError(f'A board is read by pySerial ({error}): pip install "rudel[board]".') from error
    boards = sorted(port.device for port in comports() if port.vid is not None)
    if name is None:
        if len(boards) != 1:
            raise DataError(f"Name the board's port with --port: {_listed(boards)}.")
        (name,) = boards
    try:
        line = serial.Serial(name, _BAUD, timeout=_WAIT, write_timeout=_WRITE_WAIT)
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise DataError(f"The port {name} cannot be opened ({reason}): {_listed(boards)}.") from error
    with line:
        yield SerialPort(name, line)


def _listed(boards: list[str]) -> str:
    if not boards:
        return "no board is connected by USB that this computer can see"
    return f"there {'are boards' if len(boards) > 1 else 'is a board'} at {', '.join(boards)}"
