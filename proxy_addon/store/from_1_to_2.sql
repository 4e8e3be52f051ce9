-- What a file of version 1 lacks, in one transaction: it is of the one version or of the other. What it holds stays.

BEGIN IMMEDIATE;

ALTER TABLE host ADD COLUMN in_flight_limit INTEGER NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN limited_at REAL NOT NULL DEFAULT 0;

PRAGMA user_version = 2;

COMMIT;
