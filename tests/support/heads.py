"""Reading raw HTTP/1 heads, leniently: what is looked at may be wrong on purpose. No sockets."""

from urllib.parse import urlsplit


def request_line(head: bytes) -> tuple[str, str, str]:
    """Method, target and version; what is missing is empty."""
    parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    method, target, version = (*parts, "", "")[:3]
    return method, target, version


def path_of(target: str) -> str:
    """Path and query of a request target in origin form or absolute form; of any other form, all of it."""
    if "://" not in target.split("?")[0]:
        return target
    parts = urlsplit(target)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def field_values(head: bytes, name: str) -> list[str]:
    """Every value of a header field, in order; the name in any case."""
    return [value for key, value in fields_of(head) if key.lower() == name.lower()]


def fields_of(head: bytes) -> list[tuple[str, str]]:
    """The header fields in order, names as they came, values without the white space around them."""
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return [(key, value.strip()) for key, value in pairs]
