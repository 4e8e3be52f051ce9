-- One statement, so that nothing can come between the comparison and the write, and no await can leave a transaction
-- open. IS, not =: an :expected of NULL matches "no row". Returns no row where the race was lost.
INSERT OR REPLACE INTO host (
    name, forget_at,
    rung, next_slot_at, blocked_until, stalled_at, counted_at, stalls_in_a_row, paused_until, pauses, floor_s,
    in_flight_limit, limited_at, operator_floor_s, operator_paused_until, operated_at, resumed_at
)
SELECT
    :host, :forget_at,
    :rung, :next_slot_at, :blocked_until, :stalled_at, :counted_at, :stalls_in_a_row, :paused_until, :pauses,
    :quota_pace_s, :in_flight_limit, :limited_at, :floor_s, :operator_paused_until, :operated_at, :resumed_at
WHERE (SELECT version FROM host WHERE name = :host AND forget_at IS NULL) IS :expected
RETURNING version
