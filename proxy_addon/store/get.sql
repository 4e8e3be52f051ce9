SELECT rung, next_slot_at, blocked_until, stalled_at, counted_at, stalls_in_a_row, paused_until, pauses, floor_s, version
FROM host
WHERE name = :host AND forget_at IS NULL
