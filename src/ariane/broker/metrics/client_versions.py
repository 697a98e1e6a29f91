"""The release of a client by its number, as Apache's MQVersion has it.

From 4.1.0 on the numbers run without a gap: ten patches for each minor version up to 4.9, a snapshot before each
release, and 5.0.0 after 4.9.9.
"""

from ariane.wire.codes import Version

_FIRST = int(Version.V4_1_0_SNAPSHOT)
_PATCHES = 10
_MINORS_OF_4 = 9
_AFTER_ALL = _FIRST + 2 * _PATCHES * (_MINORS_OF_4 + 10)  # after 5.9.9


def version_name(number: int) -> str:
    """Such as v4_9_8; the number itself for what is older or unknown."""
    if not _FIRST <= number < _AFTER_ALL:
        return str(number)
    release, is_release = divmod(number - _FIRST, 2)
    minor, patch = divmod(release, _PATCHES)
    major, minor = (4, minor + 1) if minor < _MINORS_OF_4 else (5, minor - _MINORS_OF_4)
    return f"v{major}_{minor}_{patch}" + ("" if is_release else "_snapshot")
