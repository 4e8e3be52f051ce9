"""Skeleton."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    listen: str = "127.0.0.1:8080"
    htpasswd: str | None = None
    allow: tuple[str, ...] = ()
    admin: str = "127.0.0.1:9464"
    store: str = ""
    ladder: tuple[float, ...] = (0.0, 2.0, 5.0, 15.0, 30.0, 60.0)
    window: float = 600.0
    attempt_timeout: float = 30.0
    connect_timeout: float = 10.0
    max_attempts: int = 0
    stalls: tuple[str, ...] = (
        "http_response_timeout", "connection_timeout", "5xx", "429", "connection_terminated",
        "http_response_incomplete", "dns_timeout",
    )
    retry_after_cap: float = 300.0
    forgive_after: float = 1800.0
    abandon_stall_after: float = 5.0
    hold_request: int = 1048576
    keep_reply: int = 16384
    idle_reuse: float = 1.0
    page_fault_after: int = 4
    pause_after: int = 10
    pause: float = 120.0
    pause_max: float = 900.0
    drain: float = 25.0
    confdir: str = "~/.mitmproxy"
    upstream: str | None = None
    reverse: str | None = None
    upstream_ca: str | None = None
    ssl_insecure: bool = False
    http2: bool = False
    log_level: str = "info"
