-- The whole database, made in one transaction. A change to it needs a new user_version (sqlite_file.py: _SCHEMA_VERSION), and
-- a script that brings a file of the version before to it.

BEGIN IMMEDIATE;

-- One row per host that has one, and one per deletion that is still remembered.
-- AUTOINCREMENT is the store-wide counter: SQLite never gives a number twice, also not after a deletion or a restart.
-- So a write is never an UPDATE: it replaces the host's row by a new one, which gets the next number.
CREATE TABLE host (
    version         INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT    NOT NULL UNIQUE,
    forget_at       REAL, -- not NULL: the host's row was deleted, and that is remembered until then
    -- No defaults: with one, INSERT OR REPLACE would turn a NULL (which is what a NaN becomes) into it without a word.
    rung            INTEGER NOT NULL,
    next_slot_at    REAL    NOT NULL,
    blocked_until   REAL    NOT NULL,
    stalled_at      REAL    NOT NULL,
    counted_at      REAL    NOT NULL,
    stalls_in_a_row INTEGER NOT NULL,
    paused_until    REAL    NOT NULL,
    pauses          INTEGER NOT NULL,
    floor_s         REAL    NOT NULL, -- quota_pace_s: processes of versions 1 and 2 know it by this name
    -- Since version 2 (from_1_to_2.sql), and with defaults: a process of the version before, which is still at work on
    -- the file, writes rows without them, and shall go on doing so.
    in_flight_limit INTEGER NOT NULL DEFAULT 0,
    limited_at      REAL    NOT NULL DEFAULT 0,
    -- Since version 3 (from_2_to_3.sql), likewise: what an operator has decided goes with a row that such a process
    -- writes. The operator's floor has a name of its own, so that none of them takes it for a pace that pages shorten.
    operator_floor_s      REAL NOT NULL DEFAULT 0,
    operator_paused_until REAL NOT NULL DEFAULT 0,
    operated_at           REAL NOT NULL DEFAULT 0,
    resumed_at            REAL NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX host_forget_at ON host (forget_at) WHERE forget_at IS NOT NULL;

-- Its only row: the newest version that is no longer remembered. Who knows less must read everything anew.
CREATE TABLE forgotten (version INTEGER NOT NULL) STRICT;

-- prune.sql deletes rows. (The deletion inside a REPLACE fires no trigger, and loses nothing: a newer row takes over.)
CREATE TRIGGER host_forgotten AFTER DELETE ON host WHEN old.forget_at IS NOT NULL
BEGIN
    UPDATE forgotten SET version = max(version, old.version);
END;

-- The counter starts at the microsecond of its birth. If somebody deletes the file while processes use it, the next
-- one starts above every number that the old one gave, and a version from then matches no row of now.
INSERT INTO sqlite_sequence (name, seq)
    VALUES ('host', max(1, CAST((julianday('now') - 2440587.5) * 86400e6 AS INTEGER)));
INSERT INTO forgotten (version) SELECT seq FROM sqlite_sequence WHERE name = 'host';

-- The processes that use the store, by a random id.
CREATE TABLE process (
    id      TEXT PRIMARY KEY,
    beat_at REAL NOT NULL
) STRICT;

PRAGMA application_id = 1348559717; -- "Pace" in ASCII
PRAGMA user_version = 3;

COMMIT;
