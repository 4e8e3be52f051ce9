"""What is said of a setting where it is declared: its group, its kind, its words for people."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proxy_addon.setting_kinds import Kind


class Group(StrEnum):
    """What settings are about; in the order in which they are shown."""

    LISTENING = "Listening"
    REQUESTS = "Requests"
    PACING = "Pacing"
    PAUSE = "Hosts that stay down"
    ORIGINS = "On the way to origins"
    PROCESS = "The process"


@dataclass(frozen=True, slots=True)
class Documented:
    """How the documentation writes a default that depends on the machine."""

    default: str


@dataclass(frozen=True, slots=True)
class About:
    """A setting as it is shown to people and read from text."""

    group: Group
    kind: Kind[Any]
    help: str
    """Whole sentences."""
    default: str
    """As the setting reads it; empty where there is none."""
