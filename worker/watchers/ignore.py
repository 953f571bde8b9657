"""Which files and directories are never mirrored."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from pathlib import PurePath

IGNORED_FILES = (
    ".*",  # dotfiles: .DS_Store, AppleDouble "._x", rsync's and Nextcloud's temporary names
    "*~",
    "#*#",
    "~$*",  # Microsoft Office's owner files
    ".~lock.*#",  # LibreOffice's
    "*.part",
    "*.partial",
    "*.filepart",
    "*.crdownload",
    "*.download",
    "*.tmp",
    "*.swp",
    "thumbs.db",
    "desktop.ini",
)
"""Names of files that are temporary, half-written or bookkeeping; compared without regard to case."""

IGNORED_DIRECTORIES = (
    ".*",  # .git, .stfolder, .stversions, .Trash-1000, .Spotlight-V100
    "node_modules",
    "__macosx",
    "__pycache__",
    "@eadir",
    "#recycle",
    "$recycle.bin",
    "system volume information",
    "lost+found",
    "*.download",  # Safari's half-finished downloads are directories
)
"""Names of directories that are not entered; compared without regard to case."""


class Ignore:
    """The default patterns and those of the operator.

    Args:
        patterns: more patterns (`*`, `?`, `[abc]`; case does not matter). A pattern without a slash is
        compared with
            the name of every file and directory, one that ends in a slash with directories only, one with a
            slash inside with the path relative to the watched folder, where `*` also crosses slashes.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        files, directories, paths = list(IGNORED_FILES), list(IGNORED_DIRECTORIES), []
        for pattern in patterns:
            bare = pattern.strip("/").lower()
            if "/" in bare:
                paths.append(bare)
                continue
            directories.append(bare)
            if not pattern.endswith("/"):
                files.append(bare)
        self._files, self._directories, self._paths = _any_of(files), _any_of(directories), _any_of(paths)

    def file(self, relative: PurePath) -> bool:
        """Whether a file is ignored for its own name or path (its directories are not looked at)."""
        return self._matches(self._files, relative)

    def directory(self, relative: PurePath) -> bool:
        """Whether a directory is ignored for its own name or path, with everything beneath it."""
        return self._matches(self._directories, relative)

    def beneath(self, relative: PurePath) -> bool:
        """Whether a file is ignored for its own sake or because of a directory it lies in."""
        ancestors = list(relative.parents)[:-1]
        return self.file(relative) or any(self.directory(ancestor) for ancestor in ancestors)

    def _matches(self, names: re.Pattern[str], relative: PurePath) -> bool:
        if names.match(relative.name.lower()):
            return True
        return self._paths.match(relative.as_posix().lower()) is not None


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns) or r"(?!)")
