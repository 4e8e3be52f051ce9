"""The proxy of the fuzz run: every duration is scaled down, so that a round takes seconds."""

LADDER_S = (0.0, 0.25, 0.5, 1.0)
WINDOW_S = 3.0
ATTEMPT_TIMEOUT_S = 0.8
HOLD_REQUEST_BYTES = 2048
RETRY_AFTER_CAP_S = 1.0

FLAGS = (
    *("--ladder", ",".join(f"{pace_s:g}" for pace_s in LADDER_S)),
    # The judge tells the rung from the log of an origin, which only the plain rule allows.
    *("--climb", "stall"),
    *("--window", f"{WINDOW_S:g}", "--attempt-timeout", f"{ATTEMPT_TIMEOUT_S:g}", "--connect-timeout", "0.8"),
    *("--hold-request", str(HOLD_REQUEST_BYTES), "--keep-reply", "4096", "--hold-body", "65536"),
    *("--hold-time", "0.1", "--hold-time-healthy", "0.05", "--body-timeout", "0.5", "--idle-reuse", "0.1"),
    *("--retry-after-cap", f"{RETRY_AFTER_CAP_S:g}", "--forgive-after", "60", "--abandon-stall-after", "0.2"),
    *("--pause-after", "8", "--pause", "0.5", "--pause-max", "1", "--http2", "--ssl-insecure"),
)
