-- One statement, so that the newest version and the rows are of the same moment. Always returns at least one row; its
-- host is NULL where nothing has changed. A :since above the newest version was given by another database.
SELECT
    newest, whole, host.name, host.forget_at IS NOT NULL,
    rung, next_slot_at, blocked_until, stalled_at, counted_at, stalls_in_a_row, paused_until, pauses, floor_s,
    in_flight_limit, limited_at, operator_floor_s, operator_paused_until, operated_at, resumed_at, host.version
FROM (
    SELECT newest, :since NOT BETWEEN forgotten AND newest AS whole
    FROM (
        SELECT version AS forgotten, (SELECT seq FROM sqlite_sequence WHERE name = 'host') AS newest FROM forgotten
    )
)
LEFT JOIN host
    ON host.version > CASE WHEN whole THEN 0 ELSE :since END
    AND (NOT whole OR host.forget_at IS NULL)
