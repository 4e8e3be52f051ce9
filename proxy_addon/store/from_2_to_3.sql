-- What a file of version 2 lacks, in one transaction: it is of the one version or of the other. What it holds stays; its
-- floor_s was found out from quotas, and is that still.

BEGIN IMMEDIATE;

ALTER TABLE host ADD COLUMN operator_floor_s      REAL NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN operator_paused_until REAL NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN operated_at           REAL NOT NULL DEFAULT 0;
ALTER TABLE host ADD COLUMN resumed_at            REAL NOT NULL DEFAULT 0;

PRAGMA user_version = 3;

COMMIT;
