"""What both client programs share."""

import sys
import urllib.parse


def check(right, what, seen):
    """Ends the program when a step was answered wrongly."""
    if not right:
        sys.exit(f"wrong: {what}: {seen!r}")


def endpoint():
    if len(sys.argv) != 2:
        sys.exit("usage: client ENDPOINT")
    url = urllib.parse.urlsplit(sys.argv[1])
    return url.hostname, url.port
