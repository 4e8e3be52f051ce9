"""The kind of setting that says where a log goes. Nothing is opened or made here."""

from dataclasses import dataclass

from proxy_addon.log_file import STANDARD_OUTPUT
from proxy_addon.setting_kinds import Kind
from proxy_addon.setting_places import OFF, NewFile


@dataclass(frozen=True, slots=True)
class LogPlace(Kind[str]):
    """A file, which is made if there is none and its folder exists; `-` for standard output; or `off`."""

    metavar = "FILE"
    remedy = "give the path of a file in a folder that exists, - for standard output, or off"

    def parse(self, value: object) -> str:
        # YAML 1.1 reads a bare `off` as false.
        if value is False or (isinstance(value, str) and value.strip().lower() == OFF):
            return OFF
        return STANDARD_OUTPUT if value == STANDARD_OUTPUT else NewFile().parse(value)
