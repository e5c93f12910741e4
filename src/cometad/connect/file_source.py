"""Files: a growing folder, followed like `tail -F`, or read once.

CSV and JSON lines are read as they are written; a last line waits for its line break. Parquet and compressed files are
read once they are complete. The position in each file is stored with its readings, so a restart resumes exactly there.
"""

import asyncio
import glob
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from cometad.connect.address import Address
from cometad.connect.contract import Lost
from cometad.connect.followed_file import FilePiece
from cometad.connect.followed_folder import FolderPlace, FollowedFolder
from cometad.connect.intake import Intake
from cometad.errors import InputError, ParameterError

OPTIONS = ("follow", "order")
POLL = 0.25  # seconds between scans of the folder
ROTATION = 5.0  # seconds that a file may be missing during rotation
ORDERS = ("name", "time")


class FilesSource:
    """Readings from files: a folder, a pattern or one file.

    `file:///var/log/plant/` reads every table in a folder, `file:///var/log/plant/*.csv` those that match. Files are
    read in natural order of their names, day2 before day10, or with `order=time` by modification time. With
    `follow=no`, reading ends at the last line of the last file.
    """

    def __init__(self, address: Address) -> None:
        address.check_options(OPTIONS)
        if address.host not in ("", "localhost"):
            raise ParameterError(f"Write {address.shown!r} with three slashes, as in file:///var/log/plant/.")
        if address.tags:
            raise ParameterError("Files have one column per variable and need no tags. Remove them.")
        self._follow = _choice(address, "follow", ("yes", "no")) == "yes"
        text = unquote(address.parts.path)
        if not text:
            raise ParameterError(f"{address.shown!r} names no folder. Write something like file:///var/log/plant/.")
        self._place = FolderPlace(
            Path(text), glob.has_magic(text), text.endswith("/"), _choice(address, "order", ORDERS) == "time"
        )
        self._stream = address.stream

    async def run(self, intake: Intake) -> None:
        self._check_place()
        position = await asyncio.to_thread(lambda: intake.position)
        folder = FollowedFolder(self._place, self._stream, intake.layout, position, self._follow)
        try:
            await self._read(folder, intake)
        finally:
            folder.close()

    async def _read(self, folder: FollowedFolder, intake: Intake) -> None:
        missing = 0.0
        while True:
            piece = await asyncio.to_thread(self._next, folder)
            missing = 0.0 if folder.found or self._place.may_be_empty else missing + POLL
            if missing == 0.0:
                intake.connected()
            elif missing > ROTATION:
                intake.lost(f"The file '{self._place.path}' does not exist. It will be read once it does.")
            if piece is not None:
                await intake.reject(piece.rejected, self._stream or "")
                await intake.deliver(piece.batches, piece.origin, folder.position())
            elif self._follow:
                await asyncio.sleep(POLL)
            else:
                return

    def _check_place(self) -> None:
        """Refuse a missing folder; a file may appear later."""
        path = self._place.path
        base = self._place.base
        if not base.is_dir():
            raise InputError(f"The folder '{base}' does not exist. Create it, or correct the address.")
        if not self._follow and not self._place.pattern and not path.exists():
            raise InputError(f"The file '{path}' does not exist. Correct the address.")

    def _next(self, folder: FollowedFolder) -> FilePiece | None:
        try:
            return folder.next_piece()
        except OSError as error:
            raise Lost(f"The folder '{self._place.base}' cannot be read ({error.strerror or error}).") from error


def _choice(address: Address, name: str, known: Sequence[str]) -> str:
    found = address.option(name, known[0])
    if found not in known:
        raise ParameterError(f"The option {name} is {found!r}. Choose {' or '.join(known)}.")
    return found
